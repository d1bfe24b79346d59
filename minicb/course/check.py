"""`check("2.2")`: is the function right? The probes, in order; the first that fails is the answer.

Attempted? called as the engine calls it? raised? type, shape, dtype? inputs unchanged? one tiny case, drawn; a
well-known mistake (*twin*)? random cases; the saved text on its own; and at last inside the engine. A report
is at most 12 lines of ASCII that speak about the mistake, not about the test.

Expected values come from the references, whatever is installed at the time; what is installed, and all call
counts, are afterwards as they were. Saving and installing is done by `work.py`.
"""

from __future__ import annotations

import inspect
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from itertools import islice

from minicb import seams
from minicb.course import trial, work
from minicb.course.attempt import (
    Attempt,
    NotebookOnlyError,
    attempt_from_source,
    is_blank,
    standalone,
    unreadable,
    workbench,
)
from minicb.course.compare import Difference, difference
from minicb.course.report import CheckFailedError, Report, blank_report, report, success, wrapped
from minicb.course.spec import Case, Dice, Exercise, MismatchError, find
from minicb.course.trial import Outcome, TooLong, attempt_call, describe, learner_line, limited, one_thread

NUM_CASES = 20
ENGINE_LIMIT_S = 30.0  # thousands of calls, and the machine may be busy


def check(id: str) -> Report:
    """Check the latest `@exercise(id)`; if it is right, the engine runs it from now on and it is saved."""
    exercise, error = find(id), unreadable(id)
    found, clean = (_unreadable(exercise, error), None) if error else examine(exercise, workbench.get(id))
    if clean is not None:
        work.keep(exercise, clean.text)
        seams.install(id, clean.attempt.function)
    print(found)
    if not found.ok and os.environ.get("MINICB_STRICT") == "1":
        raise CheckFailedError(str(found))
    return found


@dataclass(frozen=True, slots=True)
class Clean:
    """A right answer, rebuilt from the text that will be saved."""

    text: str
    attempt: Attempt


@one_thread()
def examine(exercise: Exercise, attempt: Attempt | None) -> tuple[Report, Clean | None]:
    """All probes, without saving or installing anything."""
    if attempt is None or is_blank(attempt.node):
        return blank_report(exercise), None
    with _alone(exercise):
        trouble = _misnamed(exercise, attempt) or probe(exercise, attempt)
        if trouble:
            return trouble, None
        try:
            text = standalone(attempt)
        except NotebookOnlyError as error:
            return report(exercise, "stopped", str(error)), None
        clean = Clean(text, attempt_from_source(exercise.id, text))
        trouble = probe(exercise, clean.attempt)
        if trouble:
            return trouble, None
    shown = _in_engine(exercise, clean.attempt)
    if isinstance(shown, Report):
        return shown, None
    return success(exercise, clean.attempt, shown), clean


def probe(exercise: Exercise, attempt: Attempt) -> Report | None:
    """The tiny case, then the random ones. None if every answer is right."""
    trouble = _uncallable(exercise, attempt)
    if trouble:
        return trouble
    for index, case in enumerate(all_cases(exercise)):
        mine = attempt_call(attempt.function, case, quiet=index > 0)
        right = attempt_call(exercise.seam.reference, case)
        assert (right.error is not None) == case.raises, f"{exercise.label}, {case.about}: {right.error!r}"
        if mine.error and type(mine.error) is not type(right.error):
            return _stopped(exercise, attempt, case, mine)
        found = _wrong_inputs(exercise, case, mine) or _wrong_answer(exercise, mine, right)
        if found:
            return _wrong(exercise, attempt, case, found, mine, first=index == 0)
    return None


@one_thread()
def still_passes(exercise: Exercise, attempt: Attempt) -> str | None:
    """Does a saved answer still pass, the engine left aside? None, or what is wrong in one line."""
    with _alone(exercise):
        trouble = _misnamed(exercise, attempt) or probe(exercise, attempt)
    return trouble.headline if trouble else None


def all_cases(exercise: Exercise) -> Iterator[Case]:
    yield exercise.tiny
    yield from islice(exercise.cases(Dice(exercise.id)), NUM_CASES)


@contextmanager
def _alone(exercise: Exercise) -> Iterator[None]:
    """References everywhere, except that the part in question must not be used to answer itself."""

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError(f"the engine's own {exercise.name} is what you are writing: it cannot call itself")

    with seams.references_only(), seams.swapped(exercise.id, refuse):
        yield


