"""The engine's own scheduler in simulated time: no model, no tensors, hours of traffic in seconds.

Requests, scheduler, policies and pool are those that the engine runs; only the step is replaced by a clock that says
how long it would have taken. The same jobs, clock and knobs give the same log, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any

from minicb.batch import Plan
from minicb.bench.arrivals import Job
from minicb.bench.steptime import Clock, load_of_plan
from minicb.request import Request
from minicb.sampling import Sampled, SamplingParams
from minicb.scheduler import Scheduler
from minicb.stopping import StopChecker

TOKEN = Sampled(0)  # what everybody writes


class TokenPool:
    """A cache of small pages that belong to whoever reserved them, until they are released."""

    def __init__(self, num_tokens: int, page_size: int = 16) -> None:
        self.page_size, self.num_pages = page_size, num_tokens // page_size
        self.free = list(range(self.num_pages, 0, -1))  # page 0 is the dummy
        self.owned: dict[str, list[int]] = {}

    @property
    def max_request_tokens(self) -> int:
        return self.num_pages * self.page_size

    @property
    def free_pages(self) -> int:
        return len(self.free)

    def reserve(self, request_id: str, num_tokens: int) -> bool:
        own = self.owned.get(request_id, [])
        missing = -(-num_tokens // self.page_size) - len(own)
        if missing > len(self.free):
            return False
        self.owned[request_id] = own + [self.free.pop() for _ in range(missing)]
        return True

    def release(self, request_id: str) -> None:
        self.free += reversed(self.owned.pop(request_id, []))

    def pages(self, request_id: str) -> list[int]:
        return self.owned[request_id]

    def owners(self) -> dict[str, list[int]]:
        return self.owned


class Mute(StopChecker):
    """Nobody reads these answers."""

    def push(self, token_id: int, *, armed: bool = True) -> None:  # noqa: ARG002
        return None

    def release(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Step:
    """One simulated step."""

    start_s: float
    seconds: float
    plan: Plan

    def __str__(self) -> str:
        parts = " ".join(f"{c.request.request_id}+{c.num_new}{'*' if c.samples else ''}" for c in self.plan)
        return f"{self.start_s!r} {self.seconds!r} {parts}"


@dataclass(slots=True)
class Simulation:
    """What happened. Requests in the order of the jobs; each knows its times."""

    requests: list[Request]
    steps: int = 0
    end_s: float = 0.0
    tokens: int = 0  # computed
    log: list[str] = field(default_factory=list)  # a line a step, if asked for


def open_job(job: Job, name: str, now: float) -> Request:
    params = SamplingParams(max_tokens=job.answer, ignore_eos=True, priority=job.priority, client=job.client)
    return Request(
        request_id=name, tokens=[0] * job.prompt, num_prompt_tokens=job.prompt, params=params, seed=0,
        ending_ids=frozenset(), checker=Mute(str), max_total_tokens=job.prompt + job.answer, arrival_s=now,
    )  # fmt: skip


def simulate(
    jobs: Sequence[Job],
    clock: Clock,
    *,
    cache_tokens: int = 400_000,
    users: int | None = None,
    think_s: float = 0.0,
    until_s: float | None = None,
    log: bool = False,
    on_step: Callable[[Step, Scheduler], None] | None = None,
    **knobs: Any,
) -> Simulation:
    """Run the jobs to their end, or to `until_s`.

    users: None: each job arrives at its own time (open loop). A number: so many users send one job after the other,
        `think_s` after the last answer (closed loop); the jobs' own times are not read.
    on_step: called after each step   knobs: those of `Scheduler`
    """
    scheduler = Scheduler(TokenPool(cache_tokens), **knobs)
    too_long = [i for i, job in enumerate(jobs) if job.prompt + job.answer > scheduler.pool.max_request_tokens]
    if too_long:
        raise ValueError(f"job {too_long[0]} would never fit into a cache of {cache_tokens} tokens: raise cache_tokens")
    first = len(jobs) if users is None else min(users, len(jobs))
    coming = [(jobs[i].at_s if users is None else 0.0, i) for i in range(first)]
    heapify(coming)
    following = iter(range(first, len(jobs)))
    requests: dict[int, Request] = {}
    now, run = 0.0, Simulation([])
    while (coming or scheduler.waiting or scheduler.running) and (until_s is None or now < until_s):
        while coming and coming[0][0] <= now:
            at, i = heappop(coming)
            requests[i] = open_job(jobs[i], str(i), at)
            scheduler.add(requests[i])
        plan = scheduler.schedule(now)
        if not plan:
            now = coming[0][0]
            continue
        load = load_of_plan(plan)
        seconds = clock.step_time(load)
        step, now = Step(now, seconds, plan), now + seconds
        if log:
            run.log.append(str(step))
        scheduler.commit(plan, [TOKEN] * load.sampled, now)
        run.steps, run.tokens = run.steps + 1, run.tokens + load.tokens
        if users is not None:
            for request in plan.sampled:
                if request.finished and (i := next(following, -1)) >= 0:
                    heappush(coming, (now + think_s, i))
        if on_step:
            on_step(step, scheduler)
    run.end_s, run.requests = now, [requests[i] for i in sorted(requests)]
    return run
