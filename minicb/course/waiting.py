"""Who waits: rushes in simulated time, and small crowds on the tiny engine. (Chapter 9)

    jobs = rush()
    table({"in order": wait(jobs, "fcfs"), "shortest first": wait(jobs, "shortest_prefill_first")})

A rush runs through the engine's own scheduler; only the model is replaced by a clock that says how long a step would
take (`minicb/bench/steptime.py`). So a thousand requests take less than a second, and always give the same numbers.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from minicb import seams
from minicb.bench.arrivals import Job, arrival_times, published_workload
from minicb.bench.latency import Spread, spread, ttft
from minicb.bench.simulate import Step, simulate
from minicb.bench.steptime import LLAMA_2_7B_ON_A10G, LLAMA_3_8B_ON_A100, Clock
from minicb.course.draw import Picture, draw_lines
from minicb.course.serving import Served, crowd, order_of, serve, workload
from minicb.course.spec import MismatchError
from minicb.metrics import choose_policy
from minicb.policy import READ_PRICE, WRITE_PRICE, latest_overtaker
from minicb.request import Request
from minicb.sampling import SamplingParams
from minicb.scheduler import Scheduler

CLOCK: Clock = LLAMA_3_8B_ON_A100
LIMITS: Mapping[str, Any] = {"max_num_batched_tokens": 2_048, "max_num_seqs": 128}
SHARES = (2, 5, 10, 20, 50, 100, 200, 500, 1_000)  # one request in so many


@dataclass(frozen=True, slots=True)
class Waited:
    """A rush that is over."""

    requests: Sequence[Request]  # in the order in which they came
    seconds: float  # until the last answer was complete
    steps: int

    @property
    def first(self) -> list[float]:
        """Each request's time to its first token."""
        return [ttft(request) for request in self.requests]

    @property
    def spread(self) -> Spread:
        return spread(self.first)

    @property
    def tokens_per_s(self) -> float:
        return sum(len(request.tokens) for request in self.requests) / self.seconds

    def queued(self, number: int) -> float:
        """Seconds from the arrival of a request to its first step."""
        return _start(self.requests[number]) - self.requests[number].arrival_s

    @property
    def unluckiest(self) -> int:
        """The number of the request that waited longest."""
        return max(range(len(self.requests)), key=lambda i: ttft(self.requests[i]))


def rush(n: int = 1_000, rate: float = 4.4, seed: int = 0) -> list[Job]:
    """n requests, so many a second at random moments, as long as those that a code assistant gets.

    Lengths are drawn from the quantiles of the Azure LLM inference trace 2023 (code); the arrivals are even (Poisson).
    """
    jobs = published_workload("code", n, seed=seed)
    return [replace(job, at_s=at) for job, at in zip(jobs, arrival_times(n, rate, seed=seed), strict=True)]


def wait(jobs: Sequence[Job], policy: Any = "fcfs", aging: float = 200.0, **knobs: Any) -> Waited:
    """Serve the jobs in this order. policy: a name, or an order of your own; aging: tokens a second"""
    run = simulate(jobs, CLOCK, **{**LIMITS, "policy": policy, "aging_tokens_per_s": aging, **knobs})
    return Waited(run.requests, run.end_s, run.steps)


def table(rows: Mapping[str, Waited]) -> None:
    """Time to first token in seconds: n and the maximum stand beside every percentile."""
    print(f"{'TTFT in seconds':<22}{'n':>6}{'mean':>7}{'p50':>7}{'p95':>7}{'p99':>7}{'max':>7}{'tokens/s':>10}")
    for name, waited in rows.items():
        s = waited.spread
        numbers = "".join(f"{value:>7.1f}" for value in (s.mean, s.p50, s.p95, s.p99, s.max))
        print(f"{name:<22}{s.n:>6,}{numbers}{waited.tokens_per_s:>10,.0f}")


