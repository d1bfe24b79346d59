"""Runs one case against an engine, step by step, and holds everything that happens against the oracle.

Time is a counter, so a run is the same every time.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from minicb.batch import Batch
from minicb.cache import bytes_per_token
from minicb.engine import Engine, EngineDeadError, Event
from minicb.metrics import StepRecord
from minicb.outputs import RequestOutput
from minicb.request import RefusedError
from minicb.sampling import SamplingParams
from tests.harness.audit import Auditor
from tests.harness.build import build_model, make_promise
from tests.harness.case import Case, RequestSpec
from tests.harness.faults import Breaker, InjectedFault, InjectedInterrupt
from tests.harness.oracle import verify

Tally = Counter[str]


@dataclass(slots=True)
class Log:
    """What happened to one request."""

    spec: RequestSpec
    name: str
    seed: int
    events: list[Event] = field(default_factory=list)
    output: RequestOutput | None = None
    force: str | None = None  # who ended it, if it did not end by itself

    @property
    def num_tokens(self) -> int:
        return sum(event.token_id is not None for event in self.events)


class Watched:
    """The model, with an auditor in front of it, and faults and aborts while it runs."""

    def __init__(self, model: Any, driver: Driver) -> None:
        self.model, self.driver = model, driver
        self.config, self.device, self.dtype = model.config, model.device, model.dtype

    def __call__(self, batch: Batch, cache: Any, attention: Any) -> Tensor:
        self.driver.auditor.check_batch(batch)
        self.driver.breaker.strike(self.driver.step_number, "model")
        hidden = self.model(batch, cache, attention)
        self.driver.breaker.strike(self.driver.step_number, "model", late=True)
        self.driver.abort_due("during")
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        return self.model.logits(hidden)


class Driver:
    """One run; AssertionError if anything is not as it has to be.

    `step_number` counts the driver's steps, whatever the engine makes of them.
    """

    def __init__(self, case: Case) -> None:
        self.case, self.tally = case, Tally(seeds=1)
        model, self.logits_of = build_model(case)
        c = model.config
        slot = bytes_per_token(c.num_layers, c.num_kv_heads, c.head_dim, model.dtype.itemsize) * case.max_model_len
        self.engine = Engine(
            Watched(model, self), case.model.words,  # type: ignore[arg-type]  # all that an engine asks of a model
            max_num_batched_tokens=case.max_num_batched_tokens, max_num_seqs=case.max_num_seqs, policy=case.policy,
            step_order=case.step_order, enable_chunked_prefill=case.chunked, aging_tokens_per_s=1.0,
            long_prefill_token_threshold=case.threshold,
            max_model_len=case.max_model_len, kv_cache_memory_bytes=slot * (case.slots + 1),
            attention=case.attention, clock=itertools.count().__next__, on_step=self.on_step, seed=case.seed,
            deliver=self.catch if case.deliver else None,
        )  # fmt: skip
        self.auditor = Auditor(self.engine, case)
        self.records: list[StepRecord] = []
        self.pending: list[tuple[StepRecord, set[str]]] = []  # steps whose events have not come out yet
        self.inbox: list[Event] = []  # what the engine delivered where it happened
        self.held: list[Event] = []  # last events of aborted requests that have others on their way
        self.breaker = Breaker(case.faults)
        self.coming = sorted(case.requests, key=lambda spec: spec.arrives)
        self.logs: list[Log] = []
        self.active: dict[str, Log] = {}
        self.gone: set[str] = set()  # aborted while the step ran
        self.step_number = 0

    def run(self) -> Tally:
        most = 64 + max((r.arrives for r in self.coming), default=0) + self.case.max_model_len * len(self.coming)
        while self.coming or self.engine.has_unfinished_requests:
            assert self.step_number < most, "it does not end"
            self.arrive()
            if self.case.refusals and self.step_number % 5 == 0:
                self.try_refusals()
            self.abort_due("before")
            self.step()
            self.step_number += 1
        self.auditor.check_state()
        last = self.engine.step()
        assert last == [], "an idle engine has nothing to say"
        self.deliver(last)  # what a failed callback left to be checked
        assert self.engine.pool.free_pages == self.engine.pool.num_pages, "an idle engine holds pages"
        assert not self.pending
        assert not self.active
        for log in self.logs:
            assert log.output is not None, f"{log.name} never ended"
            promise = make_promise(self.case, log.spec, log.seed, self.logits_of)
            verify(promise, log.output, log.events, force=log.force)
            self.tally[log.output.finish_reason] += 1
            if log.output.finish_reason == "error" and log.force is None:
                unwritten = log.output.token_ids[-1:] == (self.case.model.bad_id,)
                self.tally["decoder faults" if unwritten else "sampler faults"] += 1
            self.tally["tokens"] += len(log.output.token_ids)
        return self.tally

    def arrive(self) -> None:
        """Add whoever is due; a name that is in use is refused, and its request comes again."""
        for spec in [s for s in self.coming if s.arrives <= self.step_number]:
            if spec.name in self.active and spec.name not in self.engine.requests:
                continue  # it has ended, but its last event is still on its way
            try:
                name = self.engine.add_request(spec.prompt, SamplingParams(**spec.params), spec.name)
            except RefusedError:
                assert spec.name in self.active, f"{spec} was refused"
                self.tally["refused"] += 1
                continue
            assert name not in self.active, f"{name} is in use and was given away"
            self.coming.remove(spec)
            log = self.active[name] = Log(spec, name, self.engine.requests[name].seed)
            self.logs.append(log)
            self.auditor.arrived.append(name)
            self.tally["requests"] += 1

    def try_refusals(self) -> None:
        """What can never run is refused at the door, and nobody notices."""
        room, vocab = self.case.max_model_len, self.case.model.vocab_size
        before = list(self.engine.requests)
        for prompt, params in (
            ([], {}), ([0] * room, {}), ([0], {"max_tokens": room}), ([vocab], {"max_tokens": 1}),
            ([-1], {"max_tokens": 1}), ([0], {"max_tokens": None, "min_tokens": room}),
            ([0], {"max_tokens": 1, "stop_token_ids": [vocab]}), ([0], {"max_tokens": 1, "top_k": vocab + 1}),
        ):  # fmt: skip
            try:
                self.engine.add_request(prompt, SamplingParams(**params))
            except RefusedError:
                self.tally["refused"] += 1
            else:
                raise AssertionError(f"{prompt} with {params} was let in")
        assert list(self.engine.requests) == before

    def step(self) -> None:
        """One step of the engine, with whatever is planned to break in it."""
        self.auditor.before_step()
        self.gone = set()
        try:
            events = self.engine.step()
        except InjectedInterrupt:
            self.tally["interrupts"] += 1
        except InjectedFault:
            if self.engine.failure is not None:
                self.recover()
            else:
                self.tally["callback faults"] += 1
                if self.case.deliver:  # else they come out of the next step
                    self.deliver([])
        else:
            self.deliver(events)
        self.auditor.check_state()

    def deliver(self, events: list[Event]) -> None:
        """Hand events to their requests; those of several steps come together after a fault of a callback."""
        events, self.inbox = [*self.inbox, *events], []
        rest = list(events)
        for record, gone in self.pending:
            count = sum(entry.sampled and entry.request_id not in gone for entry in record.entries)
            self.auditor.check_events(record, rest[:count], gone)
            rest = rest[count:]
        assert not rest or self.engine.failure, f"events of nobody: {rest}"
        assert all(event.finish_reason == "error" for event in rest), rest
        self.pending, late, self.held = [], self.held, []
        for event in (*events, *late):
            self.take(event)
        for name, log in list(self.active.items()):
            if log.spec.abort_tokens is not None and log.num_tokens >= log.spec.abort_tokens and log.events:
                self.abort(name)

    def catch(self, event: Event) -> bool:
        self.inbox.append(event)
        return True

    def take(self, event: Event) -> None:
        log = self.active[event.request_id]
        log.events.append(event)
        if event.output is not None:
            log.output = event.output
            del self.active[event.request_id]

    def on_step(self, record: StepRecord) -> None:
        self.records.append(record)
        self.tally["steps"] += 1
        self.auditor.check_record(record, self.gone)
        self.auditor.check_news(record)
        self.pending.append((record, self.gone))
        self.abort_due("callback")
        self.breaker.strike(self.step_number, "callback")

    def abort_due(self, when: str) -> None:
        """Abort whom this step names; asking again, or for a stranger, changes nothing."""
        for log in list(self.active.values()):
            if log.spec.abort_step == self.step_number and log.spec.abort_when == when:
                self.abort(log.name)
                if when == "during":
                    self.gone.add(log.name)

    def abort(self, name: str) -> None:
        request = self.engine.requests.get(name)
        event = self.engine.abort_request(name)
        if request is None:  # it has ended in this step, and its last event is on its way
            assert event is None, "aborted after its end"
            self.tally["aborts too late"] += 1
            return
        assert event is not None
        log = self.active[name]
        log.force = "abort"
        self.auditor.aborted.append(name)
        self.tally[f"aborts {self.state(log, request.num_computed_tokens)}"] += 1
        self.tally["aborts"] += 1
        if self.pending:
            self.held.append(event)
        else:
            self.take(event)
        assert self.engine.abort_request(name) is None
        assert self.engine.abort_request("nobody") is None

    def state(self, log: Log, num_computed: int) -> str:
        if log.num_tokens:
            return "while it writes"
        return "in its prompt" if num_computed or log.name in self.auditor.running else "while it waits"

    def recover(self) -> None:
        """The loop has failed: everybody has ended with the cause, nothing runs until the reset, then all is well."""
        self.tally["model faults"] += 1
        assert set(self.engine.lost) >= set(self.engine.requests), "a fault of the loop ends everybody"
        for call in (self.engine.step, lambda: self.engine.add_request([0])):
            try:
                call()
            except EngineDeadError as error:
                cause = error.__cause__
            else:
                cause = None
            assert isinstance(cause, InjectedFault), "a failed engine goes on"
        events = self.engine.collect()
        last = [e for e in (*self.inbox, *events) if e.finish_reason == "error" and e.token_id is None]
        for event in last:
            log = self.active[event.request_id]
            log.force = log.force or "error"
        self.deliver(events)
        assert not self.active, "a fault of the loop ends everybody"
        self.engine.reset()
        self.auditor.arrived, self.auditor.aborted = [], []
