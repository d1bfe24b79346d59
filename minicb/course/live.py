"""Several prompts on the real model at once, token by token as they come. (Chapter 7)

    live({"A": "The capital of France is", "B": "Once upon a time"}, places=2, budget=8)
    race([12, 3, 30], [4, 20, 3], places=2, budget=16)         processor seconds of two schedules

A line a step, a column a request: what it reads, what it writes, whether it waits.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minicb.course.answer import packaged_model, whose
from minicb.course.serving import workload
from minicb.course.table import Workload
from minicb.engine import Engine
from minicb.metrics import Entry, StepRecord
from minicb.padding import PaddedRunner
from minicb.request import Limits, open_request
from minicb.sampling import SamplingParams

CONTEXT = 128  # tokens of prompt and answer
COLUMN = 18  # characters for a request
Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """What was said: the texts and the ids, and a record a step."""

    texts: Mapping[str, str]
    ids: Mapping[str, Tokens]
    records: Sequence[StepRecord]


def live(
    prompts: Mapping[str, str],
    *,
    places: int = 3,
    budget: int = 16,
    max_tokens: int | Mapping[str, int] = 8,
    quiet: bool = False,
    arrive: Mapping[str, int] | None = None,
    **options: Any,
) -> Shown:
    """Let the real model answer all prompts, greedily, and print every step as it happens; then whose parts ran.

    places: requests at a time   budget: tokens a step   options: those of `Engine`, the policy for one
    arrive: steps that are over when a prompt comes; the clock of the engine then counts computed tokens, not seconds
    """
    weights, tokenizer = packaged_model()
    records, texts, ids = list[StepRecord](), dict.fromkeys(prompts, ""), dict[str, Tokens]()
    if arrive is not None:
        options = {"clock": lambda: float(sum(record.token_slots for record in records)), **options}
    engine = Engine(
        weights, tokenizer.decode, max_num_seqs=places, max_num_batched_tokens=budget, max_model_len=CONTEXT,
        on_step=records.append, **options,
    )  # fmt: skip
    when = arrive or {}
    coming = sorted(prompts, key=lambda name: when.get(name, 0))
    if not quiet:
        print(row("step", "tokens", prompts))
    while coming or engine.has_unfinished_requests:
        while coming and (when.get(coming[0], 0) <= engine.steps or not engine.has_unfinished_requests):
            name = coming.pop(0)
            most = max_tokens if isinstance(max_tokens, int) else max_tokens[name]
            engine.add_request(tokenizer.encode(prompts[name]), SamplingParams(max_tokens=most), request_id=name)
        new = dict.fromkeys(prompts, "")
        for event in engine.step():
            new[event.request_id] += event.text
            if event.output is not None:
                texts[event.request_id], ids[event.request_id] = event.output.text, event.output.token_ids
        if not quiet:
            record = records[-1]
            cells = [cell(name, new[name], record, there=name not in ids and name not in coming) for name in prompts]
            print(row(str(record.step), str(record.token_slots), cells))
    if not quiet:
        print(whose())
    return Shown(texts, ids, records)


def row(step: str, tokens: str, cells: Sequence[str] | Mapping[str, str]) -> str:
    return f"{step:>4}{tokens:>8}   {''.join(f'{one:<{COLUMN}}' for one in cells)}".rstrip()


def cell(name: str, text: str, record: StepRecord, *, there: bool) -> str:
    """What a request does in this step: waits, reads some tokens, writes a word."""
    entry: Entry | None = next((entry for entry in record.entries if entry.request_id == name), None)
    if entry is None:
        return "..." if there else ""
    read = f"reads {entry.num_new}" if entry.num_computed < entry.num_prompt else ""
    return f"{read}{' ' * bool(read and text)}{text!r}"[:COLUMN] if entry.sampled else read


def race(reads: Sequence[int], writes: Sequence[int], *, places: int, budget: int) -> None:
    """Serve prompts and answers of these lengths on the real model, in two ways, and print what each took.

    Processor seconds, not seconds on the wall: a busy machine takes longer, but does no more.
    """
    work = workload(reads, writes, places, budget)
    run_continuous(workload([3], [2], 1, 8))  # the first run packs the weights
    for name, run in (("dynamic", run_padded), ("continuous", run_continuous)):
        began = time.process_time()
        steps = run(work)
        seconds, tokens = time.process_time() - began, sum(step.token_slots for step in steps)
        print(f"{name:<11}{len(steps):>4} steps {tokens:>6,} tokens computed {seconds:>6.1f} processor seconds")


def run_continuous(work: Workload) -> list[StepRecord]:
    """The engine, on ids that mean nothing: only the time counts here."""
    steps = list[StepRecord]()
    engine = Engine(
        packaged_model()[0], max_num_seqs=work.rows, max_num_batched_tokens=work.budget, max_model_len=longest(work),
        on_step=steps.append,
    )  # fmt: skip
    for name, (ids, length) in work.requests.items():
        engine.add_request(ids, params(length), request_id=name)
    while engine.has_unfinished_requests:
        engine.step()
    return steps


def run_padded(work: Workload) -> list[StepRecord]:
    """Padded rectangles whose finished rows are given to the next request."""
    weights, _ = packaged_model()
    room = longest(work)
    limits = Limits(weights.config.vocab_size, room, frozenset())
    runner = PaddedRunner(weights, kind="dynamic", batch_size=work.rows, max_model_len=room)
    opened = [
        open_request(name, list(ids), params(length), limits, None, 0, 0.0)
        for name, (ids, length) in work.requests.items()
    ]
    runner.run(opened)
    return runner.records


def longest(work: Workload) -> int:
    return max(len(ids) + length for ids, length in work.requests.values())


def params(length: int) -> SamplingParams:
    return SamplingParams(max_tokens=length, ignore_eos=True)
