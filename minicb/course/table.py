"""The growing table: the same requests served in every way that the course teaches, counted alike.

    grow_table("naive")                        chapter 01
    grow_table("naive", "cached", "chunked")   chapter 04

    records("naive")                           the steps of a run, for `draw_timeline`

Two workloads, the same in every chapter: three requests to draw, sixteen for the numbers. Everything runs on one
tiny random model in float64 and through the parts that are installed, so the table speaks about the learner's engine.
Counts only, the same on every machine. A new method is one function from a workload to a `Run` in `METHODS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from minicb import seams
from minicb.course.padded import baseline
from minicb.course.tiny import model
from minicb.course.trial import one_thread
from minicb.engine import Engine
from minicb.metrics import StepRecord
from minicb.naive import generate_naive
from minicb.sampling import SamplingParams

LONGEST = 64  # tokens of one request, prompt and answer
Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests that all arrive at once, and the limits that every method keeps.

    requests: name -> (ids of the prompt, tokens of the answer)
    rows: requests that run at the same time, at most   budget: tokens a step, where a method has such a limit
    """

    title: str
    requests: Mapping[str, tuple[Tokens, int]]
    rows: int
    budget: int

    @property
    def needed(self) -> int:
        """Token-forwards that cannot be avoided: each token once, but for the last one of an answer."""
        return sum(len(prompt) + length - 1 for prompt, length in self.requests.values())

    def __str__(self) -> str:
        prompts, answers = (
            sum(len(p) for p, _ in self.requests.values()),
            sum(n for _, n in self.requests.values()),
        )
        return f"{self.title}: {prompts} tokens to read, {answers} to write"


@dataclass(frozen=True, slots=True)
class Run:
    """What a method did: the answers, and a record a step."""

    answers: Mapping[str, Tokens]
    records: Sequence[StepRecord]


Method = Callable[[Workload], Run]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. computed, longest_gap: token-forwards, padding included."""

    method: str
    identical: bool  # are all answers what each request gets alone, by the reference?
    steps: int
    computed: int
    useful_share: float  # needed / computed; the rest was computed before, or was padding
    longest_gap: int  # computed between two tokens of one request, for whomever

    def __str__(self) -> str:
        share = f"{100 * self.useful_share:.0f} %"
        same = "yes" if self.identical else "NO"
        return f"{self.method:<20}{same:<18}{self.steps:>6}{self.computed:>17,}{share:>14}{self.longest_gap:>13,}"


HEAD = f"{'':<20}{'tokens identical?':<18}{'steps':>6}{'tokens computed':>17}{'useful share':>14}{'longest gap':>13}"


def prompt(first: int, length: int) -> Tokens:
    """Some ids, different for every request."""
    return tuple((first * 7 + i * i + 3 * i) % 63 + 1 for i in range(length))


THREE = Workload(
    "three requests",
    {"A": ((3, 1, 4), 4), "B": ((1, 5, 9, 2, 6, 5, 3, 5, 8), 5), "C": ((9, 7, 9, 3), 6)},
    rows=3,
    budget=8,
)
READ = (12, 3, 30, 5, 8, 2, 21, 6, 4, 17, 9, 3, 26, 7, 5, 11)
WRITE = (4, 20, 3, 9, 6, 25, 2, 12, 8, 3, 16, 5, 4, 22, 7, 10)
SIXTEEN = Workload(
    "sixteen requests",
    {chr(65 + i): (prompt(i, read), write) for i, (read, write) in enumerate(zip(READ, WRITE, strict=True))},
    rows=4,
    budget=16,
)


def grow_table(*methods: str | tuple[str, Method], workloads: Sequence[Workload] = (THREE, SIXTEEN)) -> None:
    """Run the methods, by their names or as (name, function), on each workload, and print a row for each."""
    named = [(one, METHODS[one]) if isinstance(one, str) else one for one in methods]
    for number, workload in enumerate(workloads):
        print(f"{'' if number == 0 else chr(10)}{workload}")
        print(HEAD)
        for name, method in named:
            print(measure(name, method, workload))


def measure(name: str, method: Method, workload: Workload) -> Row:
    """The method's row: what it computed, counted from its own records."""
    run = _run(method, workload)
    computed = sum(record.token_slots for record in run.records)
    return Row(
        name,
        identical=dict(run.answers) == _alone(workload.title),
        steps=len(run.records),
        computed=computed,
        useful_share=workload.needed / computed,
        longest_gap=longest_gap(run.records),
    )


def records(method: str, workload: Workload = THREE) -> Sequence[StepRecord]:
    """The steps of one method, to be drawn."""
    return _run(METHODS[method], workload).records


