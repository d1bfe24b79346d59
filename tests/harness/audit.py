"""What must hold before, inside and after every step, whatever the requests say.

The auditor looks at the engine from three sides: the queues before the step, the `Batch` as the model gets it, and
the record and events after it. It also poisons: before every step, every cache slot that holds no computed token of a
running request is NaN, so whoever reads it learns it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from minicb.batch import Batch
from minicb.engine import Engine, Event
from minicb.metrics import StepRecord
from tests.harness.case import Case


class Auditor:
    """Audits one engine. Its methods raise AssertionError."""

    def __init__(self, engine: Engine, case: Case) -> None:
        self.engine, self.budget = engine, case.max_num_batched_tokens
        self.max_num_seqs = min(case.max_num_seqs, self.budget)
        self.in_order = case.policy == "fcfs"
        self.streams_first = case.step_order == "stall_free"
        self.any_chunk = case.chunked and not case.threshold  # a prompt takes whatever the budget has left
        self.computed: dict[str, int] = {}
        self.running: list[str] = []
        self.waiting: list[str] = []
        self.arrived: list[str] = []  # since the last record
        self.aborted: list[str] = []

    def before_step(self) -> None:
        """Poison what must not be read, and remember who is where."""
        engine = self.engine
        self.check_state()
        self.check_order([r.request_id for r in engine.scheduler.running])
        self.waiting = [r.request_id for r in engine.scheduler.waiting]
        self.computed = {name: r.num_computed_tokens for name, r in engine.requests.items()}
        clean = torch.zeros(engine.cache.num_pages * engine.cache.page_size, dtype=torch.bool)
        for name, pages in engine.pool.owners().items():
            places = torch.arange(self.computed[name])
            table = torch.tensor(pages)
            clean[table[places // engine.pool.page_size] * engine.pool.page_size + places % engine.pool.page_size] = (
                True
            )
        for layer in (*engine.cache.k, *engine.cache.v):
            layer[~clean] = torch.nan

    def check_order(self, running: list[str]) -> None:
        """Whoever ran before keeps the place; whoever joined since stands behind, in order of arrival under fcfs."""
        old = [name for name in self.running if name in running]
        new = running[len(old) :]
        assert running[: len(old)] == old, f"now run {running}, before {self.running}"
        order = [name for name in self.waiting if name in new]
        assert new == order if self.in_order else set(new) == set(order), f"now run {running}, waited {self.waiting}"
        self.running = running

    def check_state(self) -> None:
        """The engine's own audit, and that nobody has moved backwards."""
        engine = self.engine
        engine.check()
        pages = [page for own in engine.pool.owners().values() for page in own]
        assert len(pages) == len(set(pages)), "two requests own one page"
        assert all(1 <= page < engine.cache.num_pages for page in pages), "a page outside the cache, or the dummy"
        assert len(pages) + engine.pool.free_pages == engine.pool.num_pages, "free + used is not the total"
        assert len(engine.scheduler.running) <= self.max_num_seqs, "more run than may"
        for name, request in engine.requests.items():
            assert request.num_computed_tokens >= self.computed.get(name, 0), f"{name} has lost computed tokens"
        self.computed = {name: r.num_computed_tokens for name, r in engine.requests.items()}

    def check_batch(self, batch: Batch) -> None:
        """The step as the model sees it: shapes, borders, positions, slots."""
        starts, context = batch.q_start.tolist(), batch.kv_len.tolist()
        positions, slots = batch.positions.tolist(), batch.slots.tolist()
        counts = [b - a for a, b in pairwise(starts)]
        assert starts[0] == 0
        assert all(n >= 1 for n in counts), f"somebody runs without a token: {counts}"
        assert starts[-1] == len(positions) == len(slots) == len(batch.tokens)
        assert starts[-1] <= self.budget, f"{starts[-1]} tokens in a step, the budget is {self.budget}"
        assert len(counts) <= self.max_num_seqs, "more run than may"
        assert len(set(slots)) == len(slots), "two tokens are written to one slot"
        assert batch.max_new >= max(counts)
        assert batch.max_kv >= max(context)
        assert set(batch.sample_at.tolist()) <= {end - 1 for end in starts[1:]}, "a row inside a chunk is sampled"
        tables = list(self.engine.pool.owners().values())
        size = self.engine.pool.page_size
        for i, (begin, n, end) in enumerate(zip(starts, counts, context, strict=False)):
            assert positions[begin : begin + n] == list(range(end - n, end)), "positions are not the next ones"
            pages = batch.page_table[i, : -(-end // size)].tolist()
            assert any(own[: len(pages)] == pages for own in tables), "a page table that nobody owns"
            assert slots[begin : begin + n] == slots_of(pages, size, end)[-n:], "tokens are written elsewhere"

    def check_record(self, record: StepRecord, gone: set[str]) -> None:
        """Running first and all of them, in order; then the waiting in the policy's; no idle budget."""
        names = [entry.request_id for entry in record.entries]
        running = [name for name in self.running if name in names]
        if self.streams_first:
            assert names[: len(running)] == running, f"running first: {names}, ran before: {self.running}"
            assert set(self.running) - gone <= set(names), "somebody who runs got no token in this step"
        joined = [name for name in names if name not in running]
        first = self.waiting[: len(joined)] if self.in_order else [name for name in joined if name in self.waiting]
        assert joined == first, f"joined {joined}, waited {self.waiting}"
        used = sum(entry.num_new for entry in record.entries)
        assert used == record.token_slots <= self.budget
        for entry in record.entries:
            assert entry.num_new >= 1
            assert entry.num_computed == self.computed.get(entry.request_id, 0), "a chunk begins elsewhere"
        if not self.any_chunk:
            return
        idle = used < self.budget and len(names) < min(self.max_num_seqs, self.engine.pool.num_pages)
        assert not idle or len(joined) == len(self.waiting), "somebody waits though there is room"
        assert used == self.budget or all(entry.sampled for entry in record.entries), (
            "a chunk ends before the budget does"
        )

    def check_news(self, record: StepRecord) -> None:
        """The trace tells of each arrival and each abort once, in the first step after it."""
        assert list(record.arrived) == self.arrived, (record.arrived, self.arrived)
        aborts = [name for name, why in record.finished if why == "abort"]
        assert aborts == self.aborted, (record.finished, self.aborted)
        self.arrived, self.aborted = [], []

    def check_events(self, record: StepRecord, events: Sequence[Event], gone: set[str]) -> None:
        """Whoever was sampled gets exactly one event, everybody else none; `finished` tells of each end."""
        sampled = [entry.request_id for entry in record.entries if entry.sampled and entry.request_id not in gone]
        assert [event.request_id for event in events] == sampled, f"{events} for the sampled {sampled}"
        ends = [(event.request_id, event.finish_reason) for event in events if event.finish_reason]
        told = [(name, why) for name, why in record.finished if why != "abort"]
        assert told == ends, f"ended {ends}, the trace tells of {told}"


def slots_of(pages: Sequence[int], page_size: int, num_tokens: int) -> list[int]:
    """Where a request's tokens lie, from the first on."""
    return [page * page_size + i for page in pages for i in range(page_size)][:num_tokens]
