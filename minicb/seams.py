"""The dispatcher behind the exercises: a name in the engine, decided at the moment of the call.

`@seam("3.2")` stands above a reference function of the core. Whoever calls that function, however long
ago it was imported, reaches the version that is active now: the learner's if it is installed, else the
reference. The core knows nothing else about the course.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Seam:
    """One replaceable function: its exercise id, its name, the reference, and whatever is active."""

    __slots__ = ("active", "calls", "id", "name", "reference")

    def __init__(self, id: str, reference: Callable[..., object]) -> None:
        self.id, self.name = id, reference.__name__
        self.reference = self.active = reference
        self.calls = 0

    @property
    def yours(self) -> bool:
        return self.active is not self.reference


SEAMS: dict[str, Seam] = {}


def seam(id: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make the function below replaceable under this exercise id."""

    def wrap(reference: Callable[P, R]) -> Callable[P, R]:
        point = SEAMS[id] = Seam(id, reference)

        @functools.wraps(reference)
        def dispatch(*args: P.args, **kwargs: P.kwargs) -> R:
            point.calls += 1
            return point.active(*args, **kwargs)  # type: ignore[return-value]

        return dispatch

    return wrap


def learner_owns(*chapters: int) -> bool:
    """Is any seam of these chapters the learner's at this moment?"""
    return any(point.yours for id, point in SEAMS.items() if int(id.split(".")[0]) in chapters)
