"""Who runs in the next step, and what becomes of them. Plain Python: no tensors, no text, no clock. (Chapter 7)

One token budget a step. Running requests come first, so that nobody's stream stalls behind somebody's prompt;
then waiting ones in the policy's order, their prompts cut to what is left of the budget. A finished request leaves
at once and its place is filled in the next plan. Three limits: tokens a step, requests at a time, cache pages.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence

from minicb.batch import Chunk, Plan, next_tokens
from minicb.cache import DUMMY_PAGE, Pool
from minicb.policy import Policy, make_policy
from minicb.request import Request, Status
from minicb.sampling import Sampled, check_number
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
    """Share the budget among the running requests, in their order: each gets what it needs,
    but never so much that one behind it gets nothing.

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


STEP_ORDERS = ("stall_free", "prefill_first")


class Scheduler:
    """The queues and the limits.

    max_num_batched_tokens, max_num_seqs: tokens in a step and requests at a time, at most
    policy: who is next among the waiting, by name (see `policy.py`), or a `Policy` of your own
    aging_tokens_per_s: of `sjf_aging`; low is nearly shortest-first, high is nearly first come, first served
    client_weights: of `vtc`, by the client's name; 1 where none is given
    step_order: stall_free (running requests first) or prefill_first (prompts first, streams get what is left)
    enable_chunked_prefill: False: a prompt waits for a step that holds all of it; only one above the budget is cut
    long_prefill_token_threshold: tokens of one request in a step, at most; 0: no such limit
    backfill: so many may go before a request that is next and finds no room, in all; 0: none
    """

    def __init__(
        self,
        pool: Pool,
        *,
        max_num_batched_tokens: int,
        max_num_seqs: int,
        policy: str | Policy = "fcfs",
        aging_tokens_per_s: float = 200.0,
        client_weights: Mapping[str, float] | None = None,
        step_order: str = "stall_free",
        enable_chunked_prefill: bool = True,
        long_prefill_token_threshold: int = 0,
        backfill: int = 0,
    ) -> None:
        check_number("max_num_batched_tokens", max_num_batched_tokens, 1, math.inf, whole=True)
        check_number("max_num_seqs", max_num_seqs, 1, math.inf, whole=True)
        check_number("aging_tokens_per_s", aging_tokens_per_s, 0, math.inf)
        check_number("long_prefill_token_threshold", long_prefill_token_threshold, 0, math.inf, whole=True)
        check_number("backfill", backfill, 0, math.inf, whole=True)
        weights = client_weights or {}
        for client, weight in weights.items():
            check_number(f"the client weight of {client!r}", weight, 0, math.inf, above=True)
        if step_order not in STEP_ORDERS:
            raise ValueError(f"step_order must be one of {', '.join(STEP_ORDERS)}, not {step_order!r}")
        if long_prefill_token_threshold and not enable_chunked_prefill:
            raise ValueError("long_prefill_token_threshold cuts prompts, and enable_chunked_prefill is off: choose one")
        self.pool, self.max_num_batched_tokens = pool, max_num_batched_tokens
        self.max_num_seqs = min(max_num_seqs, max_num_batched_tokens)  # everybody who runs gets a token a step
        self.waiting = make_policy(policy, aging_tokens_per_s, weights) if isinstance(policy, str) else policy
        self.running: list[Request] = []
        self.step_order, self.chunked, self.backfill = step_order, enable_chunked_prefill, backfill
        self.longest_chunk = long_prefill_token_threshold or sys.maxsize
        self.num_added = 0

    @property
    def num_unfinished(self) -> int:
        return sum(not r.finished for r in self.running) + len(self.waiting)

    def add(self, request: Request) -> None:
        request.number, self.num_added = self.num_added, self.num_added + 1
        self.waiting.add(request)

    def abort(self, request: Request, now: float) -> None:
        """End a request in whatever state it is. Its pages are free from here on."""
        if request.status is Status.WAITING:
            self.waiting.remove(request)
        request.finish("abort", now)
        self.sweep()

    def sweep(self) -> None:
        """Let go of the finished ones. Safe to repeat, so an interrupted step leaves nothing behind."""
        gone = [r for r in self.running if r.status is Status.FINISHED]
        for request in gone:
            self.pool.release(request.request_id)
        if gone:
            self.running = [r for r in self.running if r.status is not Status.FINISHED]

    def clear(self) -> None:
        """Forget everybody; their pages are free."""
        for request in self.running:
            self.pool.release(request.request_id)
        self.running = []
        self.waiting.clear()

    def schedule(self, now: float) -> Plan:
        """The next plan; empty if there is nothing to do. Waiting requests that join it are running from here on."""
        self.sweep()
        first, last = self.running, list[Request]()
        if self.step_order == "prefill_first":
            first = [r for r in self.running if r.num_computed_tokens < r.num_prompt_tokens]
            last = [r for r in self.running if r.num_computed_tokens >= r.num_prompt_tokens]
        budget = self.max_num_batched_tokens
        counts = plan_running([min(r.num_uncomputed_tokens, self.longest_chunk) for r in first], budget)
        chunks = [next_tokens(request, count) for request, count in zip(first, counts, strict=True)]
        chunks += self.join(budget - sum(counts), now)
        left = budget - sum(chunk.num_new for chunk in chunks) if last else 0
        chunks += [next_tokens(request, 1) for request in last[:left]]
        return Plan(tuple(chunks))

    def join(self, budget: int, now: float) -> list[Chunk]:
        """Waiting requests that start in this step, in the policy's order, cut to what is left of the budget."""
        chunks, blocked = list[Chunk](), list[Request]()
        while self.waiting and may_join(len(self.running), self.max_num_seqs, budget) and self.may_pass(blocked):
            request = self.waiting.pop()
            if not self.reserve(request, budget):
                blocked.append(request)
                continue
            for other in blocked:
                other.times_passed += 1
            self.waiting.started(request)
            self.running.append(request)
            request.status = Status.RUNNING
            if request.first_scheduled_s is None:
                request.first_scheduled_s = now
            chunks.append(next_tokens(request, min(budget, self.longest_chunk)))
            budget -= chunks[-1].num_new
        for request in reversed(blocked):
            self.waiting.put_back(request)
        return chunks

    def may_pass(self, blocked: Sequence[Request]) -> bool:
        """May one more be tried, although these were next and found no room? Without backfill nobody overtakes."""
        return len(blocked) <= self.backfill and all(r.times_passed < self.backfill for r in blocked)

    def reserve(self, request: Request, budget: int) -> bool:
        """Its pages, if it can start now."""
        fits = self.chunked or budget >= min(request.num_uncomputed_tokens, self.max_num_batched_tokens)
        return fits and self.pool.reserve(request.request_id, request.max_total_tokens)

    def commit(self, plan: Plan, sampled: Sequence[Sampled | Exception], now: float) -> list[News]:
        """Take the step's results: append tokens, advance, end whoever is done.

        sampled: one for each request of `plan.sampled`, in that order
        """
        self.waiting.computed(plan.num_tokens, plan.sampled)
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
