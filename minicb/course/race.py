"""The last table of the course: the same prompts, served on the real model by the learner's engine and by others.

A lesson, not a benchmark: a few prompts, each way once. `minicb bench` measures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from minicb import seams
from minicb.bench.chat import chat_workload
from minicb.course.answer import packaged_model
from minicb.course.graduate import packaged_peer
from minicb.engine import Engine
from minicb.metrics import StepRecord
from minicb.padding import PaddedRunner
from minicb.request import Limits, open_request
from minicb.sampling import SamplingParams

NAMES = ("capital", "minutes", "yes", "sum", "colours")  # of very different lengths, so that padding has work
Lap = tuple[list[list[int]], int]  # answers, token slots computed


def race() -> None:
    """Serve the same prompts in four ways, and print a row for each."""
    _, tokenizer = packaged_model()
    chosen = [prompt for prompt in chat_workload() if prompt.name in NAMES]
    ids, limits = [tokenizer.chat(prompt.messages) for prompt in chosen], [prompt.max_tokens for prompt in chosen]
    ways: dict[str, tuple[bool, Callable[[], Lap]]] = {
        "yours": (True, lambda: serve(ids, limits, "reference")),
        "minicb, fast attention": (False, lambda: serve(ids, limits, "auto")),
        "minicb, padded": (False, lambda: serve_padded(ids, limits)),
        "transformers, padded": (False, lambda: serve_by_transformers(ids, limits)),
    }
    packaged_peer().static([ids[0][:8]], [2], 1)  # first calls are slow for reasons of their own
    print(f"{'':<25}{'seconds':>8}{'tokens/s':>10}{'slots':>8}{'wasted':>8}  same tokens")
    first: list[list[int]] | None = None
    for name, (own, way) in ways.items():
        with nullcontext() if own else seams.references_only():
            began = time.perf_counter()
            answers, slots = way()
            seconds = time.perf_counter() - began
        written = sum(map(len, answers))
        wasted = 1 - (sum(map(len, ids)) + written - len(ids)) / slots
        first = first or answers
        same = "yes" if answers == first else "NO"
        print(f"{name:<25}{seconds:>8.1f}{written / seconds:>10.1f}{slots:>8,}{100 * wasted:>6.0f} %  {same}")


def serve(prompts: Sequence[Sequence[int]], limits: Sequence[int], attention: str) -> Lap:
    """Continuous batching."""
    model, _ = packaged_model()
    records: list[StepRecord] = []
    room = max(len(ids) + limit for ids, limit in zip(prompts, limits, strict=True))
    engine = Engine(model, attention=attention, max_num_seqs=8, max_model_len=room, on_step=records.append)
    names = [engine.add_request(ids, SamplingParams(max_tokens=n)) for ids, n in zip(prompts, limits, strict=True)]
    done: dict[str, list[int]] = {}
    while engine.has_unfinished_requests:
        done |= {event.request_id: list(event.output.token_ids) for event in engine.step() if event.output}
    return [done[name] for name in names], sum(record.token_slots for record in records)


def serve_padded(prompts: Sequence[Sequence[int]], limits: Sequence[int]) -> Lap:
    """Left-padded rectangles, on the same model."""
    model, _ = packaged_model()
    room = max(len(ids) + limit for ids, limit in zip(prompts, limits, strict=True))
    rules = Limits(model.config.vocab_size, room, model.config.end_ids)
    requests = [
        open_request(str(i), ids, SamplingParams(max_tokens=limit), rules, None, 0, 0.0)
        for i, (ids, limit) in enumerate(zip(prompts, limits, strict=True))
    ]
    runner = PaddedRunner(model, batch_size=8, max_model_len=room)
    outputs = runner.run(requests)
    return [list(output.token_ids) for output in outputs], sum(record.token_slots for record in runner.records)


def serve_by_transformers(prompts: Sequence[Sequence[int]], limits: Sequence[int]) -> Lap:
    run = packaged_peer().static(prompts, limits, 8)
    return run.answers, run.token_slots
