"""From one text source to two notebooks: one to fill in, one solved and executed.

    python -m minicb.course.build            write notebooks/*.ipynb and notebooks/solutions/*.ipynb
    python -m minicb.course.build 02         only chapter 02
    python -m minicb.course.build --no-run   only what needs no execution: the blank notebooks
    python -m minicb.course.build --check    write nothing; exit code 1 if a notebook is not what its source says

The same source gives the same bytes: cell ids come from the content, nothing of the machine or the hour is kept.
Solution cells are generated from the references in the core, so there is no second copy of a solution.
A solution notebook is executed in a fresh MINICB_HOME; it is refused if a check fails, if a cell raises or
writes to stderr, or if an output names a folder of this machine.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import sys
import tomllib
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import minicb
from minicb import seams
from minicb.course.attempt import Attempt, attempt_from_source, is_blank, only_function, reference_attempt
from minicb.course.check import examine
from minicb.course.execute import Notebook, execute, first_difference
from minicb.course.report import blank_report
from minicb.course.source import Cell, Source, SourceError, read_source
from minicb.course.spec import Exercise, find

NOTEBOOKS = Path(minicb.__path__[0]).resolve().parent / "notebooks"
TAGS = {"check": ["nbval-check-output"], "widget": ["nbval-ignore-output"], "timed": ["nbval-ignore-output"]}
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
SETUP = """\
# Run this first. It finds minicb: around this notebook, or where it is installed.
import importlib.util, pathlib, subprocess, sys

here = pathlib.Path.cwd().resolve()
clone = next((str(folder) for folder in [here, *here.parents] if (folder / "minicb" / "course").is_dir()), None)
if clone and clone not in sys.path:
    sys.path.insert(0, clone)
if importlib.util.find_spec("minicb") is None:
    {missing}

import math
import torch
from minicb.course import *
"""
ABSENT = 'raise ImportError("minicb is not here: open this notebook inside a clone of its repository")'
INSTALL = 'subprocess.run([sys.executable, "-m", "pip", "install", "-q", "git+{url}"], check=True)'


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m minicb.course.build", description="Build the notebooks.")
    parser.add_argument("chapters", nargs="*", help="numbers such as 02; default: all")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 on any difference")
    parser.add_argument(
        "--no-run",
        action="store_true",
        help="do not execute: solution notebooks are left alone, or compared without outputs",
    )
    args = parser.parse_args(argv)
    try:
        sources = [read_source(path) for path in source_paths(args.chapters)]
        stale = [name for source in sources for name in build(source, check=args.check, run=not args.no_run)]
    except SourceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if stale:
        print("\n".join(["stale:", *stale, "Rebuild: python -m minicb.course.build"]), file=sys.stderr)
    return 1 if stale else 0


def source_paths(chapters: list[str]) -> list[Path]:
    """The sources of these chapters, or all. Raises SourceError for a chapter without one."""
    paths = sorted((NOTEBOOKS / "_source").glob("[0-9][0-9]_*.py"))
    for chapter in chapters:
        if not any(path.name.startswith(f"{chapter}_") for path in paths):
            raise SourceError(f"there is no notebooks/_source/{chapter}_*.py")
    return [path for path in paths if not chapters or path.name[:2] in chapters]


def build(source: Source, *, check: bool, run: bool) -> list[str]:
    """Write both notebooks of a source, or compare them with what is there. Returns the names of stale ones."""
    stale = []
    for kind, folder in (("blank", NOTEBOOKS), ("solution", NOTEBOOKS / "solutions")):
        target = folder / f"{source.path.stem}.ipynb"
        name = str(target.relative_to(NOTEBOOKS.parent))
        notebook = assemble(source, kind)
        if kind == "solution" and run:
            execute(notebook, target)
        if check:
            stored = nbformat.read(target, 4) if target.exists() else new_notebook()
            difference = first_difference(stored, notebook, outputs=kind == "blank" or run)
            if difference:
                stale.append(f"{name} ({difference})")
        elif kind == "blank" or run:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(nbformat.writes(notebook, 4) + "\n", encoding="utf-8")
            print(f"wrote {name}")
    return stale


def assemble(source: Source, kind: str) -> Notebook:
    """The notebook of one kind, "blank" or "solution", not executed."""
    notebook = new_notebook(metadata=METADATA)
    taken: set[str] = set()
    skeletons = {cell.word: cell.text for cell in source.cells if cell.kind == "exercise"}
    for cell in source.cells:
        if cell.only not in ("", kind):
            continue
        text = cell_text(cell, kind)
        id = cell_id(source, cell, text, taken)
        if cell.kind in ("markdown", "heading", "folded"):
            notebook.cells.append(new_markdown_cell(text, id=id))
            continue
        tags = TAGS.get(cell.kind)
        made = new_code_cell(text, id=id, metadata={"tags": tags} if tags else {})
        if cell.kind == "check" and kind == "blank":
            count = 1 + sum(one.cell_type == "code" and bool(one.outputs) for one in notebook.cells)
            stored = new_output("stream", name="stdout", text=blank_output(find(cell.word), skeletons[cell.word]))
            made.outputs, made.execution_count = [stored], count
        notebook.cells.append(made)
    nbformat.validate(notebook)
    return notebook


def cell_id(source: Source, cell: Cell, text: str, taken: set[str]) -> str:
    """Exercises are named; other cells after their text, so that an edit changes no other cell's id."""
    name = f"{cell.kind}-{cell.word.replace('.', '-')}" if cell.kind in ("heading", "exercise", "check") else ""
    name = name or f"{cell.kind}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    id = first = f"{source.chapter:02d}-{name}"
    number = 1
    while id in taken:
        number += 1
        id = f"{first}-{number}"
    taken.add(id)
    return id


