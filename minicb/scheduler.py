"""Who runs in the next step, and what becomes of them. Plain Python: no tensors, no text, no clock. (Chapter 7)

One token budget a step. Running requests come first, so that nobody's stream stalls behind somebody's prompt;
then waiting ones in their order, their prompts cut to what is left of the budget. A finished request leaves at
once and its place is filled in the next plan. Three limits: tokens a step, requests at a time, cache pages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from minicb.batch import Plan, next_tokens
from minicb.cache import DUMMY_PAGE, Pool
from minicb.request import Request, Status
from minicb.sampling import Sampled
from minicb.seams import seam


@seam("7.1")
def may_join(num_running: int, max_num_seqs: int, budget_left: int) -> bool:
    """May one more waiting request start in this step, as far as the two limits of the step go?

    num_running: requests that run already, those that joined in this step included
    budget_left: tokens of the step's budget that nobody has taken yet
    """
    return num_running < max_num_seqs and budget_left > 0


@seam("7.2")
def plan_running(uncomputed: Sequence[int], budget: int) -> list[int]:
    """Share the budget among the running requests, in their order: each gets what it needs, but never so much
    that one behind it gets nothing.

    uncomputed: uncomputed tokens of each running request, all >= 1; there are at most `budget` of them
    returns: tokens for each, all >= 1, sum <= budget
    """
    counts = []
    for place, wanted in enumerate(uncomputed):
        behind = len(uncomputed) - place - 1
        counts.append(min(wanted, budget - behind))
        budget -= counts[-1]
    return counts


News = tuple[Request, int | None, str]  # a request that got a token or ended; the token (None: it failed); its new text


class Scheduler:
    """The queues and the limits."""

    def __init__(self, pool: Pool, *, max_num_batched_tokens: int, max_num_seqs: int) -> None:
        self.pool = pool
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_num_seqs = min(max_num_seqs, max_num_batched_tokens)  # everybody who runs gets a token a step
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    @property
    def num_unfinished(self) -> int:
        return sum(not r.finished for r in self.running) + len(self.waiting)

    def add(self, request: Request) -> None:
        self.waiting.append(request)

    def abort(self, request: Request, now: float) -> None:
        """End a request in whatever state it is. Its pages are free from here on."""
        if request.status is Status.WAITING:
            self.waiting.remove(request)
        request.finish("abort", now)
        self.sweep()

    def sweep(self) -> None:
        """Let go of the finished ones. Safe to repeat, so an interrupted step leaves nothing behind."""
        for request in self.running:
            if request.finished:
                self.pool.release(request.request_id)
        self.running = [r for r in self.running if not r.finished]

    def clear(self) -> None:
        """Forget everybody; their pages are free."""
        for request in self.running:
            self.pool.release(request.request_id)
        self.running, self.waiting = [], deque()

    def schedule(self, now: float) -> Plan:
        """The next plan; empty if there is nothing to do. Waiting requests that join it are running from here on."""
        self.sweep()
        counts = plan_running([r.num_uncomputed_tokens for r in self.running], self.max_num_batched_tokens)
        chunks = [next_tokens(request, count) for request, count in zip(self.running, counts, strict=True)]
        budget = self.max_num_batched_tokens - sum(counts)
        while self.waiting and may_join(len(self.running), self.max_num_seqs, budget):
            request = self.waiting[0]
            if not self.pool.reserve(request.request_id, request.max_total_tokens):
                break  # in order of arrival: nobody overtakes the one who waits for room
            self.waiting.popleft()
            self.running.append(request)
            request.status = Status.RUNNING
            if request.first_scheduled_s is None:
                request.first_scheduled_s = now
            chunks.append(next_tokens(request, budget))
            budget -= chunks[-1].num_new
        return Plan(tuple(chunks))

    def commit(self, plan: Plan, sampled: Sequence[Sampled | Exception], now: float) -> list[News]:
        """Take the step's results: append tokens, advance, end whoever is done.

        sampled: one for each request of `plan.sampled`, in that order
        """
        results = iter(sampled)
        news: list[News] = []
        for chunk in plan:
            request, result = chunk.request, next(results) if chunk.samples else None
            if request.finished:
                continue  # aborted while the step ran
            request.num_computed_tokens = chunk.end
            if isinstance(result, Exception):
                request.fail(result, now)
                news.append((request, None, ""))
            elif result is not None:
                news.append((request, result.token_id, request.take(result, now)))
        self.sweep()
        return news

    def check(self) -> None:
        """Audit the invariants; AssertionError if one is broken."""
        owners = self.pool.owners()
        held = [page for pages in owners.values() for page in pages]
        assert len(held) == len(set(held)), f"a page has two owners: {owners}"
        assert DUMMY_PAGE not in held, "somebody owns the dummy page"
        assert len(held) + self.pool.free_pages == self.pool.num_pages, "pages were lost"
        assert set(owners) == {r.request_id for r in self.running}, (owners, self.running)
        assert len(self.running) <= self.max_num_seqs, "too many requests run"
        for r in self.running:
            assert r.status is Status.RUNNING, r
            assert 0 <= r.num_computed_tokens < len(r.tokens) <= r.max_total_tokens, r
            assert r.num_computed_tokens <= len(owners[r.request_id]) * self.pool.page_size, r
        assert all(r.status is Status.WAITING and r.num_computed_tokens == 0 for r in self.waiting)
