"""Requests side by side under one dense mask a step: the plain way to pack, which shows what a mask must do.

    packed({"A": "...", "B": "..."})                       the real model answers both in one row
    packed(prompts, lambda mask: chunk_mask(*mask.shape))  the same with another mask: what leaks?

The engine's reference attention goes from request to request and so cannot look outside a block, whatever the mask
says there. Here all new tokens face all keys at once, and the mask alone keeps requests apart. (Chapters 2 and 6)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from minicb.attention import attend
from minicb.batch import Batch
from minicb.cache import KVCache
from minicb.course.answer import packaged_model
from minicb.course.table import Method, Run, Workload
from minicb.course.tiny import model
from minicb.engine import Engine
from minicb.metrics import StepRecord
from minicb.model import Attend
from minicb.reference import find_spans, step_mask
from minicb.sampling import SamplingParams

Change = Callable[[Tensor], Tensor]


class DenseAttention:
    """A back end that computes every cell of the step's mask. change: from the right mask to the one to use."""

    def __init__(self, change: Change | None = None) -> None:
        self.change = change
        self.masks: list[Tensor] = []  # bool [T, S], one a step

    def bind(self, batch: Batch, cache: KVCache) -> Attend:
        mask = step_mask(batch)
        if self.change is not None:
            mask = self.change(mask)
        self.masks.append(mask)
        slots = torch.cat([span.slots for span in find_spans(batch, cache.page_size)])

        def attend_layer(layer: int, window: int | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            assert window is None, "the lessons' models have no sliding window"
            cache.write(layer, batch.slots, k, v)
            return attend(q, *cache.read(layer, slots), mask)

        return attend_layer


def packed(prompts: Mapping[str, str], change: Change | None = None, *, max_tokens: int = 6) -> list[Tensor]:
    """Let the real model answer all prompts in one row, greedily; print the answers.

    Returns the masks that were used, bool [T, S], one a step; the first holds all the prompts.
    """
    weights, tokenizer = packaged_model()
    attention = DenseAttention(change)
    engine = Engine(weights, tokenizer.decode, attention=attention, max_num_seqs=len(prompts), max_model_len=128)
    for name, prompt in prompts.items():
        engine.add_request(tokenizer.encode(prompt), SamplingParams(max_tokens=max_tokens), request_id=name)
    texts = dict.fromkeys(prompts, "")
    while engine.has_unfinished_requests:
        for event in engine.step():
            texts[event.request_id] += event.text
    for name, prompt in prompts.items():
        print(f"{name}  {prompt!r} -> {texts[name]!r}")
    return attention.masks


def in_one_row(change: Change | None = None) -> Method:
    """The same as a method for the growing table: all requests that fit, packed under one dense mask a step."""

    def method(workload: Workload) -> Run:
        records: list[StepRecord] = []
        engine = Engine(
            model(), attention=DenseAttention(change), max_num_seqs=workload.rows, max_model_len=64,
            kv_cache_memory_bytes=1 << 24, on_step=records.append,
        )  # fmt: skip
        for name, (ids, length) in workload.requests.items():
            engine.add_request(ids, SamplingParams(max_tokens=length, ignore_eos=True), request_id=name)
        answers: dict[str, tuple[int, ...]] = {}
        while engine.has_unfinished_requests:
            for event in engine.step():
                if event.output is not None:
                    answers[event.request_id] = event.output.token_ids
        return Run(answers, records)

    return method
