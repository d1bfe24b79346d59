"""The same requests through the padded baseline, held against the same oracle."""

from __future__ import annotations

import itertools
from collections import Counter

from minicb.padding import PaddedRunner
from minicb.request import Limits, open_request
from minicb.sampling import SamplingParams
from tests.harness.build import build_model, make_promise
from tests.harness.case import Case
from tests.harness.oracle import verify


def run_padded(case: Case) -> Counter[str]:
    """Every request of the case in padded rectangles; AssertionError if an answer is not the one it has alone."""
    spec = case.model
    model, logits_of = build_model(case)
    limits = Limits(spec.vocab_size, case.max_model_len, frozenset(spec.end_ids))
    requests = [
        open_request(f"{n}", list(r.prompt), SamplingParams(**r.params), limits, spec.words, seed=n, now=0.0)
        for n, r in enumerate(case.requests)
    ]
    runner = PaddedRunner(
        model, kind=case.engine, batch_size=case.max_num_seqs, max_model_len=case.max_model_len,  # type: ignore[arg-type]
        clock=itertools.count().__next__,
    )  # fmt: skip
    for layer in (*runner.cache.k, *runner.cache.v):
        layer.fill_(1e4)  # masked, so it has no weight; NaN times no weight would still be NaN
    outputs = runner.run(requests)
    tally = Counter[str](seeds=1, steps=len(runner.records), requests=len(requests))
    for r, request, output in zip(case.requests, requests, outputs, strict=True):
        verify(make_promise(case, r, request.seed, logits_of), output)
        tally["tokens"] += len(output.token_ids)
        tally[output.finish_reason] += 1
    assert runner.pool.free_pages == runner.pool.num_pages, "pages were lost"
    return tally
