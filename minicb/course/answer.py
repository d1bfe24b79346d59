"""The real model through the learner's parts: `answer(prompt)`, and `run_anyway` for a part that is still wrong.

One model is loaded for a session, in float32 on the CPU, so that every machine says the same. The engine takes
the reference attention, which is made of the learner's functions, as soon as one of them is installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

from minicb import seams
from minicb.course.attempt import Attempt, is_blank, workbench
from minicb.course.spec import find
from minicb.course.trial import describe, learner_line
from minicb.llm import LLM
from minicb.sampling import SamplingParams


@cache
def packaged_llm() -> LLM:
    """The default model, loaded once a session."""
    return LLM(device="cpu", dtype="float32", max_num_seqs=4, max_model_len=512)


def answer(
    prompt: str | Sequence[int],
    *,
    feed: Sequence[int] = (),
    max_tokens: int = 8,
    attention: str = "auto",
    strict: bool = False,
    llm: LLM | None = None,
) -> None:
    """Let the model go on from the prompt, greedily; print its words and whose parts ran.

    feed: read the prompt in pieces of so many tokens; they must add up to its length
    attention: "auto" (your functions if one is installed, else the fastest) or "reference"
    strict: a part that is not yours is an error (NotYours) instead of the reference's
    """
    llm = llm or packaged_llm()
    ids = llm.encode(prompt)
    if feed and (sum(feed) != len(ids) or min(feed) < 1):
        raise ValueError(f"feed {list(feed)} adds up to {sum(feed)}, but the prompt has {len(ids)} tokens")
    with seams.strict() if strict else nullcontext():
        text, tokens = _generate(llm, ids, feed, max_tokens, attention)
    print(repr(text) if llm.tokenizer else tokens)
    print(whose())


def _generate(llm: LLM, ids: list[int], feed: Sequence[int], max_tokens: int, attention: str) -> tuple[str, list[int]]:
    engine, scheduler = llm.engine, llm.engine.scheduler
    choice, budget = engine.choice, scheduler.max_num_batched_tokens
    engine.choice = attention
    seams.begin_receipt()
    try:
        engine.add_request(ids, SamplingParams(max_tokens=max_tokens))
        events, pieces = [], list(feed)
        while engine.has_unfinished_requests:
            scheduler.max_num_batched_tokens = pieces.pop(0) if pieces else budget
            events += engine.step()
        text = "".join(event.text for event in events)
        return text, [event.token_id for event in events if event.token_id is not None]
    finally:
        engine.choice, scheduler.max_num_batched_tokens = choice, budget
        if engine.has_unfinished_requests:
            engine.reset()  # it was interrupted, or a part has failed


def whose() -> str:
    """Who ran in the last generation, in one line."""
    lines = seams.receipt()
    own = [
        f"{line.id} {line.name} {line.calls} call{'s' * (line.calls != 1)}" for line in lines if line.owner == "yours"
    ]
    rest = [line for line in lines if line.owner != "yours"]
    others = f"the reference: {len(rest)} other part{'s' * (len(rest) != 1)} (receipt() lists them)"
    return f"yours: {', '.join(own) or 'nothing'}; {others}"


def run_anyway(id: str, prompt: str | Sequence[int] | None = None, **options: Any) -> Any:
    """Put your latest version into the engine for once, right or wrong, and take it out again.

    With a prompt: let the real model answer it (options: those of `answer`). Without: `with run_anyway("2.2"): ...`
    """
    exercise, attempt = find(id), workbench.get(id)
    if attempt is None or is_blank(attempt.node):
        raise ValueError(f"{exercise.label} is not written yet: run the cell with your version first")
    if prompt is None:
        return _for_once(attempt)
    with _for_once(attempt):
        try:
            answer(prompt, **options)
        except Exception as error:
            place = learner_line(error, attempt.filename)
            where = f" at line {place.number}: {place.text}" if place else ""
            print(f"The engine stopped{where}\n{describe(error)}")
    return None


@contextmanager
def _for_once(attempt: Attempt) -> Iterator[None]:
    point = seams.SEAMS[attempt.id]
    with seams.swapped(attempt.id, attempt.function):
        yield
    owner = {"yours": "your checked version", "catch-up": "the catch-up copy"}.get(point.owner, "the reference")
    print(f"{point.id} {point.name} is out again; {owner} is back.")