def cell_text(cell: Cell, kind: str) -> str:
    """What stands in the cell."""
    if cell.kind == "setup":
        return setup_text()
    if cell.kind == "check":
        return f'check("{cell.word}")'
    if cell.kind == "heading":
        return f"{find(cell.word).heading}\n\n{cell.text}".strip()
    if cell.kind == "folded":
        return f"<details><summary>{cell.word or 'Answer'}</summary>\n\n{cell.text}\n\n</details>"
    if cell.kind == "exercise":
        body = solution_text(find(cell.word)) if kind == "solution" else cell.text or blank_text(find(cell.word))
        return f'@exercise("{cell.word}")\n{body}'
    return cell.text


def setup_text() -> str:
    """The first code cell. On Colab it installs minicb, if the project says where from."""
    project = tomllib.loads((NOTEBOOKS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    url = project.get("urls", {}).get("Repository")
    return SETUP.format(missing=INSTALL.format(url=url) if url else ABSENT).strip()


def solution_text(exercise: Exercise) -> str:
    """The reference as a learner would have typed it: without type hints, which would need imports."""
    attempt = reference_attempt(exercise.id)
    first, lines = attempt.node.body[0].lineno, attempt.source.splitlines()
    for node in ast.walk(attempt.node):
        if isinstance(node, ast.AnnAssign):  # "mask: Tensor = ..."
            start, end = node.target.end_col_offset, node.annotation.end_col_offset
            lines[node.lineno - 1] = lines[node.lineno - 1][:start] + lines[node.lineno - 1][end:]
    return "\n".join([signature(attempt), *lines[first - 1 :]])


def blank_text(exercise: Exercise) -> str:
    """The reference without its body: signature, docstring and `...`."""
    attempt = reference_attempt(exercise.id)
    doc = attempt.node.body[0]
    return "\n".join([signature(attempt), *attempt.source.splitlines()[doc.lineno - 1 : doc.end_lineno], "    ..."])


def signature(attempt: Attempt) -> str:
    node = attempt.node
    for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
        argument.annotation = None
    return f"def {node.name}({ast.unparse(node.args)}):"


def blank_output(exercise: Exercise, skeleton: str) -> str:
    """What the check says in a notebook that nobody has filled in."""
    with seams.references_only():
        text = skeleton or blank_text(exercise)
        if is_blank(only_function(text)):
            return f"{blank_report(exercise)}\n"
        report, _ = examine(exercise, attempt_from_source(exercise.id, f"import math\nimport torch\n\n{text}"))
        return f"{report}\n"


if __name__ == "__main__":
    sys.exit(main())
