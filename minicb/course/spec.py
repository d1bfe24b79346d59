"""What an exercise consists of, besides the reference function in the core.

A chapter's exercises live in `minicb/course/chapters/chNN.py`, each a frozen `Exercise`: inputs to try, the
well-known mistakes (*twins*) with advice about each, different right answers that must pass, hints, and the
run inside the engine. The solution is not here: it is the function behind the seam of the same id.

A twin is used twice: to diagnose a learner's answer, and as a mutant which the tests must see rejected
with its own advice. This module knows nothing of notebooks, files or how a check proceeds.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from minicb.seams import SEAMS, Seam, order

Function = Callable[..., Any]
Kind = Literal["W", "C", "P", "F", "D"]
VERBS = {"W": "follow the example", "C": "complete", "P": "put in order", "F": "write", "D": "find the bug in"}


@dataclass(frozen=True, slots=True)
class Case:
    """One call to try: its arguments, and their sizes in words ("3 queries, 7 keys")."""

    args: tuple[Any, ...]
    about: str
    kwargs: dict[str, Any] = field(default_factory=dict)  # for parameters that the engine passes by name
    raises: bool = False  # the right answer is an exception, of the reference's type


@dataclass(frozen=True, slots=True)
class Twin:
    """A well-known mistake, and what to say to whoever makes it. Its function's name is the mistake's name."""

    function: Function
    advice: str

    @property
    def name(self) -> str:
        return self.function.__name__


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """One exercise. The seam of the same id gives its name, its signature and its solution.

    tiny: the case whose answer is drawn; small whole numbers, so that it can be checked by hand
    cases: 20 or more further cases from seeded dice: lengths 0, 1 and uneven, both float types
    mutates: indices of arguments that the function is meant to change; all others must stay as they are
    pieces: what the third hint shuffles, if not the lines of the reference (for one-line answers)
    in_engine: run at last with the learner's function installed; returns what was shown, raises MismatchError
    """

    id: str
    kind: Kind
    minutes: int
    importance: str
    tiny: Case
    cases: Callable[[Dice], Iterator[Case]]
    twins: tuple[Twin, ...]
    right: tuple[Function, ...]
    question: str
    steps: tuple[str, ...]
    why: str
    mutates: tuple[int, ...] = ()
    pieces: tuple[str, ...] = ()
    in_engine: Callable[[], str] | None = None

    @property
    def seam(self) -> Seam:
        return SEAMS[self.id]

    @property
    def name(self) -> str:
        return self.seam.name

    @property
    def label(self) -> str:
        return f"{self.id} {self.name}"

    @property
    def heading(self) -> str:
        """The line above the exercise in the notebook."""
        return f"### Exercise {self.id} · {VERBS[self.kind]} `{self.name}` · {self.minutes} minutes · {self.importance}"


@dataclass(frozen=True, slots=True)
class Chapter:
    """A chapter: its number, its title, its minutes (workshop, self-paced), its exercises in order."""

    number: int
    title: str
    minutes: tuple[int, int]
    exercises: tuple[Exercise, ...]


class MismatchError(Exception):
    """The learner's function is right on its own but not inside the engine; the text says what differed."""


class Dice:
    """Seeded random inputs: the same ones for every learner, on every day."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def number(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return self._random.randint(low, high)

    def lengths(self, count: int = 20, low: int = 0, high: int = 9) -> Iterator[int]:
        """`count` lengths: the two smallest allowed first, then uneven ones."""
        for i in range(count):
            yield low + i if i < 2 else self.number(low, high)

    def floats(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Numbers large enough that a mistake moves the answer far. float64 or float32 by chance, if not said."""
        generator = torch.Generator().manual_seed(self._random.getrandbits(32))
        dtype = dtype or self._random.choice([torch.float64, torch.float32])
        return (3 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)

    def bools(self, *shape: int, share: float = 0.6) -> Tensor:
        generator = torch.Generator().manual_seed(self._random.getrandbits(32))
        return torch.rand(shape, generator=generator) < share

    def whole(self, low: int, high: int, *shape: int) -> Tensor:
        """int64 numbers, both ends included."""
        generator = torch.Generator().manual_seed(self._random.getrandbits(32))
        return torch.randint(low, high + 1, shape, generator=generator)


@cache
def chapters() -> dict[int, Chapter]:
    """All chapters there are, by number. Found by their file names: nothing needs to be registered."""
    from minicb.course import chapters as package

    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    names = [name for name in names if re.fullmatch(r"ch\d\d", name)]
    found = [importlib.import_module(f"{package.__name__}.{name}").CHAPTER for name in names]
    return {chapter.number: chapter for chapter in found}


@cache
def exercises() -> dict[str, Exercise]:
    """All exercises by id, in the order of the course."""
    every = [exercise for chapter in chapters().values() for exercise in chapter.exercises]
    return {exercise.id: exercise for exercise in sorted(every, key=lambda exercise: order(exercise.id))}


def find(id: str) -> Exercise:
    """The exercise with this id; ValueError that names its neighbours if there is none."""
    if id in exercises():
        return exercises()[id]
    if not isinstance(id, str):
        raise ValueError(f'write the id as text: "{id}"')
    if id == "8.3":
        raise ValueError("8.3 is the graduation: call graduate()")
    start = str(id).split(".")[0] + "."
    near = [known for known in exercises() if known.startswith(start)] or list(exercises())
    raise ValueError(f'there is no exercise "{id}"; there are {", ".join(near)}')
