"""A learner for tests: hands in functions, by value or as text, and looks at what the check says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minicb import seams
from minicb.course.attempt import Attempt, attempt_from_source, plain_source, workbench
from minicb.course.check import check
from minicb.course.report import Report
from minicb.course.spec import Exercise, exercises, find

IMPORTS = "import math\nimport torch\n\n"  # what the set-up cell gives every notebook


def as_written(exercise: Exercise, function: Callable[..., Any]) -> str:
    """The text of a twin or a right answer, under the exercise's name."""
    return re.sub(r"^def \w+", f"def {exercise.name}", plain_source(inspect.getsource(function)))


def handed_in(exercise: Exercise, function: Callable[..., Any]) -> Attempt:
    """The attempt that a learner's cell with this function would be."""
    return attempt_from_source(exercise.id, IMPORTS + as_written(exercise, function), f"<cell {exercise.id}>")


def hand_in(id: str, source: str, **names: Any) -> Report:
    """Type this text into a cell (with these names in the notebook), run it, and check."""
    attempt = attempt_from_source(id, IMPORTS + source, f"<cell {id}>")
    attempt.function.__globals__.update(names)
    workbench[id] = attempt
    return check(id)


def words(text: object) -> str:
    """Without line breaks: advice may be wrapped anywhere."""
    return " ".join(str(text).split())


def right(id: str) -> str:
    """A right answer as text."""
    return as_written(find(id), find(id).right[0])


def saved(home: Path, folder: str = "work") -> list[str]:
    return sorted(path.name for path in (home / ".minicb" / folder).glob("*"))


def out(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def forget() -> None:
    """As after a restart: nothing installed, nothing on the workbench."""
    workbench.clear()
    for id in exercises():
        seams.uninstall(id)


class Letters:
    """A tokenizer of single letters."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) - 96 for letter in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(96 + id % 26) for id in ids)
