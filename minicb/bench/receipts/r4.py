"""R4: the p95 of the time to the first token falls while the unluckiest wait longer. Six orders on one trace.

Two orders are not minicb's own and stand here to show how one is added: `Oracle` knows each answer's length in
advance, `MaxWait` lets shortest-first rule until somebody has waited too long.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from minicb.bench.arrivals import Job, sped_up
from minicb.bench.latency import Spread, alone, e2e, jain, spread, ttft
from minicb.bench.receipts import Options, Table, each, trace_jobs
from minicb.bench.simulate import Step, simulate
from minicb.bench.steptime import LLAMA_3_8B_ON_A100
from minicb.policy import Ranked, latest_overtaker
from minicb.request import Request
from minicb.scheduler import Scheduler

if TYPE_CHECKING:
    from minicb.course.draw import Picture

CLOCK, BUDGET, SEQS = LLAMA_3_8B_ON_A100, 2_048, 128
LIMIT_S, SPEEDS = 10.0, (1.2, 1.1, 1.0)
SHORTEST = "shortest_prefill_first"
AGINGS = (10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
ORDERS: dict[str, dict[str, Any]] = {
    "fcfs": {"policy": "fcfs"},
    SHORTEST: {"policy": SHORTEST},
    "shortest, length known": {"policy": "oracle"},
    **{f"sjf_aging {aging:g}/s": {"policy": "sjf_aging", "aging_tokens_per_s": aging} for aging in AGINGS},
    "hrrn": {"policy": "hrrn"},
    f"shortest, {LIMIT_S:g} s at most": {"policy": "max_wait"},
}
FEW = ("fcfs", SHORTEST, "sjf_aging 200/s", "hrrn")  # at the other speeds
TAIL = (2, 10, 20, 100, 1_000)  # one request in so many waits at least so long


class MaxWait(Ranked):
    """Shortest first; but if the oldest has waited longer than the limit, it is next."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(lambda request: request.num_uncomputed_tokens)
        self.limit_s, self.now = limit_s, 0.0

    def pop(self) -> Request:
        oldest = next(iter(self.waiting.values()))
        if self.now - oldest.arrival_s > self.limit_s:
            return self.waiting.pop(oldest.number)
        return super().pop()

    def put_back(self, request: Request) -> None:
        """Back to its place among the oldest, too."""
        super().put_back(request)
        self.waiting = {number: self.waiting[number] for number in sorted(self.waiting)}


def own_policy(name: str) -> str | Ranked:
    """The two of this receipt; any other name is the engine's."""
    if name == "oracle":  # a written token costs about three read ones: it occupies a place for a whole step
        return Ranked(lambda r: r.num_prompt_tokens + 3 * (r.max_total_tokens - r.num_prompt_tokens))
    return MaxWait(LIMIT_S) if name == "max_wait" else name


def measure(options: Options) -> dict[str, Any]:
    jobs, source = trace_jobs(options, 4_000, rate=4.9)
    tasks = [(speed, name) for speed in SPEEDS for name in (ORDERS if speed == SPEEDS[0] else FEW)]
    idle = idle_times(jobs)
    found = each(partial(one_run, jobs, idle), tasks, options.workers)
    results: dict[str, dict[str, Any]] = {f"{speed}": {} for speed in SPEEDS}
    for (speed, name), result in zip(tasks, found, strict=True):
        results[f"{speed}"][name] = result
    return source | {"clock": str(CLOCK), "budget": BUDGET, "seqs": SEQS, "speeds": results}


def idle_times(jobs: list[Job]) -> list[float]:
    """What each would take alone: the denominator of the slowdown."""
    return [alone(job.prompt, job.answer, CLOCK, BUDGET) for job in jobs]


