"""The dispatcher behind the exercises: a name in the engine, decided at the moment of the call.

`@seam("3.2")` stands above a reference function of the core. Whoever calls that function, however long
ago it was imported, reaches the version that is active now: the learner's if one is installed, else the
reference. Every call is counted for its owner, and `receipt()` says afterwards whose code has run.

The core knows nothing else about the course. This module knows no tensors, no checks and no files.
What is installed is a matter of the whole process, not of a thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Function = Callable[..., Any]
Owner = Literal["reference", "catch-up", "yours"]


class NotYours(RuntimeError):  # noqa: N818 - reads as what happened
    """In strict mode: the engine came to a part that the learner has not written."""


class Seam:
    """One replaceable function: its exercise id, its name, the reference, and what is installed instead."""

    __slots__ = ("_earlier", "active", "calls", "chapter", "id", "installed", "name", "owner", "reference")

    def __init__(self, id: str, reference: Function) -> None:
        self.id, self.name, self.reference = id, reference.__name__, reference
        self.chapter = order(id)[0]
        self.owner: Owner = "reference"
        self.installed: Function | None = None
        self.calls = 0  # by the present owner; what earlier owners ran is kept apart
        self._earlier: dict[Owner, int] = {}
        self.active = _choose(self)

    @property
    def yours(self) -> bool:
        return self.owner == "yours"

    def put(self, installed: Function | None, owner: Owner) -> None:
        """Change what is called from now on."""
        self._earlier[self.owner] = self._earlier.get(self.owner, 0) + self.calls
        self.installed, self.owner, self.calls = installed, owner, 0
        self.active = _choose(self)

    def counts(self) -> dict[Owner, int]:
        """Calls since the last `begin_receipt()`, by owner."""
        counts = {**self._earlier, self.owner: self._earlier.get(self.owner, 0) + self.calls}
        return {owner: calls for owner, calls in counts.items() if calls}


@dataclass(frozen=True, slots=True)
class ReceiptLine:
    """Whose version of one part ran, and how often. A part with two owners in one run has two lines."""

    id: str
    name: str
    owner: Owner
    calls: int

    @property
    def notebook(self) -> str:
        return f"notebooks/{int(self.id.split('.')[0]):02d}"

    def __str__(self) -> str:
        calls = f"{self.calls} call{'s' * (self.calls != 1)}"
        hint = "" if self.owner == "yours" else f"  <- {self.notebook}"
        return f"{self.id:<5}{self.name:<18} {self.owner:<9} {calls}{hint}"


SEAMS: dict[str, Seam] = {}


class _Mode:
    """What happens at a part that is not the learner's: raise, tell once, or silently run the reference."""

    strict = False
    tell: Callable[[Seam], None] | None = None


_mode = _Mode()


def seam(id: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make the function below replaceable under this exercise id."""

    def wrap(reference: Callable[P, R]) -> Callable[P, R]:
        point = SEAMS[id] = Seam(id, reference)

        @functools.wraps(reference)
        def dispatch(*args: P.args, **kwargs: P.kwargs) -> R:
            point.calls += 1
            return point.active(*args, **kwargs)  # type: ignore[no-any-return]

        return dispatch

    return wrap


def learner_owns(*chapters: int) -> bool:
    """Is any seam of these chapters (of any, if none is named) the learner's at this moment?"""
    return any(point.yours for point in SEAMS.values() if not chapters or point.chapter in chapters)


def install(id: str, function: Function, owner: Owner = "yours") -> None:
    """Let the engine run this function from now on."""
    SEAMS[id].put(function, owner)


def uninstall(id: str) -> None:
    """Give the part back to the reference."""
    SEAMS[id].put(None, "reference")


def begin_receipt() -> None:
    """Set all counts to zero. The engine calls it where a generation begins."""
    for point in SEAMS.values():
        point.calls = 0
        point._earlier.clear()


def receipt() -> list[ReceiptLine]:
    """Who ran what since `begin_receipt()`, in the order of the chapters."""
    points = sorted(SEAMS.values(), key=lambda point: order(point.id))
    return [ReceiptLine(p.id, p.name, owner, calls) for p in points for owner, calls in p.counts().items()]


def order(id: str) -> tuple[int, ...]:
    """Sort key of exercise ids: 2.10 comes after 2.9."""
    return tuple(int(part) for part in id.split("."))


def tell_once(tell: Callable[[Seam], None] | None) -> None:
    """Call `tell(seam)` at the first call that falls back to a reference, and not again."""
    _mode.tell = tell
    _choose_all()


@contextmanager
def strict() -> Iterator[None]:
    """Inside, a part that is not the learner's own raises NotYours instead of falling back."""
    before, _mode.strict = _mode.strict, True
    _choose_all()
    try:
        yield
    finally:
        _mode.strict = before
        _choose_all()


@contextmanager
def swapped(id: str, function: Function) -> Iterator[None]:
    """Inside, the engine runs this function as the learner's, right or wrong; its calls are counted."""
    point = SEAMS[id]
    before, owner = point.installed, point.owner
    point.put(function, "yours")
    try:
        yield
    finally:
        point.put(before, owner)


@contextmanager
def references_only() -> Iterator[None]:
    """Inside, every part is the reference, silently; afterwards owners and counts are what they were."""
    before = [(p, p.installed, p.owner, p.calls, dict(p._earlier)) for p in SEAMS.values()]
    modes = _mode.strict, _mode.tell
    _mode.strict, _mode.tell = False, None
    for point in SEAMS.values():
        point.put(None, "reference")
    try:
        yield
    finally:
        _mode.strict, _mode.tell = modes
        for point, installed, owner, calls, earlier in before:
            point.put(installed, owner)
            point.calls, point._earlier = calls, earlier
        _choose_all()


def _choose(point: Seam) -> Function:
    """What a call runs. Decided when something changes, so that a call itself decides nothing."""
    if point.installed is not None and (point.yours or not _mode.strict):
        return point.installed
    if _mode.strict:
        return functools.partial(_refuse, point)
    return functools.partial(_first_fallback, point) if _mode.tell else point.reference


def _choose_all() -> None:
    for point in SEAMS.values():
        point.active = _choose(point)


def _refuse(point: Seam, *_args: object, **_kwargs: object) -> None:
    copied = " (what runs is a catch-up copy)" if point.installed else ""
    notebook = ReceiptLine(point.id, point.name, point.owner, 0).notebook
    raise NotYours(f"{point.id} {point.name} is not yours yet{copied}: write it in {notebook}")


def _first_fallback(point: Seam, *args: object, **kwargs: object) -> object:
    tell = _mode.tell
    tell_once(None)  # from here on references run directly
    if tell:
        tell(point)
    return point.reference(*args, **kwargs)
