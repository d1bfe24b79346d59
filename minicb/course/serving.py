"""Requests that come when they like, served on the tiny model, and audited step by step. (Chapter 7)

    six = workload(reads=[6, 3, 4, 12, 3, 5], writes=[3, 9, 2, 5, 7, 3], rows=3, budget=8)
    run = serve(six, arrive={"D": 4})          D comes when four steps are over
    run.answers, run.records, run.outputs

The clock of these engines counts tokens: its time is how many the engine has computed. So a latency is a whole
number, the same on every machine, and identities between latencies hold exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any

from minicb import seams
from minicb.batch import Batch
from minicb.cache import KVCache
from minicb.course.spec import MismatchError
from minicb.course.table import LONGEST, Tokens, Workload, prompt
from minicb.course.tiny import model
from minicb.course.trial import one_thread
from minicb.engine import Engine
from minicb.metrics import StepRecord
from minicb.model import Attend
from minicb.outputs import RequestOutput
from minicb.reference import ReferenceAttention
from minicb.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class Served:
    """What an engine did: a record a step, and an output a request. Seconds in the outputs are tokens computed."""

    records: Sequence[StepRecord]
    outputs: Mapping[str, RequestOutput]

    @property
    def answers(self) -> dict[str, Tokens]:
        return {name: out.token_ids for name, out in self.outputs.items()}


class TokenClock:
    """A back end and a clock in one: the plain attention, and how many tokens it has seen go by."""

    def __init__(self) -> None:
        self.now, self.inner = 0, ReferenceAttention()

    def bind(self, batch: Batch, cache: KVCache) -> Attend:
        self.now += len(batch.tokens)
        return self.inner.bind(batch, cache)

    def __call__(self) -> float:
        return self.now


def workload(reads: Sequence[int], writes: Sequence[int], rows: int, budget: int, title: str = "requests") -> Workload:
    """Requests A, B, C, ... with prompts of these lengths and answers of those."""
    pairs = enumerate(zip(reads, writes, strict=True))
    return Workload(title, {chr(65 + i): (prompt(i, read), write) for i, (read, write) in pairs}, rows, budget)


@one_thread()
def serve(
    work: Workload,
    *,
    arrive: Mapping[str, int] | None = None,
    parts: Mapping[str, Callable[..., Any]] | None = None,
    params: Mapping[str, SamplingParams] | None = None,
    budgets: Sequence[int] = (),
    **options: Any,
) -> Served:
    """Serve the workload by continuous batching.

    arrive: steps that are over when a request comes (default 0); an idle engine does not wait for it
    parts: functions to run instead of the installed ones, by their ids
    budgets: of the steps in turn, over and over, instead of one for all   options: those of `Engine`
    Raises MismatchError if a step runs nobody although somebody waits.
    """
    clock, records, outputs = TokenClock(), list[StepRecord](), dict[str, RequestOutput]()
    engine = Engine(
        model(), attention=clock, clock=clock, max_num_seqs=work.rows, max_num_batched_tokens=work.budget,
        on_step=records.append, **{"max_model_len": LONGEST, "kv_cache_memory_bytes": 1 << 24, **options},
    )  # fmt: skip
    when, own = arrive or {}, params or {}
    coming = sorted(work.requests, key=lambda name: when.get(name, 0))
    with ExitStack() as stack:
        for id, function in (parts or {}).items():
            if getattr(function, "__wrapped__", None) is not seams.SEAMS[id].reference:  # the seam itself is in already
                stack.enter_context(seams.swapped(id, function))
        while coming or engine.has_unfinished_requests:
            while coming and (when.get(coming[0], 0) <= engine.steps or not engine.has_unfinished_requests):
                ids, length = work.requests[coming[0]]
                plain = SamplingParams(max_tokens=length, ignore_eos=True)
                engine.add_request(ids, own.get(coming[0], plain), request_id=coming.pop(0))
            step = engine.steps
            if budgets:
                engine.scheduler.max_num_batched_tokens = budgets[step % len(budgets)]
            for event in engine.step():
                if event.output is not None:
                    outputs[event.request_id] = event.output
            if engine.steps == step:
                raise MismatchError(f"after step {step} nobody runs any more, and {len(engine.requests)} still wait.")
    return Served(records, outputs)


def audit(run: Served, rows: int, *budgets: int) -> None:
    """Did every step keep the limits, feed everybody who runs, and leave nobody waiting for no reason?

    budgets: one for all steps, or several in turn
    """
    before: set[str] = set()
    for record in run.records:
        step, names = f"step {record.step}", {entry.request_id for entry in record.entries}
        budget = budgets[record.step % len(budgets)]
        free = budget - record.token_slots
        if len(names) > rows:
            raise MismatchError(f"{step} runs {len(names)} requests; the limit is {rows}.")
        if free < 0:
            raise MismatchError(f"{step} computes {record.token_slots} tokens; the budget is {budget}.")
        if min(entry.num_new for entry in record.entries) < 1:
            raise MismatchError(f"in {step} a running request gets no token: its stream stalls.")
        if not before <= names:
            raise MismatchError(f"in {step} {min(before - names)} is left out, though it is running.")
        if record.num_waiting and len(names) < rows and free:
            raise MismatchError(f"in {step} somebody waits, though a place is free and {free} of the budget left.")
        before = names - {name for name, _ in record.finished}


# ---- the last probe of the checks

SIX = workload([6, 3, 4, 12, 3, 5], [3, 9, 2, 5, 7, 3], rows=3, budget=8, title="six requests")
ARRIVE = {"C": 1, "D": 2, "E": 6, "F": 6}
LIMITS = ((3, 8), (2, 5), (4, 4), (6, 64), (3, 8, 3))  # requests at a time, and the tokens of a step, in turn
SLICE = 4  # tokens of one prompt in a step, so that several are read side by side


@cache
def alone() -> dict[str, Tokens]:
    """What each of the six says when it has the engine to itself, by the references."""
    with seams.references_only():
        return {
            name: serve(Workload(name, {name: one}, rows=1, budget=LONGEST)).answers[name]
            for name, one in SIX.requests.items()
        }


def limits_kept() -> str:
    """The six requests under several limits: the same tokens as alone, and every step as it should be."""
    for rows, *budgets in LIMITS:
        cut = SLICE if len(budgets) > 1 else 0
        work = Workload(SIX.title, SIX.requests, rows, budgets[0])
        run = serve(work, arrive=ARRIVE, budgets=budgets, long_prefill_token_threshold=cut)
        audit(run, rows, *budgets)
        expect_tokens(run.answers, f"with {rows} places and a budget of {' and '.join(map(str, budgets))}")
    return f"6 requests under {len(LIMITS)} limits, same tokens as alone"


def expect_tokens(answers: Mapping[str, Tokens], how: str) -> None:
    for name, right in alone().items():
        if answers[name] != right:
            said, wanted = " ".join(map(str, answers[name])), " ".join(map(str, right))
            raise MismatchError(f"request {name}, {how}, got the tokens {said} instead of {wanted}.")


def ends_right() -> str:
    """Of six answers four end at their limit, one at a stop token, and one at a stop token in its last place."""
    params = {name: SamplingParams(max_tokens=length, ignore_eos=True) for name, (_, length) in SIX.requests.items()}
    stops = {"B": alone()["B"][3], "E": alone()["E"][6]}
    for name, token in stops.items():
        params[name] = SamplingParams(max_tokens=params[name].max_tokens, ignore_eos=True, stop_token_ids=[token])
    with seams.references_only():
        right = _endings(params)
    mine = _endings(params)
    for name, wanted in right.items():
        if mine[name] != wanted:
            raise MismatchError(f"request {name} ended with {_ending(mine[name])}, not with {_ending(wanted)}.")
    return f"{len(right)} answers, each as long as it may be"


def crowd(shorts: int) -> tuple[Workload, dict[str, int]]:
    """A runs, B waits with a long prompt, and a short request comes every other step: the workload, and who comes when.

    One at a time, so that the order is all there is.
    """
    work = workload([6, 18] + [3] * shorts, [3, 4] + [2] * shorts, rows=1, budget=32, title="a crowd")
    _, long, *short = work.requests
    return work, {long: 1} | {name: 1 + 2 * i for i, name in enumerate(short)}


def fair_order() -> str:
    """A crowd under the policy "hrrn": the same order as by the reference."""
    work, arrive = crowd(9)
    with seams.references_only():
        right = order_of(serve(work, arrive=arrive, policy="hrrn").records)
    mine = order_of(serve(work, arrive=arrive, policy="hrrn").records)
    if mine != right:
        raise MismatchError(f"the waiting requests start in the order {' '.join(mine)}, not {' '.join(right)}.")
    return f"a crowd of {len(right)} in the order {' '.join(right)}"


def order_of(records: Sequence[StepRecord]) -> list[str]:
    """The requests in the order in which they start to run."""
    return list(dict.fromkeys(entry.request_id for record in records for entry in record.entries))


def _endings(params: Mapping[str, SamplingParams]) -> dict[str, tuple[int, str]]:
    outputs = serve(SIX, params=params).outputs
    return {name: (len(out.token_ids), out.finish_reason) for name, out in outputs.items()}


def _ending(one: tuple[int, str]) -> str:
    return f"{one[0]} tokens ({one[1]})"
