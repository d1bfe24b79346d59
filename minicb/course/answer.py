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
from minicb.checkpoint import Tokenizer
from minicb.course.attempt import Attempt, is_blank, workbench
from minicb.course.spec import find
from minicb.course.trial import describe, learner_line
from minicb.engine import Engine
from minicb.model import Model
from minicb.outputs import Event
from minicb.sampling import SamplingParams
from minicb.weights import load

NAMED = 5  # parts in the line under an answer

CONTEXT = 512  # tokens of prompt and answer; enough for a lesson, and a small cache


@cache
def packaged_model() -> tuple[Model, Tokenizer]:
    """The default model, loaded once a session."""
    return load(None, "cpu", "float32")


def answer(
    prompt: str | Sequence[int],
    *,
    feed: Sequence[int] = (),
    max_tokens: int = 8,
    attention: str = "auto",
    strict: bool = False,
    model: Model | None = None,
) -> None:
    """Let the model go on from the prompt, greedily; print its words and whose parts ran.

    feed: read the prompt in pieces of so many tokens; they must add up to its length
    attention: "auto" (your functions if one is installed, else the fastest) or "reference"
    strict: a part that is not yours is an error (NotYours) instead of the reference's
    model: another one than the packaged; it knows no text, so give token ids and get token ids
    """
    if model is None:
        model, tokenizer = packaged_model()
        ids, decode = tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt), tokenizer.decode
    elif isinstance(prompt, str):
        raise ValueError("a model of your own knows no text: give token ids")
    else:
        ids, decode = list(prompt), None
    if feed and (sum(feed) != len(ids) or min(feed) < 1):
        raise ValueError(f"feed {list(feed)} adds up to {sum(feed)}, but the prompt has {len(ids)} tokens")
    length = min(CONTEXT, model.config.max_position_embeddings)
    engine = Engine(model, decode, attention=attention, max_num_seqs=1, max_model_len=length)
    with seams.strict() if strict else nullcontext():
        events = generate(engine, ids, feed, max_tokens)
    tokens = [event.token_id for event in events if event.token_id is not None]
    print(repr("".join(event.text for event in events)) if decode else tokens)
    print(whose())


def generate(engine: Engine, ids: list[int], feed: Sequence[int], max_tokens: int) -> list[Event]:
    """All events of one answer. The pieces of the prompt are made by the budget of the first steps."""
    seams.begin_receipt()
    engine.add_request(ids, SamplingParams(max_tokens=max_tokens))
    budget, pieces, events = engine.scheduler.max_num_batched_tokens, list(feed), []
    while engine.has_unfinished_requests:
        engine.scheduler.max_num_batched_tokens = pieces.pop(0) if pieces else budget
        events += engine.step()
    return events


def whose() -> str:
    """Who ran in the last generation, in one line."""
    lines = seams.receipt()
    own = [line for line in lines if line.owner == "yours"]
    named = ", ".join(f"{line.id} {line.name} {counted(line.calls, 'call')}" for line in own[:NAMED])
    more = f" and {len(own) - NAMED} more" if len(own) > NAMED else ""
    rest = "; the reference: the rest" if len(own) < len(lines) else ""
    return f"yours: {named or 'nothing yet'}{more}{rest} (receipt() lists all)"


def counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'s' * (count != 1)}"


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