def _unreadable(exercise: Exercise, error: SyntaxError) -> Report:
    text = (error.text or "").strip()
    return report(
        exercise, "stopped", f"Python cannot read the cell above: line {error.lineno}: {error.msg}.",
        [*([f"    {text}"] if text else ()), "Mend it, run that cell, then this one."],
    )  # fmt: skip


def _misnamed(exercise: Exercise, attempt: Attempt) -> Report | None:
    name = attempt.node.name
    if name == exercise.name:
        return None
    return report(exercise, "stopped", f"the cell above defines {name}; call it {exercise.name}.")


def _uncallable(exercise: Exercise, attempt: Attempt) -> Report | None:
    try:
        inspect.signature(attempt.function).bind(*exercise.tiny.args, **exercise.tiny.kwargs)
    except TypeError:
        takes, wanted = inspect.signature(attempt.function), ", ".join(_parameters(exercise))
        return report(exercise, "stopped", f"the engine calls it with ({wanted}), yours takes {takes}.")
    return None


def _parameters(exercise: Exercise) -> list[str]:
    return list(inspect.signature(exercise.seam.reference).parameters)


def _wrong_inputs(exercise: Exercise, case: Case, mine: Outcome) -> Difference | None:
    for index, (name, before, after) in enumerate(zip(_parameters(exercise), case.args, mine.args, strict=False)):
        if index not in exercise.mutates and difference(after, before):
            return Difference(f"it changes its input {name}, which others still need. Make a new value instead.")
    return None


def _wrong_answer(exercise: Exercise, mine: Outcome, right: Outcome) -> Difference | None:
    if right.error:
        return None if mine.error else Difference(f"it should raise {type(right.error).__name__}.")
    names = _parameters(exercise)
    changed = [difference(mine.args[i], right.args[i], names[i]) for i in exercise.mutates]
    return difference(mine.value, right.value) or next(filter(None, changed), None)


def _stopped(exercise: Exercise, attempt: Attempt, case: Case, mine: Outcome) -> Report:
    assert mine.error is not None
    details = [f"That was with {case.about}.", *_advice(exercise, attempt, case, mine)]
    return _stop_report(exercise, attempt, mine.error, trial.LIMIT_S, details)


def _stop_report(
    exercise: Exercise, attempt: Attempt, error: BaseException, limit_s: float, details: list[str]
) -> Report:
    place = learner_line(error, attempt.filename)
    if isinstance(error, TooLong):
        what = f"still running after {limit_s:g} seconds. Does every loop end?"
    else:
        what = f"{describe(error)}."
    if place is None:
        return report(exercise, "stopped", f"your code stopped: {what}", details)
    return report(
        exercise, "stopped", f"your code stopped: line {place.number}: {what}", [f"    {place.text}", *details]
    )


def _wrong(
    exercise: Exercise, attempt: Attempt, case: Case, found: Difference, mine: Outcome, *, first: bool
) -> Report:
    # Sizes of the random cases are shown, their answers are not: they are what the learner cannot copy.
    text = found.text if first or found.open else "another value was expected."
    passed = "" if first else "right for the small case, but "
    details = [*(found.drawing if first else ()), *_advice(exercise, attempt, case, mine)]
    return report(exercise, "wrong", f"{passed}wrong for {case.about}: {text}", details)


def _advice(exercise: Exercise, attempt: Attempt, case: Case, mine: Outcome) -> list[str]:
    """The advice of the well-known mistake that gives the same answers, if there is one."""
    if isinstance(mine.error, TooLong):
        return []
    suspects = [t for t in exercise.twins if attempt_call(t.function, case).same(mine)]
    if not suspects:
        return []
    cases = list(all_cases(exercise))
    answers = [attempt_call(attempt.function, case) for case in cases]
    alike = [sum(attempt_call(t.function, c).same(a) for c, a in zip(cases, answers, strict=True)) for t in suspects]
    if 2 * max(alike) < len(cases):
        return []  # the same answer here by chance
    return wrapped(f"Likely cause: {suspects[alike.index(max(alike))].advice}")


def _in_engine(exercise: Exercise, attempt: Attempt) -> str | Report:
    """Run the engine with this function in its place; what it showed, or what went wrong."""
    if exercise.in_engine is None:
        return ""
    try:
        with seams.references_only(), seams.swapped(exercise.id, attempt.function), redirect_stdout(io.StringIO()):
            return str(limited(exercise.in_engine, ENGINE_LIMIT_S))
    except KeyboardInterrupt:
        raise
    except MismatchError as error:
        return report(exercise, "wrong", f"right on its own, but not in the engine: {error}")
    except BaseException as error:
        details = ["On its own it was right: this was in the engine."]
        return _stop_report(exercise, attempt, error, ENGINE_LIMIT_S, details)
