"""Notebook sources: text files in `notebooks/_source/`, read into cells.

A source is Python with `# %%` markers ("py:percent"), one chapter a file, named like the notebook. Beside plain code
and markdown there are a few kinds of cells that are generated from the exercises, so that nothing stands twice:
`notebooks/_source/README.md` lists them. Whatever does not fit together is an error with file and line.

This module only reads; `build.py` turns cells into notebooks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from minicb.course.attempt import is_blank, only_function
from minicb.course.spec import Exercise, chapters, exercises

MARKER = re.compile(r"^# %%(?P<rest>.*)$")
KINDS = ("code", "markdown", "setup", "exercise", "check", "widget", "timed", "folded", "heading")
ONLY = ("only=blank", "only=solution")


class SourceError(ValueError):
    """Something in a source does not fit; the message begins with file:line."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell as written. word: the exercise's id, or the summary of a folded answer."""

    kind: str
    text: str
    line: int
    word: str = ""
    only: str = ""  # "blank", "solution", or both


@dataclass(slots=True)
class Source:
    """A chapter as written."""

    path: Path
    chapter: int
    cells: list[Cell] = field(default_factory=list)

    def error(self, line: int, text: str) -> SourceError:
        return SourceError(f"{self.path.name}:{line}: {text}")


def read_source(path: Path) -> Source:
    """Read and examine one source. Raises SourceError."""
    number = re.match(r"(\d\d)_[a-z0-9_]+\.py$", path.name)
    if number is None:
        raise SourceError(f"{path.name}:1: the name must be NN_title.py")
    source = Source(path, int(number[1]))
    lines = path.read_text(encoding="utf-8").splitlines()
    marks = [i for i, line in enumerate(lines) if MARKER.match(line)]
    for i, line in enumerate(lines[: marks[0] if marks else len(lines)], 1):
        if line.strip() and not line.startswith("#"):
            raise source.error(i, "only comments may stand before the first # %%")
    for start, end in zip(marks, [*marks[1:], len(lines)], strict=True):
        source.cells.append(_cell(source, start + 1, lines[start], lines[start + 1 : end]))
    for problem in _problems(source):
        raise problem
    return source


def _cell(source: Source, line: int, marker: str, body: list[str]) -> Cell:
    match = MARKER.match(marker)
    words = (match["rest"] if match else "").split()
    only = [word for word in words if word in ONLY]
    words = [word for word in words if word not in ONLY]
    markdown = words[:1] == ["[markdown]"]
    words = words[1:] if markdown else words
    kind = words[0] if words else ("markdown" if markdown else "code")
    if kind not in KINDS or (markdown and kind not in ("markdown", "heading", "folded")):
        raise source.error(line, f"unknown kind of cell {kind!r}; there are {', '.join(KINDS[2:])}")
    if kind in ("heading", "folded") and not markdown:
        raise source.error(line, f"write # %% [markdown] {kind} ...")
    text = "\n".join(body).strip("\n").rstrip()
    if markdown:
        text = "\n".join(_uncommented(source, line, text.splitlines()))
    return Cell(kind, text, line, " ".join(words[1:]), only[0].removeprefix("only=") if only else "")


def _uncommented(source: Source, line: int, body: list[str]) -> Iterator[str]:
    for offset, one in enumerate(body, 1):
        if one.strip() and not one.startswith("#"):
            raise source.error(line + offset, "a line of a markdown cell must begin with #")
        yield one[2:] if one.startswith("# ") else one[1:]


def _problems(source: Source) -> Iterator[SourceError]:
    """What does not fit together: ids, headings, checks, skeletons."""
    if source.chapter not in chapters():
        yield source.error(1, f"there is no minicb/course/chapters/ch{source.chapter:02d}.py")
        return
    if source.cells and (source.cells[0].kind != "markdown" or not source.cells[0].text.startswith("# ")):
        yield source.error(source.cells[0].line, "the first cell is the title: [markdown] with '# Title'")
    if [cell.kind for cell in source.cells].count("setup") != 1:
        yield source.error(1, "exactly one '# %% setup' cell is needed")
    own = {one.id: one for one in chapters()[source.chapter].exercises}
    seen: dict[tuple[str, str], int] = {}
    for cell in source.cells:
        if cell.kind in ("heading", "exercise", "check"):
            yield from _misplaced(source, cell, own, seen)
        if cell.kind in ("setup", "check") and cell.text:
            yield source.error(cell.line + 1, f"a {cell.kind} cell is generated: leave it empty")
        if cell.kind == "exercise" and cell.text and cell.word in own:
            yield from _bad_skeleton(source, cell, own[cell.word])
        if cell.kind in ("code", "widget", "timed"):
            yield from _unreadable(source, cell)
    for id in own:
        for kind in ("heading", "exercise", "check"):
            if (kind, id) not in seen:
                yield source.error(1, f"exercise {id} has no {kind} cell")


def _misplaced(
    source: Source, cell: Cell, own: dict[str, Exercise], seen: dict[tuple[str, str], int]
) -> Iterator[SourceError]:
    if cell.word not in exercises():
        yield source.error(cell.line, f"there is no exercise {cell.word!r}")
    elif cell.word not in own:
        yield source.error(cell.line, f"exercise {cell.word} is not one of chapter {source.chapter}")
    elif cell.only:
        yield source.error(cell.line, f"a {cell.kind} cell belongs to both notebooks")
    elif (cell.kind, cell.word) in seen:
        yield source.error(cell.line, f"a second {cell.kind} cell for {cell.word}")
    elif cell.kind == "check" and ("exercise", cell.word) not in seen:
        yield source.error(cell.line, f"the check of {cell.word} comes before its exercise cell")
    elif cell.kind == "exercise" and ("heading", cell.word) not in seen:
        yield source.error(cell.line, f"exercise {cell.word} has no heading cell above it")
    seen[cell.kind, cell.word] = cell.line


def _bad_skeleton(source: Source, cell: Cell, exercise: Exercise) -> Iterator[SourceError]:
    try:
        node = only_function(cell.text)
    except (SyntaxError, ValueError) as error:
        yield source.error(cell.line, f"the skeleton of {exercise.id} is not one function: {error}")
        return
    if node.name != exercise.name:
        yield source.error(cell.line, f"the skeleton of {exercise.id} must define {exercise.name}, not {node.name}")
    if node.decorator_list:
        yield source.error(cell.line, "leave the decorator out: it is generated")
    if exercise.kind != "D" and not is_blank(node):
        yield source.error(cell.line, f"the skeleton of {exercise.id} has no ... to fill in")


def _unreadable(source: Source, cell: Cell) -> Iterator[SourceError]:
    try:
        # Notebooks may await at the top of a cell.
        compile(cell.text, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError as error:
        yield source.error(cell.line + (error.lineno or 0), f"{error.msg} (no magics, no shell lines)")
