"""The engine map: every part of the engine, and whose it is now.

Computed from what is installed, and that from the folder of passing sources: nothing else is kept. In a notebook
the map is a picture, in a terminal it is text; both are drawn by `minicb.course.draw`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import minicb.padding  # noqa: F401 - the engine does not need it, but its seams are on the map
from minicb.course.spec import Exercise, exercises
from minicb.seams import SEAMS, order


class Part(NamedTuple):
    """One exercise on the map. later: its chapter is not there yet."""

    id: str
    name: str
    owner: Literal["yours", "reference", "later"]


class Progress:
    """Shows itself: as a picture at the end of a notebook cell, as text where it is printed."""

    def __init__(self) -> None:
        self.parts = [_part(id) for id in sorted(SEAMS, key=order)]
        self.copied = [one.label for one in exercises().values() if one.seam.owner == "catch-up"]
        missing = [one for one in exercises().values() if not one.seam.yours]
        self.next = min(missing, key=lambda one: one.seam.owner == "catch-up", default=None)  # copies come last

    def __str__(self) -> str:
        from minicb.course.draw import engine_map_text

        return engine_map_text(self.parts) + "\n" + self.advice

    __repr__ = __str__

    @property
    def advice(self) -> str:
        """What to do next, in a line or two."""
        lines = [f"Catch-up copies: {', '.join(self.copied)}."] if self.copied else []
        return "\n".join([*lines, _next(self.next)])

    def _ipython_display_(self) -> None:
        from minicb.course.draw import engine_map

        engine_map(self.parts).show()
        print(self.advice)


def progress() -> Progress:
    """The engine map, your parts filled in, and what comes next."""
    return Progress()


def _part(id: str) -> Part:
    point = SEAMS[id]
    owner: Literal["yours", "reference"] = "yours" if point.yours else "reference"
    return Part(id, point.name, owner if id in exercises() else "later")


def _next(exercise: Exercise | None) -> str:
    if exercise is None:
        return "Every part with an exercise is yours; the others belong to later chapters."
    return f"Next: {exercise.label}, {exercise.minutes} minutes, in notebooks/{exercise.seam.chapter:02d}."
