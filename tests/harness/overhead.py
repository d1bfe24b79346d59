"""What a step costs without its model: `python -m tests.harness.overhead`.

256 requests write their answers; behind them nobody, 1,000 or 10,000 wait. The scheduler's own work is `schedule` and
`commit`; `pack` makes the tensors; the rest is the engine's events, and a model that does nothing. With `--text`,
`commit` also decodes with the packaged model's tokenizer. `--policies`: the scheduler alone under each policy, in a
steady flow: short answers, so that requests leave and join in every step while 10,000 of very different sizes wait.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minicb import step as step_module
from minicb.batch import Batch
from minicb.bench.arrivals import Job
from minicb.bench.simulate import TOKEN, TokenPool, open_job
from minicb.checkpoint import Tokenizer, find_checkpoint
from minicb.engine import Engine
from minicb.policy import POLICIES
from minicb.sampling import SamplingParams
from minicb.scheduler import Scheduler
from minicb.stopping import Decode
from tests.harness.scripted import scripted_config
from tests.harness.threads import one_thread

RUNNING, WAITING, ROOM, VOCAB = 256, (0, 1_000, 10_000), 1_024, 64
PARTS = ("schedule", "commit", "pack", "sample", "rest")


class NoModel:
    """Computes nothing: every token is the same one."""

    def __init__(self) -> None:
        self.config = scripted_config(VOCAB, ROOM)
        self.device, self.dtype = torch.device("cpu"), torch.float32

    def __call__(self, batch: Batch, cache: object, attention: object) -> Tensor:  # noqa: ARG002
        return torch.zeros(len(batch.tokens), 1)

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden.expand(-1, VOCAB)


def timed(function: Callable[..., Any], times: list[float]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        result = function(*args, **kwargs)
        times.append(time.perf_counter() - began)
        return result

    return call


def measure(waiting: int, steps: int, decode: Decode | None) -> dict[str, np.ndarray]:
    """Seconds of each part in each of these steps."""
    engine = Engine(
        NoModel(), decode, max_num_seqs=RUNNING, max_num_batched_tokens=512, max_model_len=ROOM,  # type: ignore[arg-type]
        kv_cache_memory_bytes=1 << 28,
    )  # fmt: skip
    for n in range(RUNNING + waiting):
        engine.add_request([n % VOCAB] * (1 + n % 64), SamplingParams(max_tokens=ROOM - 64))
    while len(engine.scheduler.running) < RUNNING or engine.scheduler.running[-1].num_output_tokens < 5:
        engine.step()
    assert len(engine.scheduler.waiting) == waiting
    times: dict[str, list[float]] = {part: [] for part in PARTS}
    before = step_module.pack, step_module.sample
    engine.scheduler.schedule = timed(engine.scheduler.schedule, times["schedule"])  # type: ignore[method-assign]
    engine.scheduler.commit = timed(engine.scheduler.commit, times["commit"])  # type: ignore[method-assign]
    step_module.pack, step_module.sample = timed(before[0], times["pack"]), timed(before[1], times["sample"])
    try:
        for _ in range(steps):
            began = time.perf_counter()
            engine.step()
            times["rest"].append(time.perf_counter() - began)
    finally:
        step_module.pack, step_module.sample = before
    parts = {part: np.array(values) for part, values in times.items()}
    parts["rest"] -= sum(parts[part] for part in PARTS if part != "rest")
    return parts


def flow(policy: str, waiting: int, steps: int) -> tuple[np.ndarray, float]:
    """Seconds of `schedule` in each step while so many wait, and how many join a step."""
    draw = random.Random(1)
    scheduler = Scheduler(TokenPool(1 << 22), max_num_batched_tokens=8_192, max_num_seqs=RUNNING, policy=policy)
    numbers = itertools.count()

    def send(count: int) -> None:
        for n in itertools.islice(numbers, count):
            job = Job(n / 1_000, draw.randint(1, 4_000), draw.randint(2, 60), str(n % 20), n % 5)
            scheduler.add(open_job(job, str(n), job.at_s))

    send(waiting + RUNNING)
    times: list[float] = []
    joined = 0
    for step in range(steps + 100):
        send(max(0, waiting - len(scheduler.waiting)))
        began = time.perf_counter()
        plan = scheduler.schedule(0.0)
        if step >= 100:  # the seats are full by then
            times.append(time.perf_counter() - began)
            joined += sum(chunk.start == 0 for chunk in plan)
        scheduler.commit(plan, [TOKEN] * len(plan.sampled), 0.0)
    return np.array(times), joined / steps


def spread(seconds: np.ndarray) -> str:
    """Median and the 5th to 95th percentile, in ms."""
    low, middle, high = np.percentile(seconds * 1e3, (5, 50, 95))
    return f"{middle:6.2f} ({low:.2f}-{high:.2f})"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.harness.overhead", description=__doc__)
    parser.add_argument("--steps", type=int, default=300, help="measured steps a line (default 300)")
    parser.add_argument("--text", action="store_true", help="decode with the packaged model's tokenizer")
    parser.add_argument("--policies", action="store_true", help="the scheduler alone, under each policy")
    options = parser.parse_args(arguments)
    if options.policies:
        print(f"{WAITING[-1]:,} waiting, {RUNNING} seats, ms of `schedule`: median (5th-95th percentile), worst")
        for policy in POLICIES:
            times, joined = flow(policy, WAITING[-1], options.steps)
            print(f"{policy:<24}{spread(times):<22}{1e3 * times.max():6.2f}   {joined:.1f} join a step")
        return 0
    decode = Tokenizer.load(find_checkpoint(None)).decode if options.text else None
    print(f"{RUNNING} running, ms a step: median (5th-95th percentile) of {options.steps} steps")
    print(f"{'waiting':>8}  {'schedule + commit':<22}" + "".join(f"{part:<22}" for part in PARTS))
    with one_thread():
        for waiting in WAITING:
            parts = measure(waiting, options.steps, decode)
            cells = [parts["schedule"] + parts["commit"], *(parts[part] for part in PARTS)]
            print(f"{waiting:>8,}  " + "".join(f"{spread(cell):<22}" for cell in cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
