"""The words and the shape of a check's answer: fixed outcomes, plain ASCII, at most 12 lines.

    [ ]  not written yet       [!]  the code stopped       [x]  wrong       [ok] correct, and now yours

The text is part of the course: the blank notebooks store it and tests compare it letter by letter.
How the answer was found is in `check.py`.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from minicb.course.attempt import Attempt, body_lines, plain_source
from minicb.course.spec import Exercise

WIDTH, MAX_LINES = 104, 12
MARKS = {"blank": "[ ]", "stopped": "[!]", "wrong": "[x]", "ok": "[ok]"}
Status = Literal["blank", "stopped", "wrong", "ok"]


class CheckFailedError(AssertionError):
    """Raised by `check` under MINICB_STRICT=1 only."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a check found; `str` is what was printed."""

    id: str
    name: str
    status: Status
    headline: str
    details: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    def __str__(self) -> str:
        lines = [f"{MARKS[self.status]:<4} {self.id} {self.name} - {self.headline}"]
        lines += [f"     {line}".rstrip() for line in self.details]
        return "\n".join(lines[:MAX_LINES]).encode("ascii", "backslashreplace").decode()

    def _ipython_display_(self) -> None:
        """Nothing: `check` has printed it already, and a notebook would show it again."""


def report(exercise: Exercise, status: Status, headline: str, details: Iterable[str] = ()) -> Report:
    """A report whose headline is wrapped to the width of the page."""
    first, *rest = wrapped(headline, WIDTH - len(exercise.label) - 8)
    return Report(exercise.id, exercise.name, status, first, (*rest, *details))


def blank_report(exercise: Exercise) -> Report:
    """For an exercise that has not been tried. In the blank notebooks this line is the stored output."""
    hint = f'Replace the ... above, run that cell, then this one.  Stuck? hint("{exercise.id}")'
    kept = f'(Your earlier version is in the engine all the same: mine("{exercise.id}") shows it.)'
    details = (kept,) if exercise.seam.yours else ()
    return Report(exercise.id, exercise.name, "blank", f"not written yet. {hint}", details)


def success(exercise: Exercise, attempt: Attempt, shown: str) -> Report:
    """For a right answer: the reference beside it if it is short, and one why. shown: what the engine ran."""
    reference = textwrap.dedent("\n".join(body_lines(plain_source(inspect.getsource(exercise.seam.reference)))))
    body = [f"    {line}" for line in reference.splitlines()]
    yours = f"Yours: {attempt.code_lines} line{'s' * (attempt.code_lines != 1)}."
    why = wrapped(f"Why: {exercise.why}")
    compare = f"{yours} The reference is below; say to yourself where it differs and whether that matters."
    if len(body) + len(why) + 2 > MAX_LINES:
        compare, body = f'{yours} Compare it with the reference: solution("{exercise.id}").', []
    headline = f"correct, and now part of the engine ({shown})." if shown else "correct, and now yours."
    return report(exercise, "ok", headline, [compare, *body, *why])


def wrapped(text: str, width: int = WIDTH - 5) -> list[str]:
    """The text in lines that fit the page."""
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]
