"""The step: plan, pack, run, sample, commit. Everything else here guards that loop. (Chapter 7)

A bad request is refused at the door and nobody notices. A fault of one request ends that request. A fault of
the loop itself (the model raises) ends every request at once with its cause, and the engine says that it is
unhealthy until `reset`. An interrupt (Ctrl-C, a notebook's stop button) ends nothing: the next step goes on.
Nor does an exception in `on_step`, which comes out of `step` as it is.

The engine knows token ids; text comes from the `decode` function that it is given.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from minicb.batch import Plan
from minicb.cache import KVCache, Pool, SlotPool, free_memory, plan_slots
from minicb.interrupts import uninterrupted
from minicb.kernels import best_attention  # a room beside the core, asked for nothing else
from minicb.metrics import StepRecord, count_cells, make_entry
from minicb.model import Model
from minicb.outputs import Event, RequestOutput, make_output
from minicb.reference import Attention, ReferenceAttention
from minicb.request import Limits, RefusedError, Request, open_request
from minicb.sampling import Sampled, SamplingParams, check_number
from minicb.scheduler import Scheduler
from minicb.seams import begin_receipt, learner_owns
from minicb.step import run_plan
from minicb.stopping import Decode

DEFAULT_MODEL_LEN = 2048  # tokens; more only if asked for, as every slot is as long as the longest request
MEMORY_SHARE = 0.5  # of what is free, for the KV cache, unless kv_cache_memory_bytes says otherwise


class EngineDeadError(RuntimeError):
    """The loop has failed; `engine.failure` holds the cause. `reset()` makes the engine usable again."""


def dead(cause: Exception) -> EngineDeadError:
    """What everybody is told who waits or asks."""
    error = EngineDeadError(f"the engine stopped ({type(cause).__name__}: {cause}): call reset() or make a new one")
    error.__cause__ = cause
    return error


class Engine:
    """Serves requests by continuous batching. One thread at a time may call it.

    max_num_batched_tokens, max_num_seqs, and every knob of scheduling by name: see `Scheduler`
    max_model_len: tokens of one request, prompt and answer; default: the model's own limit, at most 2048
    kv_cache_memory_bytes: size of the KV cache; default: half of the free memory, and never more than max_num_seqs need
    attention: "auto" (the fastest back end that fits; the reference while a learner's attention or masks are in),
        "reference", or a back end of your own
    clock: seconds; injectable, so that a test can replay a run to the byte
    on_step: called with each step's `StepRecord`
    deliver: takes an event where it happens, and says whether it did; what it leaves, `step` returns

    Raises ValueError if not even one request of max_model_len fits into the cache.
    """

    def __init__(
        self,
        model: Model,
        decode: Decode | None = None,
        *,
        max_num_batched_tokens: int = 512,
        max_num_seqs: int = 32,
        max_model_len: int | None = None,
        kv_cache_memory_bytes: int | None = None,
        attention: Attention | str = "auto",
        clock: Callable[[], float] = time.perf_counter,
        on_step: Callable[[StepRecord], None] | None = None,
        deliver: Callable[[Event], bool] | None = None,
        seed: int | None = None,
        **scheduling: Any,
    ) -> None:
        self.model, self.decode, self.clock, self.on_step, self.deliver = model, decode, clock, on_step, deliver
        config, longest = model.config, model.config.max_position_embeddings
        length = min(longest, DEFAULT_MODEL_LEN) if max_model_len is None else max_model_len
        check_number("max_model_len", length, 2, longest, whole=True)
        budget = kv_cache_memory_bytes
        if budget is None:
            budget = int(MEMORY_SHARE * free_memory(model.device))
        check_number("max_num_seqs", max_num_seqs, 1, math.inf, whole=True)
        slots = plan_slots(config, model.dtype, length, max_num_seqs, budget)
        self.pool: Pool = SlotPool(slots, length)
        scheduling |= {"max_num_batched_tokens": max_num_batched_tokens, "max_num_seqs": max_num_seqs}
        self.scheduler = Scheduler(self.pool, **scheduling)
        self.cache = KVCache(config, slots + 1, length, model.device, model.dtype)
        self.limits = Limits(config.vocab_size, length, config.end_ids)
        self.choice, self.reference = attention, ReferenceAttention()
        self.fastest = best_attention(model) if attention == "auto" else self.reference
        if isinstance(attention, str) and attention not in ("auto", "reference"):
            raise ValueError(f"attention must be 'auto', 'reference' or a back end, not {attention!r}")
        self.requests: dict[str, Request] = {}  # the unfinished ones
        self.arrived: list[str] = []  # since the last step
        self.aborted: list[str] = []  # likewise
        self.outbox: list[Event] = []
        self.numbers, self.steps = itertools.count(), 0
        self.seeds = random.Random(seed)
        self.failure: Exception | None = None

    @property
    def attention(self) -> Attention:
        """The back end of the next step."""
        if not isinstance(self.choice, str):
            return self.choice
        return self.reference if learner_owns(1, 2, 3, 4, 6) else self.fastest

    @property
    def has_unfinished_requests(self) -> bool:
        """Is there anything left to compute, or to hand out?"""
        return bool(self.requests or self.outbox)

    def add_request(
        self, prompt: Sequence[int], params: SamplingParams | None = None, request_id: str | None = None
    ) -> str:
        """Queue a prompt of token ids; returns its id. Raises `RefusedError` (a ValueError) if it can never run."""
        self.must_be_healthy()
        if request_id is None:
            request_id = next(name for n in self.numbers if (name := str(n)) not in self.requests)
        if request_id in self.requests:
            raise RefusedError(f"request_id {request_id!r} is in use by a request that is not finished")
        params = SamplingParams() if params is None else params
        seed = self.seeds.getrandbits(63)
        request = open_request(request_id, prompt, params, self.limits, self.decode, seed, self.clock())
        if not self.requests:
            begin_receipt()  # a new generation: whose functions run is counted afresh
        with uninterrupted():
            self.requests[request_id] = request
            self.arrived.append(request_id)
            self.scheduler.add(request)
        return request_id

    def abort_request(self, request_id: str) -> Event | None:
        """End a request now, in whatever state it is. None if it is unknown or ended before: asking twice is fine."""
        request = self.requests.get(request_id)
        if request is None:
            return None
        with uninterrupted():
            self.scheduler.abort(request, self.clock())
            self.aborted.append(request_id)
            return self.farewell(request, None, "")

    @torch.inference_mode()
    def step(self) -> list[Event]:
        """Compute one step for everybody who may run. Returns what happened, in the order of the batch."""
        self.must_be_healthy()
        began = self.clock()
        with self.faults_end_all():
            with uninterrupted():
                plan = self.scheduler.schedule(began)  # who runs, how many tokens each: plain Python
            if not plan:
                return self.collect()
            sampled = run_plan(plan, self.pool, self.model, self.cache, self.attention)  # the model, once for all
        with uninterrupted():
            self.commit(plan, sampled, began)  # advance, finish, free
        return self.collect()

    def commit(self, plan: Plan, sampled: Sequence[Sampled | Exception], began: float) -> None:
        """Take the step's results. Its events are out of the step's hands before anything else can go wrong."""
        with self.faults_end_all():
            now, events = self.clock(), list[Event]()
            for request, token, text in self.scheduler.commit(plan, sampled, now):
                event = Event(request.request_id, token, text)
                events.append(self.farewell(request, token, text) if request.finished else event)
            self.post(events)
            record = self.record(plan, events, (began, now)) if self.on_step else None
            self.steps, self.arrived, self.aborted = self.steps + 1, [], []
        if self.on_step and record:
            self.on_step(record)

    def post(self, events: Sequence[Event]) -> None:
        self.outbox += [event for event in events if self.deliver is None or not self.deliver(event)]

    def collect(self) -> list[Event]:
        """Everything that happened and was not handed out yet."""
        events, self.outbox = self.outbox, []
        return events

    def farewell(self, request: Request, token: int | None, text: str) -> Event:
        """The last event of a request; the engine forgets it."""
        del self.requests[request.request_id]
        if token is None:
            text = request.last_words()
        return Event(request.request_id, token, text, make_output(request))

    @contextmanager
    def faults_end_all(self) -> Iterator[None]:
        """A fault in here is one of the loop: every request ends with its cause, and is told so at once."""
        try:
            yield
        except Exception as error:
            with uninterrupted():
                self.failure = error
                self.scheduler.clear()
                for request in list(self.requests.values()):
                    request.fail(error, self.clock())
                    self.post([replace(self.farewell(request, None, ""), cause=error)])
            raise

    @property
    def lost(self) -> dict[str, RequestOutput]:
        """After a fault of the loop: the output of each request that it ended, until `collect` or `reset`."""
        return {e.request_id: e.output for e in self.outbox if e.output is not None} if self.failure else {}

    def must_be_healthy(self) -> None:
        if self.failure is not None:
            raise dead(self.failure)

    def reset(self) -> None:
        """Drop every request and be healthy again."""
        with uninterrupted():
            self.scheduler.clear()
            self.requests.clear()
            self.arrived, self.aborted, self.outbox, self.failure = [], [], [], None

    def record(self, plan: Plan, events: list[Event], times: tuple[float, float]) -> StepRecord:
        """What this step did, in counts."""
        finished = [(e.request_id, e.finish_reason) for e in events if e.finish_reason]
        computed, visible = zip(*(count_cells(c.start, c.num_new) for c in plan), strict=True)
        return StepRecord(
            step=self.steps,
            entries=tuple(make_entry(c.request, c.start, c.num_new, sampled=c.samples) for c in plan),
            arrived=tuple(self.arrived),
            finished=(*((name, "abort") for name in self.aborted), *finished),
            num_waiting=len(self.scheduler.waiting),
            token_slots=plan.num_tokens,
            useful_slots=plan.num_tokens,
            score_cells=sum(computed),
            useful_cells=sum(visible),
            cache_tokens=sum(r.num_computed_tokens for r in self.scheduler.running),
            cache_capacity=self.pool.num_pages * self.pool.page_size,
            start_s=times[0],
            duration_s=times[1] - times[0],
        )

    def check(self) -> None:
        """Audit the invariants; AssertionError if one is broken. For tests; costs a little per request."""
        self.scheduler.check()
        unfinished = {r.request_id for r in (*self.scheduler.waiting, *self.scheduler.running)}
        assert unfinished == set(self.requests), (unfinished, set(self.requests))