def longest_gap(steps: Sequence[StepRecord]) -> int:
    """The most token-forwards that the engine computed between two tokens of one request."""
    done, longest = 0, 0
    latest: dict[str, int] = {}  # request -> computed so far when it got its latest token
    for step in steps:
        done += step.token_slots
        for entry in step.entries:
            if entry.sampled:
                longest = max(longest, done - latest.get(entry.request_id, done))
                latest[entry.request_id] = done
    return longest


@one_thread()
def _run(method: Method, workload: Workload) -> Run:
    return method(workload)


@cache
def _alone(title: str) -> dict[str, Tokens]:
    """What each request must get: alone, everything computed anew for each token, all parts the reference's."""
    workload = next(one for one in (THREE, SIXTEEN) if one.title == title)
    with seams.references_only():
        return dict(_run(naive, workload).answers)


def _params(length: int) -> SamplingParams:
    return SamplingParams(max_tokens=length, ignore_eos=True)


def _engine(rows: int, budget: int) -> Engine:
    return Engine(
        model(), attention="reference", max_num_seqs=rows, max_num_batched_tokens=budget, max_model_len=LONGEST,
        kv_cache_memory_bytes=1 << 24,
    )  # fmt: skip


def _serve(engine: Engine, requests: Mapping[str, tuple[Tokens, int]]) -> Run:
    """Give the engine these requests and let it run until all are done."""
    steps, answers = list[StepRecord](), dict[str, Tokens]()
    engine.on_step = steps.append
    for name, (ids, length) in requests.items():
        engine.add_request(ids, _params(length), request_id=name)
    while engine.has_unfinished_requests:
        for event in engine.step():
            if event.output is not None:
                answers[event.request_id] = event.output.token_ids
    return Run(answers, steps)


def _joined(runs: Sequence[Run], requests: Mapping[str, object]) -> Run:
    """Runs one after the other as one: everybody was there from the start."""
    steps = [record for run in runs for record in run.records]
    if steps:
        steps[0] = replace(steps[0], arrived=tuple(requests))
    later = [replace(record, step=i, arrived=()) for i, record in enumerate(steps[1:], 1)]
    return Run({name: ids for run in runs for name, ids in run.answers.items()}, [*steps[:1], *later])


def naive(workload: Workload) -> Run:
    """One request at a time; for each token the whole text so far is read again, and nothing is kept. (Chapter 1)"""
    engine, runs = _engine(1, LONGEST), list[Run]()
    for name, (ids, length) in workload.requests.items():
        steps = list[StepRecord]()

        def next_token(text: list[int], name: str = name, steps: list[StepRecord] = steps) -> int:
            once = _serve(engine, {name: (tuple(text), 1)})
            steps.extend(replace(record, arrived=(), finished=()) for record in once.records)
            return once.answers[name][0]

        answer = generate_naive(next_token, ids, length)
        steps[-1] = replace(steps[-1], finished=((name, "length"),))
        runs.append(Run({name: tuple(answer)}, steps))
    return _joined(runs, workload.requests)


def cached(workload: Workload) -> Run:
    """One request at a time, each token computed once. (Chapter 3)"""
    return _serve(_engine(1, LONGEST), workload.requests)


def chunked(workload: Workload) -> Run:
    """The same, prompts in pieces of the budget. (Chapter 4)"""
    return _serve(_engine(1, workload.budget), workload.requests)


def padded(workload: Workload, kind: Literal["static", "dynamic"] = "static") -> Run:
    """Rectangles of `rows` requests, each group until its longest answer is done. (Chapter 5)"""
    return Run(*baseline(workload.requests, rows=workload.rows, kind=kind))


def dynamic(workload: Workload) -> Run:
    """Rectangles whose finished rows are given to the next request, with its whole prompt. (Chapter 5)"""
    return padded(workload, "dynamic")


def ragged(workload: Workload) -> Run:
    """Groups of `rows` requests without padding, each group until its longest answer is done. (Chapter 6)"""
    engine = _engine(workload.rows, workload.rows * LONGEST)
    names = list(workload.requests)
    groups = [names[i : i + workload.rows] for i in range(0, len(names), workload.rows)]
    runs = [_serve(engine, {name: workload.requests[name] for name in group}) for group in groups]
    return _joined(runs, workload.requests)


def continuous(workload: Workload) -> Run:
    """Whoever is done makes room at once, and no step computes more than the budget. (Chapter 7)"""
    return _serve(_engine(workload.rows, workload.budget), workload.requests)


METHODS: dict[str, Method] = {
    "naive": naive,
    "cached": cached,
    "chunked": chunked,
    "padded": padded,
    "padded, dynamic": dynamic,
    "ragged": ragged,
    "continuous": continuous,
}
