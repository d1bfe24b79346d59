"""`graduate()`: the real model, served by the learner's parts alone, and transformers as the judge.

The parts on a request's way are found by serving the same prompts on a tiny model and looking at the receipt. Is one
of them not the learner's, it is named with its notebook, and nothing else happens. Otherwise the run is strict
(`seams.strict`): a part that is not theirs would be an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import minicb.padding  # noqa: F401 - off the way, but its parts are counted too
from minicb import seams
from minicb.bench.budget import must_be_whole, recommend
from minicb.checkpoint import find_checkpoint
from minicb.course import tiny
from minicb.course.answer import packaged_model
from minicb.course.measuring import tries_in_ticks
from minicb.course.report import WIDTH, wrapped
from minicb.course.trial import one_thread
from minicb.engine import Engine
from minicb.metrics import StepRecord
from minicb.model import Model
from minicb.sampling import SamplingParams
from minicb.seams import SEAMS, ReceiptLine, order

# Longer and shorter than the budget, and one more than there are seats: somebody has to wait.
PROMPTS = (
    "A request comes in while three others are being answered. It does not wait until they are done, because",
    "The capital of France is",
    "1, 2, 3, 4,",
    "Once upon a time there was a lighthouse whose keeper",
)
SEATS, NEW_TOKENS = 3, 8


@dataclass(frozen=True, slots=True)
class Graduation:
    """What came of it. missing: the parts on the way that are not the learner's"""

    missing: tuple[str, ...]
    same: tuple[bool, ...] = ()  # for each prompt: are the tokens what transformers gives it alone?
    calls: int = 0

    @property
    def passed(self) -> bool:
        return not self.missing and bool(self.same) and all(self.same)

    def _ipython_display_(self) -> None:
        """Nothing: `graduate` has printed it already, and a notebook would show it again."""


def graduate(*, rehearse: bool = False) -> Graduation:
    """Is the engine yours? Serve the real model by your parts alone and compare the tokens with transformers'.

    rehearse: run it even if parts are missing; the reference plays them
    """
    path = parts_on_the_way()
    missing = tuple(line.id for line in path if line.owner != "yours")
    if missing and not rehearse:
        say_what_is_missing(path, missing)
        return Graduation(missing)
    if missing:
        print(f"A rehearsal: of {len(path)} parts on the way {len(path) - len(missing)} are yours.")
    else:
        print(f"All {len(path)} parts on the way are yours. Strict from here: any other would be an error.")
    model, tokenizer = packaged_model()
    ids = [tokenizer.encode(prompt) for prompt in PROMPTS]
    with nullcontext() if missing else seams.strict():
        answers, lines, steps = serve(model, ids)
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        print(f"    {shortened(prompt)} -> {tokenizer.decode(answer)!r}")
    same = tuple(packaged_peer().agrees(row, answer, NEW_TOKENS) for row, answer in zip(ids, answers, strict=True))
    calls = sum(line.calls for line in lines if line.owner == "yours")
    others = sum(line.calls for line in lines if line.owner != "yours")
    print(f"{sum(same)} of {len(same)} are, token for token, what transformers gives each prompt alone.")
    print(f"{steps} steps; calls of your parts: {calls:,}, of others: {others:,}.")
    if not missing and all(same):
        print("This engine is yours. export() writes it as one file.")
    return Graduation(missing, same, calls)


def say_what_is_missing(path: Sequence[ReceiptLine], missing: Sequence[str]) -> None:
    """Kindly: how far it is, what to write, and where."""
    print(f"Not yet. Of {len(path)} parts on the way {len(path) - len(missing)} are yours; these are not:")
    for chapter in sorted({order(id)[0] for id in missing}):
        named = [SEAMS[id] for id in missing if order(id)[0] == chapter]
        text = ", ".join(f"{p.id} {p.name}{' (copied)' if p.owner == 'catch-up' else ''}" for p in named)
        head = f"    notebooks/{chapter:02d}  "
        print(head + f"\n{' ' * len(head)}".join(wrapped(text, WIDTH - len(head))))
    print("Write them in any order; check() puts each into the engine. Then say graduate() again.")
    print("Meanwhile graduate(rehearse=True) lets the reference play them.")


def parts_on_the_way() -> list[ReceiptLine]:
    """The parts that a request needs, and whose they are: seen on a tiny model, with prompts of the same lengths."""
    _, tokenizer = packaged_model()
    ids = [[token % 61 + 1 for token in tokenizer.encode(prompt)] for prompt in PROMPTS]
    _, lines, _ = serve(tiny.model(), ids)
    return lines


@one_thread()
def serve(model: Model, prompts: Sequence[Sequence[int]]) -> tuple[list[list[int]], list[ReceiptLine], int]:
    """Answer the first prompt alone, then all of them together. Returns the answers, who ran, and the steps taken.

    The receipt begins before the engine is made: the size of its cache is a part, and so is the choice of its budget.
    """
    seams.begin_receipt()
    calls: Counter[tuple[str, str, Any]] = Counter()
    records: list[StepRecord] = []
    budget = recommend(tries_in_ticks((8, 16, 32)), limit_s=16).budget
    note(calls)
    seams.begin_receipt()
    engine = Engine(
        model, attention="reference", max_num_seqs=SEATS, max_num_batched_tokens=budget, max_model_len=64,
        on_step=records.append,
    )  # fmt: skip
    note(calls)
    alone = run(engine, prompts[:1])
    note(calls)
    together = run(engine, prompts)
    note(calls)
    assert alone == together[:1], "the first prompt got other tokens beside the others than alone"
    lines = [ReceiptLine(id, name, owner, count) for (id, name, owner), count in calls.items()]
    return together, sorted(lines, key=lambda line: order(line.id)), len(records)


def note(calls: Counter[tuple[str, str, Any]]) -> None:
    """Add the present receipt to the counts."""
    for line in seams.receipt():
        calls[line.id, line.name, line.owner] += line.calls


def run(engine: Engine, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """The ids of each answer."""
    params = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
    names = [engine.add_request(ids, params) for ids in prompts]
    answers: dict[str, list[int]] = {}
    while engine.has_unfinished_requests:
        ended = [must_be_whole(event.output) for event in engine.step() if event.output]
        answers |= {output.request_id: list(output.token_ids) for output in ended}
    return [answers[name] for name in names]


def shortened(text: str, width: int = 40) -> str:
    """The end of a text, whole words."""
    return text if len(text) <= width else "... " + text[-width:].split(" ", 1)[1]


@cache
def packaged_peer() -> Any:
    """The same model in transformers, loaded once a session."""
    from minicb.bench.peers import Transformers

    model, _ = packaged_model()
    return Transformers(find_checkpoint(None), model.device, model.dtype, model.config.end_ids)