def draw_tails(rows: Mapping[str, Waited], title: str = "Who waits how long") -> Picture:
    """For each order: one request in so many waits at least so long."""
    series = {}
    for name, waited in rows.items():
        longest = sorted(waited.first, reverse=True)
        shares = [share for share in SHARES if share <= len(longest)]
        series[name] = (shares, [longest[len(longest) // share - 1] for share in shares])
    line = "; ".join(f"{name}: p95 {w.spread.p95:.1f}, max {w.spread.max:.1f} s" for name, w in rows.items())
    return draw_lines(
        series, x_label="one request in so many waits at least so long", y_label="TTFT, seconds", log_x=True,
        log_y=True, title=title, data=line,
    )  # fmt: skip


def passed_by(waited: Waited, number: int) -> list[float]:
    """When, in seconds after its arrival, somebody who came later started before this request."""
    mine = waited.requests[number]
    began = _start(mine)
    return sorted(_start(r) - mine.arrival_s for r in waited.requests[number + 1 :] if _start(r) < began)


def draw_passing(rows: Mapping[str, Waited], number: int, title: str = "How many passed it") -> Picture:
    """One request under several orders: while it waits, how many that came later have started."""
    series, lines = {}, []
    for name, waited in rows.items():
        times, total = passed_by(waited, number), waited.queued(number)
        marks = [max(total, 1.0) ** (i / 20) for i in range(21)]  # from 1 s on
        series[name] = (marks, [float(bisect_right(times, mark)) for mark in marks])
        lines.append(f"{name}: waits {total:.1f} s, passed by {len(times)}")
    look = {
        "x_label": "seconds since it came; a line ends when it starts",
        "y_label": "later ones that started before it",
    }
    return draw_lines(series, **look, log_x=True, title=title, data="; ".join(lines))  # type: ignore[arg-type]


def _start(request: Request) -> float:
    assert request.first_scheduled_s is not None
    return request.first_scheduled_s


# ---- one long request against a stream


def stream(seconds: float, rate: float = 20.0, long: int = 4_000, short: int = 500) -> list[Job]:
    """A long prompt comes into a queue of 40 short ones, and for so long there are more short ones than can be read."""
    shorts = [Job(0.0, short, 1)] * 40 + [Job(i / rate, short, 1) for i in range(1, round(rate * seconds))]
    return sorted([*shorts, Job(0.01, long, 1)], key=lambda job: job.at_s)


def long_one(waited: Waited) -> int:
    """The number of the longest prompt."""
    return max(range(len(waited.requests)), key=lambda i: waited.requests[i].num_prompt_tokens)


# ---- promises


def recommend(rows: Mapping[str, Waited], limit_s: float, patience_s: float = math.inf) -> str:
    """The order that keeps a promise best: most within the limit, nobody beyond the patience."""
    return choose_policy({name: waited.first for name, waited in rows.items()}, limit_s, patience_s)


def kept_promises() -> str:
    """A small rush in four orders, and the choice for several promises: the same as the reference's."""
    jobs = rush(120, 5.0)
    rows = {
        "in order": wait(jobs), "shortest first": wait(jobs, "shortest_prefill_first"),
        "aged": wait(jobs, "sjf_aging", 400.0), "highest ratio": wait(jobs, "hrrn"),
    }  # fmt: skip
    promises = [(limit, patience) for limit in (1.0, 3.0, 6.0) for patience in (1.0, 8.0, 12.0, math.inf)]
    with seams.references_only():
        right = [recommend(rows, *promise) for promise in promises]
    for promise, wanted in zip(promises, right, strict=True):
        mine = recommend(rows, *promise)
        if mine != wanted:
            how = f"most within {promise[0]:g} s, nobody beyond {promise[1]:g} s"
            raise MismatchError(f"of four orders of a rush you choose {mine!r} for '{how}', not {wanted!r}.")
    return f"{len(promises)} promises, {len(set(right))} different orders chosen"


# ---- clients


def two_clients(
    policy: str, seconds: float = 120.0, pause: tuple[float, float] | None = None
) -> list[dict[str, float]]:
    """A modest client and a greedy one ask for more than there is; their service, second by second.

    pause: the greedy one is silent from .. to   returns: for each second, tokens read + 2 x tokens written, by client
    """
    modest = [Job(i / 1.5, 256, 256, "modest") for i in range(round(1.5 * seconds))]
    greedy = [Job(i / 3.0, 256, 256, "greedy") for i in range(round(3.0 * seconds))]
    if pause:
        greedy = [job for job in greedy if not pause[0] <= job.at_s < pause[1]]
    service, found = {"modest": 0.0, "greedy": 0.0}, list[dict[str, float]]()

    def count(step: Step, _: Scheduler) -> None:
        for chunk in step.plan:
            read = max(0, min(chunk.end, chunk.request.num_prompt_tokens) - chunk.start)
            service[chunk.request.params.client] += READ_PRICE * read + WRITE_PRICE * chunk.samples
        while len(found) < int(step.start_s + step.seconds):
            found.append(dict(service))

    jobs = sorted([*modest, *greedy], key=lambda job: job.at_s)
    simulate(
        jobs, LLAMA_2_7B_ON_A10G, cache_tokens=10_000, until_s=seconds, on_step=count, policy=policy, **LIMITS
    )  # fmt: skip
    return found


# ---- a crowd on the tiny engine, and the last probes of the checks

AGINGS = (0.25, 1.0, 3.0)


def aged(aging: float, shorts: int = 9) -> Served:
    """The crowd of chapter 07. Time is counted in tokens, so `aging` is in tokens for each computed token."""
    work, arrive = crowd(shorts)
    return serve(work, arrive=arrive, policy="sjf_aging", aging_tokens_per_s=aging)


def arrivals(run: Served) -> dict[str, int]:
    """When each came, in tokens computed before."""
    came, computed = {}, 0
    for record in run.records:
        came.update(dict.fromkeys(record.arrived, computed))
        computed += record.token_slots
    return came


def aged_order() -> str:
    """A crowd under three agings: the same orders as by the reference."""
    for aging in AGINGS:
        same_order(partial(aged, aging), f"with aging {aging:g}")
    return f"a crowd of 11 in the same order, {len(AGINGS)} times"


def same_order(run: Callable[[], Served], how: str) -> list[str]:
    with seams.references_only():
        right = order_of(run().records)
    mine = order_of(run().records)
    if mine != right:
        raise MismatchError(f"the waiting requests start in the order {' '.join(mine)} {how}, not {' '.join(right)}.")
    return right


def bound_is_sharp() -> str:
    """In the crowd exactly those pass that come before the bound; nobody later, and nobody in time is held up."""
    passes = 0
    for aging in AGINGS:
        run = aged(aging)
        came = arrivals(run)
        sizes = {name: len(out.prompt_token_ids) for name, out in run.outputs.items()}
        order = order_of(run.records)
        for other in order:
            if not came["B"] < came[other] < came["B"] + (run.outputs["B"].metrics.queue_s or 0):
                continue
            latest = latest_overtaker(sizes["B"], came["B"], sizes[other], aging)
            before = order.index(other) < order.index("B")
            if before != (came[other] < latest):
                what = "goes before B" if before else "does not go before B"
                raise MismatchError(
                    f"with aging {aging:g} request {other} came at {came[other]:g} and {what}; "
                    f"you say that those pass who come before {latest:g}."
                )
            passes += before
    return f"{passes} overtakings in a crowd, all of them in time"


def clients(rows: int = 1, weights: Mapping[str, float] | None = None, late: int = 0) -> Served:
    """Eight requests of two clients, x and y; y's come from step `late` on."""
    work = workload([8, 8, 8, 8, 4, 4, 4, 4], [4, 4, 4, 4, 2, 2, 2, 2], rows=rows, budget=32, title="two clients")
    owner = {name: "x" if place < 4 else "y" for place, name in enumerate(work.requests)}
    params = {
        name: SamplingParams(max_tokens=length, ignore_eos=True, client=owner[name])
        for name, (_, length) in work.requests.items()
    }
    arrive = {name: late * (owner[name] == "y") for name in work.requests}
    return serve(work, arrive=arrive, params=params, policy="vtc", client_weights=weights or {})


def shares_kept() -> str:
    """Two clients by their counters, with equal weights and with others."""
    order = same_order(clients, "with equal weights")
    same_order(partial(clients, weights={"x": 3.0}), "with a weight of 3 for the first client")
    same_order(partial(clients, weights={"y": 0.25}), "with a weight of a quarter for the second client")
    return f"two clients take turns: {' '.join(order)}"


def no_credit() -> str:
    """One client comes when the other has been served for a while."""
    for late in (4, 9):
        order = same_order(partial(clients, late=late), f"when the second client comes after step {late}")
    same_order(clients, "when both are there from the start")
    return f"a client that comes late takes turns from then on: {' '.join(order)}"