def one_run(jobs: list[Job], idle: list[float], task: tuple[float, str]) -> dict[str, Any]:
    speed, name = task
    knobs = dict(ORDERS[name])
    knobs["policy"] = policy = own_policy(knobs["policy"])
    started: list[Request] = []

    def watch(step: Step, _: Scheduler) -> None:
        started.extend(c.request for c in step.plan if c.start == 0)
        if isinstance(policy, MaxWait):
            policy.now = step.start_s + step.seconds

    run = simulate(
        sped_up(jobs, speed), CLOCK, max_num_batched_tokens=BUDGET, max_num_seqs=SEQS, on_step=watch, **knobs
    )
    first = [ttft(request) for request in run.requests]
    latest, allowed = overtaking(started, knobs.get("aging_tokens_per_s"))
    s: Spread = spread(first)
    return {
        "mean": s.mean, "p50": s.p50, "p95": s.p95, "p99": s.p99, "max": s.max, "n": s.n,
        "tail": [sorted(first, reverse=True)[max(0, len(first) // share - 1)] for share in TAIL] + [s.max],
        "jain": jain([e2e(r) / least for r, least in zip(run.requests, idle, strict=True)]),
        "tokens_per_s": sum(r.num_output_tokens for r in run.requests) / run.end_s,
        "end_s": run.end_s, "steps": run.steps, "overtaken_s": latest, "bound_s": allowed,
    }  # fmt: skip


def overtaking(started: list[Request], aging: float | None) -> tuple[float, float | None]:
    """How much later than its victim the latest overtaker came, in seconds, and what aging allows for that pair."""
    ahead: Request | None = None  # of those who started so far, the one who came last
    worst, allowed = 0.0, None
    for request in started:
        if ahead is not None and ahead.arrival_s - request.arrival_s > worst:
            worst = ahead.arrival_s - request.arrival_s
            sizes = request.num_prompt_tokens, ahead.num_prompt_tokens
            allowed = latest_overtaker(sizes[0], 0.0, sizes[1], aging) if aging else None
        if ahead is None or request.arrival_s > ahead.arrival_s:
            ahead = request
    return worst, allowed


def tables(data: Mapping[str, Any]) -> list[Table]:
    heads = ["order", "mean", "p50", "p95", "p99", "max", "fairness", "tokens/s", "overtaken by", "at most"]
    found = []
    for speed, results in data["speeds"].items():
        rows = [
            [
                name, *(f"{r[key]:.2f}" for key in ("mean", "p50", "p95", "p99", "max")), f"{r['jain']:.3f}",
                f"{r['tokens_per_s']:,.0f}", f"{r['overtaken_s']:.1f} s",
                "" if r["bound_s"] is None else f"{r['bound_s']:.1f} s",
            ]
            for name, r in results.items()
        ]  # fmt: skip
        n = next(iter(results.values()))["n"]
        title = (
            f"TTFT in seconds, n = {n:,}, {speed} times the trace's speed ({data['source']}); "
            "fairness: Jain's index of the slowdowns"
        )
        found.append(Table(title, heads, rows))
    return found


def pictures(data: Mapping[str, Any]) -> dict[str, Picture]:
    from minicb.course.draw import draw_lines

    speed, results = next(iter(data["speeds"].items()))
    n = results["fcfs"]["n"]
    shares = [*TAIL, n]
    names = {"fcfs": "first come", SHORTEST: "shortest first", "sjf_aging 200/s": "aging 200/s", "hrrn": "ratio (hrrn)"}
    series = {shown: (shares, results[name]["tail"]) for name, shown in names.items()}
    old, new = results["fcfs"], results[SHORTEST]
    line = (
        f"{n:,} requests, {speed}x: first come p95 {old['p95']:.1f} s, max {old['max']:.1f} s; "
        f"shortest first p95 {new['p95']:.1f} s, max {new['max']:.1f} s"
    )
    look = {
        "x_label": "one request in so many waits at least so long",
        "y_label": "TTFT, seconds",
        "log_x": True,
        "log_y": True,
    }
    tail = draw_lines(series, title="Who waits, by the order of the queue", data=line, **look)  # type: ignore[arg-type]
    swept = {
        key: (AGINGS, [results[f"sjf_aging {a:g}/s"][key] for a in AGINGS]) for key in ("mean", "p95", "p99", "max")
    }
    ends = "; ".join(f"{key}: {new[key]:.1f} to {old[key]:.1f} s" for key in swept)
    look |= {"x_label": "aging, tokens a second", "data": f"from shortest first to first come: {ends}"}
    return {"tail": tail, "frontier": draw_lines(swept, title="Aging, from little to much", **look)}  # type: ignore[arg-type]
