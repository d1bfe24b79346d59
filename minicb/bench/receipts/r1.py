"""R1: the slots that a padded rectangle computes for nothing, and the same count over a whole trace."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from minicb.bench.receipts import Options, Table, trace_jobs
from minicb.bench.simulate import Step, simulate
from minicb.bench.steptime import LLAMA_3_8B_ON_A100
from minicb.metrics import wasted_fraction
from minicb.scheduler import Scheduler

if TYPE_CHECKING:
    from minicb.course.draw import Picture


def rectangle(new_tokens: list[int]) -> tuple[int, int]:
    """Slots of the smallest rectangle that holds these rows, and how many of them are padding."""
    slots = len(new_tokens) * max(new_tokens)
    return slots, slots - sum(new_tokens)


def measure(options: Options) -> dict[str, Any]:
    draw = random.Random(1)
    for _ in range(1_000):
        n, rows = draw.randint(1, 4_000), draw.randint(1, 256)
        padding = rectangle([n] + [1] * (rows - 1))[1]
        if padding != (n - 1) * (rows - 1):
            raise AssertionError(f"a prompt of {n} beside {rows - 1} tokens: {padding} slots of padding")
    slots, padding = rectangle([100] + [1] * 7)
    jobs, source = trace_jobs(options, 4_000)
    counts = {"steps": 0, "tokens": 0, "slots": 0, "mixed": 0}

    def count(step: Step, _: Scheduler) -> None:
        news = [chunk.num_new for chunk in step.plan]
        counts["steps"] += 1
        counts["tokens"] += sum(news)
        counts["slots"] += rectangle(news)[0]
        counts["mixed"] += max(news) > 1 < len(news)

    simulate(jobs, LLAMA_3_8B_ON_A100, max_num_batched_tokens=2048, max_num_seqs=128, on_step=count)
    return {"one": {"slots": slots, "tokens": slots - padding, "padding": padding}, "trace": source | counts}


def tables(data: Mapping[str, Any]) -> list[Table]:
    one, trace = data["one"], data["trace"]
    heads = ["", "steps", "tokens", "slots if padded", "padding"]
    rows = [
        ["a prompt of 100 beside 7 tokens", "1", str(one["tokens"]), str(one["slots"]), str(one["padding"])],
        [f"{trace['requests']:,} requests", *(f"{n:,}" for n in (
            trace["steps"], trace["tokens"], trace["slots"], trace["slots"] - trace["tokens"]))],
    ]  # fmt: skip
    return [Table(f"padding that the ragged row does not compute ({trace['source']})", heads, rows)]


def pictures(data: Mapping[str, Any]) -> dict[str, Picture]:
    from minicb.course.draw import draw_bars

    trace = data["trace"]
    values = {"padded": trace["slots"] / 1e6, "ragged": trace["tokens"] / 1e6}
    waste = {"padded": (trace["slots"] - trace["tokens"]) / 1e6}
    share = wasted_fraction(trace["tokens"], trace["slots"])
    line = (
        f"{trace['requests']:,} requests, {trace['steps']:,} steps; {100 * share:.0f} % of the padded slots are padding"
    )
    title = "Token slots of the same steps, in millions"
    return {"padding": draw_bars(values, waste, unit="million slots", digits=1, title=title, data=line)}
