"""What the figures show: the engine, the padded runner and one head at work.

The schedules come from the real engine and the real padded runner on a tiny random model; the numbers of
a schedule do not depend on what the model says, because every answer has a fixed length here.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache

import torch

from minicb.attention import mix, scores, weights
from minicb.batch import Batch, Plan, pack
from minicb.engine import Engine
from minicb.masks import causal_mask
from minicb.metrics import StepRecord
from minicb.model import Model
from minicb.padding import PaddedRunner
from minicb.request import Limits, Request, open_request
from minicb.sampling import SamplingParams
from minicb.weights import random_model, tiny_config

TOKENS = ["<bos>", "I", "am", "sure", "this", "pro", "ject"]
PROMPTS = {"A": (3, 1, 4), "B": (1, 5, 9, 2, 6, 5, 3, 5, 8), "C": (9, 7, 9, 3)}  # the course's three requests
SIZES = {"A": (3, 4), "B": (9, 5), "C": (4, 6)}  # their prompts and answers in tokens
FOUR = {"A": (1, 2), "B": (1, 6), "C": (1, 2), "D": (1, 4)}  # four short prompts, answers of 2, 6, 2 and 4


@cache
def model() -> Model:
    return random_model(tiny_config(layers=1))


def params(length: int) -> SamplingParams:
    return SamplingParams(max_tokens=length, ignore_eos=True)


def make_engine(sizes: Mapping[str, tuple[int, int]], seqs: int, budget: int, room: int = 512) -> Engine:
    """An engine with these requests in its queue; sizes: (prompt, answer) in tokens."""
    engine = Engine(
        model(), attention="reference", max_num_batched_tokens=budget, max_num_seqs=seqs, max_model_len=room,
        kv_cache_memory_bytes=1 << 26,
    )  # fmt: skip
    for name, (prompt, answer) in sizes.items():
        ids = (PROMPTS.get(name, (1,)) * prompt)[:prompt]
        engine.add_request(ids, params(answer), request_id=name)
    return engine


def continuous(sizes: Mapping[str, tuple[int, int]], seqs: int, budget: int) -> list[StepRecord]:
    """The records of continuous batching, at most `seqs` requests and `budget` tokens a step."""
    records: list[StepRecord] = []
    engine = make_engine(sizes, seqs, budget)
    engine.on_step = records.append
    while engine.has_unfinished_requests:
        engine.step()
    return records


def padded(sizes: Mapping[str, tuple[int, int]], rows: int) -> list[StepRecord]:
    """The records of static padded batches of `rows` requests."""
    limits = Limits(model().config.vocab_size, 512, frozenset())
    requests: list[Request] = [
        open_request(name, [1] * prompt, params(answer), limits, None, 0, 0.0)
        for name, (prompt, answer) in sizes.items()
    ]
    runner = PaddedRunner(model(), batch_size=rows, max_model_len=512)
    runner.run(requests)
    return runner.records


def second_step() -> tuple[Engine, Plan, Batch]:
    """The three requests with a budget of 8: what the engine packs in its second step."""
    engine = make_engine(SIZES, seqs=3, budget=8, room=16)
    engine.step()
    plan = engine.scheduler.schedule(0.0)
    return engine, plan, pack(plan, engine.pool, torch.device("cpu"))


@cache
def head() -> dict[str, torch.Tensor]:
    """One small seeded head over the running example."""
    generator = torch.Generator().manual_seed(7)
    q, k, v = (torch.randn(7, 1, 4, generator=generator) for _ in range(3))
    mask, raw = causal_mask(7), scores(q, k)
    shares = weights(raw, mask)
    mixed = mix(shares, v)[:, 0]
    return {
        "q": q[:, 0], "k": k[:, 0], "v": v[:, 0], "scores": raw[0], "weights": shares[0], "mixed": mixed, "mask": mask
    }  # fmt: skip


@cache
def many_runs() -> dict[str, list[StepRecord]]:
    """24 requests of very different lengths, 8 at a time, in both ways."""
    draw = random.Random(4)
    sizes = {chr(65 + i): (draw.choice([8, 16, 30, 60, 150]), draw.choice([8, 16, 30, 60, 110])) for i in range(24)}
    return {"Padded batches of 8": padded(sizes, 8), "Continuous batching": continuous(sizes, 8, 64)}
