"""R2: batches that wait for their longest answer against batches that change every step, over the arrival rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

from minicb.bench.arrivals import Job, uniform_lengths, workload
from minicb.bench.latency import normalised
from minicb.bench.receipts import Options, Table
from minicb.bench.simulate import simulate
from minicb.bench.steptime import LLAMA_3_8B_ON_A100, Clock, Load
from minicb.metrics import wasted_fraction

if TYPE_CHECKING:
    from minicb.course.draw import Picture

ROWS, REQUESTS = 16, 600
RATES = (1, 2, 4, 6, 8, 10, 12, 14)
LENGTHS = uniform_lengths((32, 512), (1, 128))


def static_batches(jobs: Sequence[Job], clock: Clock, rows: int) -> tuple[list[float], float, float]:
    """If whoever waits when the machine is free becomes one padded batch of at most `rows`.

    Prompts are padded to the longest, every row runs until the longest answer is done, and all answers leave then.
    returns: seconds a token for each job, the end, and the share of computed slots that nobody needed
    """
    found: list[float] = []
    now, slots = 0.0, 0
    while len(found) < len(jobs):
        begin = max(now, jobs[len(found)].at_s)
        batch = [job for job in jobs[len(found) : len(found) + rows] if job.at_s <= begin]
        longest, last = max(job.prompt for job in batch), max(job.answer for job in batch)
        b = len(batch)
        loads = [Load(b * longest, b, b * longest, b * longest * (longest + 1) // 2)]
        loads += [Load(b, b, b * (longest + i), b * (longest + i)) for i in range(1, last)]
        now = begin + sum(map(clock.step_time, loads))
        slots += sum(load.tokens for load in loads)
        found += [(now - job.at_s) / job.answer for job in batch]
    return found, now, wasted_fraction(sum(job.prompt + job.answer - 1 for job in jobs), slots)


def measure(options: Options) -> dict[str, Any]:
    n = options.requests or REQUESTS
    clock, rows = LLAMA_3_8B_ON_A100, []
    for rate in RATES:
        jobs = workload(n, rate, LENGTHS, seed=2)
        static, _, padding = static_batches(jobs, clock, ROWS)
        run = simulate(jobs, clock, max_num_batched_tokens=2048, max_num_seqs=ROWS)
        ours = median(map(normalised, run.requests))
        rows.append({"rate": rate, "static": median(static), "continuous": ours, "padding": padding})
    at_once = [replace(job, at_s=0.0) for job in workload(n, 1.0, LENGTHS, seed=2)]
    _, end, padding = static_batches(at_once, clock, ROWS)
    ours = simulate(at_once, clock, max_num_batched_tokens=2048, max_num_seqs=ROWS).end_s
    most = {"static": n / end, "continuous": n / ours, "ratio": end / ours, "padding": padding}
    return {"requests": n, "clock": str(clock), "rates": rows, "capacity": most}


def tables(data: Mapping[str, Any]) -> list[Table]:
    rows = [
        [str(r["rate"]), f"{1000 * r['static']:.1f}", f"{1000 * r['continuous']:.1f}",
         f"{r['static'] / r['continuous']:.1f}", f"{100 * r['padding']:.0f} %"]
        for r in data["rates"]
    ]  # fmt: skip
    most = data["capacity"]
    rows.append(["all at once", *(f"{most[kind]:.1f} req/s" for kind in ("static", "continuous")),
                 f"{most['ratio']:.2f}", f"{100 * most['padding']:.0f} %"])  # fmt: skip
    heads = ["requests/s", "static", "continuous", "ratio", "static's padding"]
    title = f"{data['requests']} requests, {ROWS} at a time: median of E2E / tokens of the answer, ms"
    return [Table(title, heads, rows)]


def pictures(data: Mapping[str, Any]) -> dict[str, Picture]:
    from minicb.course.draw import draw_lines

    rates = [r["rate"] for r in data["rates"]]
    series = {kind: (rates, [1000 * r[kind] for r in data["rates"]]) for kind in ("static", "continuous")}
    most = data["capacity"]
    line = f"all at once: {most['static']:.1f} requests/s static, {most['continuous']:.1f} continuous"
    look = {"x_label": "requests a second", "y_label": "median E2E / tokens, ms", "log_y": True, "data": line}
    return {"rates": draw_lines(series, title="Latency over the arrival rate", **look)}  # type: ignore[arg-type]
