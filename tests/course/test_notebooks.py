"""The notebooks as they are in the repository: built from their sources, safe to show, and true.

Two more proofs are run by nbval, see the Makefile: every solution reproduces its outputs, and every blank notebook
runs from top to bottom and says "not written yet" where it should.
"""

from __future__ import annotations

import ast
import builtins
import json
import linecache
import symtable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from learner import as_written, words
from nbformat.v4 import new_code_cell

import minicb.course as course
from minicb import seams
from minicb.course import check, tiny, work
from minicb.course.attempt import body_lines, global_names, reference_attempt, workbench
from minicb.course.build import METADATA, NOTEBOOKS, TAGS, assemble, build, setup_text, source_paths
from minicb.course.execute import execute, faults, first_difference
from minicb.course.source import Source, SourceError, read_source
from minicb.course.spec import chapters, exercises, find

SOURCES = [read_source(path) for path in source_paths([])]
PAIRS = [(source, kind) for source in SOURCES for kind in ("blank", "solution")]
each_source = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.path.stem)
each_notebook = pytest.mark.parametrize(
    ("source", "kind"), PAIRS, ids=[f"{source.path.stem}-{kind}" for source, kind in PAIRS]
)


def path_of(source: Source, kind: str) -> Path:
    return NOTEBOOKS / ("solutions" if kind == "solution" else ".") / f"{source.path.stem}.ipynb"


def stored(source: Source, kind: str) -> Any:
    return nbformat.read(path_of(source, kind), 4)


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


# ---- built from the sources


@each_notebook
def test_a_notebook_is_what_its_source_says(source: Source, kind: str) -> None:
    """If this fails: python -m minicb.course.build"""
    assert first_difference(stored(source, kind), assemble(source, kind), outputs=kind == "blank") is None


@each_source
def test_the_same_source_gives_the_same_notebook(source: Source) -> None:
    first, again = (nbformat.writes(assemble(read_source(source.path), "blank"), 4) for _ in range(2))
    assert first == again


def test_a_stale_notebook_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n", encoding="utf-8")
    monkeypatch.setattr("minicb.course.build.NOTEBOOKS", tmp_path / "notebooks")
    source = SOURCES[0]
    blank, solution = f"notebooks/{source.path.stem}.ipynb", f"notebooks/solutions/{source.path.stem}.ipynb"
    assert build(source, check=True, run=False) == [f"{blank} (metadata)", f"{solution} (metadata)"]
    build(source, check=False, run=False)
    assert build(source, check=True, run=False) == [f"{solution} (metadata)"]
    target = tmp_path / blank
    target.write_text(
        target.read_text(encoding="utf-8").replace(" - not written yet", " - not there"), encoding="utf-8"
    )
    id = chapters()[source.chapter].exercises[0].id.replace(".", "-")
    assert f"{blank} (outputs of cell {source.chapter:02d}-check-{id})" in build(source, check=True, run=False)


def test_every_chapter_has_its_notebook_or_waits_for_it() -> None:
    numbers = [source.chapter for source in SOURCES]
    assert numbers == sorted(set(numbers))
    assert set(numbers) <= set(chapters())


# ---- safe to show


@each_notebook
def test_a_notebook_is_plain(source: Source, kind: str) -> None:
    text = path_of(source, kind).read_text(encoding="utf-8")
    raw = json.loads(text)
    notebook = stored(source, kind)
    nbformat.validate(notebook)
    assert (raw["nbformat"], raw["nbformat_minor"]) == (4, 5)
    assert notebook.metadata == METADATA
    assert "widget" not in json.dumps([cell.get("outputs", []) for cell in notebook.cells])
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    assert all(set(cell.metadata) <= {"tags"} for cell in notebook.cells)
    assert not any(line.startswith(("%", "!")) for cell in code(notebook) for line in cell.source.splitlines())
    assert len(text) < 2_000_000


@each_source
def test_a_solution_notebook_was_run_once_from_top_to_bottom(source: Source) -> None:
    cells = code(stored(source, "solution"))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not any(output.output_type == "error" for cell in cells for output in cell.outputs)
    assert [fault for cell in cells for fault in faults(cell, "no such place", checks_pass=True)] == []


@each_source
def test_a_picture_has_words_beside_it(source: Source) -> None:
    """Alt text, and a data line that nbval can compare where it cannot compare pixels."""
    for cell in code(stored(source, "solution")):
        pictures = [output for output in cell.outputs if "image/png" in output.get("data", {})]
        assert all(len(output.data.get("text/plain", "")) > 20 for output in pictures), cell.source
        if pictures and "nbval-ignore-output" not in cell.metadata.get("tags", []):
            assert any(output.output_type == "stream" for output in cell.outputs), cell.source


@each_notebook
def test_every_name_is_defined_above_its_use(source: Source, kind: str) -> None:
    known = {*dir(builtins), *course.__all__}
    for cell in code(assemble(source, kind)):
        table = symtable.symtable(cell.source, cell.id, "exec")
        known |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
        assert global_names(cell.source) - known == set(), cell.source


# ---- blank notebooks give nothing away


@each_source
def test_a_blank_notebook_has_only_the_checks_outputs(source: Source) -> None:
    for cell in code(stored(source, "blank")):
        if cell.metadata.get("tags") == TAGS["check"]:
            assert len(cell.outputs) == 1
            assert cell.execution_count is not None
        else:
            assert cell.outputs == []
            assert cell.execution_count is None


@each_source
def test_a_blank_notebook_shows_no_picture(source: Source) -> None:
    text = "\n".join(cell.source for cell in stored(source, "blank").cells if cell.cell_type == "markdown")
    assert "![" not in text
    assert "<img" not in text
    assert not any(cell.get("attachments") for cell in stored(source, "blank").cells)


@each_source
def test_a_blank_notebook_shows_no_line_of_a_solution(source: Source) -> None:
    """But for those that its skeleton gives. A worked example shows its line by design."""
    page = "\n".join(cell.source for cell in stored(source, "blank").cells)
    skeletons = {cell.word: cell.text for cell in source.cells if cell.kind == "exercise"}
    leaks = []
    for one in chapters()[source.chapter].exercises:
        if one.kind not in "WP":
            given = skeletons.get(one.id, "")
            lines = [line.strip() for line in body_lines(reference_attempt(one.id).source)]
            leaks += [line for line in lines if len(line) > 12 and line not in given and line in page]
    assert leaks == []


# ---- true


@each_source
def test_a_mistake_typed_into_a_notebook_is_answered_with_its_advice(source: Source, tmp_path: Path) -> None:
    """Every twin of the chapter, in a real kernel."""
    own = chapters()[source.chapter].exercises
    notebook = nbformat.v4.new_notebook(metadata=METADATA, cells=[new_code_cell(setup_text())])
    twins = [(one, twin) for one in own for twin in one.twins]
    for one, twin in twins:
        notebook.cells.append(new_code_cell(f'@exercise("{one.id}")\n{as_written(one, twin.function)}'))
        notebook.cells.append(new_code_cell(f'check("{one.id}")', metadata={"tags": TAGS["check"]}))
    execute(notebook, NOTEBOOKS / f"{tmp_path.name}.ipynb", checks_pass=False)  # run there, written nowhere
    checks = [cell for cell in notebook.cells if cell.metadata.get("tags") == TAGS["check"]]
    for (one, twin), cell in zip(twins, checks, strict=True):
        said = words(cell.outputs[-1].text)
        assert said.startswith((f"[x] {one.label} - ", f"[!] {one.label} - ")), said
        assert said.endswith(f"Likely cause: {twin.advice}"), said


def test_in_a_real_kernel_a_loop_is_interrupted_and_an_error_shows_the_learners_line() -> None:
    attempts = [
        "    while True:\n        try:\n            pass\n        except:\n            pass",
        "    best = {}\n    return best['x']",
    ]
    head = "import minicb.course.trial\nminicb.course.trial.LIMIT_S = 0.3\n"
    cells = [setup_text(), head, *(f'@exercise("0.1")\ndef greedy_pick(logits):\n{body}' for body in attempts)]
    notebook = nbformat.v4.new_notebook(metadata=METADATA, cells=[new_code_cell(cell) for cell in cells])
    for place in (3, 5):
        notebook.cells.insert(place, new_code_cell('check("0.1")'))
    execute(notebook, NOTEBOOKS / "x.ipynb", checks_pass=False)
    assert "still running after 0.3 seconds. Does every loop end?" in words(notebook.cells[3].outputs[0].text)
    assert notebook.cells[5].outputs[0].text.splitlines()[:2] == [
        "[!]  0.1 greedy_pick - your code stopped: line 4: KeyError: 'x'.",
        "         return best['x']",
    ]


def test_all_solutions_in_a_row_make_every_part_the_learners() -> None:
    """The cells of the solution notebooks, one home: then a restart, and the engine runs on nothing else.

    On the real model too, strictly: its tokens are those of transformers. And the exported file has nobody else's.
    """
    notebook: dict[str, Any] = {"__name__": "__main__"}
    exec("import math\nimport torch\nfrom minicb.course import *", notebook)
    done = []
    for source in SOURCES:
        for cell in code(stored(source, "solution")):
            exec(imports(cell.source), notebook)
            if cell.id.startswith(f"{source.chapter:02d}-exercise-"):  # not those that break a part on purpose
                run_cell(cell.source, f"<{cell.id}>", notebook)
            if cell.metadata.get("tags") == TAGS["check"]:
                id = ast.literal_eval(cell.source.removeprefix("check"))
                assert check(id).ok
                done.append(id)
    assert done == [id for id in exercises() if find(id).seam.chapter in {source.chapter for source in SOURCES}]
    workbench.clear()
    for id in done:
        seams.uninstall(id)
    work.load()
    assert [id for id in done if not find(id).seam.yours] == []
    seams.begin_receipt()
    assert tiny.same_tokens()
    assert {line.owner for line in seams.receipt() if line.id in done} == {"yours"}
    assert course.graduate().passed
    assert "\nFrom minicb:" not in course.export().read_text(encoding="utf-8"), "in the trophy all parts are theirs"


def imports(text: str) -> str:
    nodes = [node for node in ast.parse(text).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return "\n".join(ast.unparse(node) for node in nodes)


def run_cell(text: str, filename: str, notebook: dict[str, Any]) -> None:
    """As a notebook does it: the text of the cell can be found under its file name."""
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    exec(compile(text, filename, "exec"), notebook)


# ---- what must not be stored


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1 / 0", "a cell failed"),
        ("import sys; print('x', file=sys.stderr)", "a cell wrote to stderr"),
        ("import pathlib; print(pathlib.Path.home())", "an output names a folder of this machine"),
    ],
)
def test_a_cell_whose_output_must_not_be_stored_is_an_error(text: str, problem: str, tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(metadata=METADATA, cells=[new_code_cell(text)])
    with pytest.raises(SourceError, match=problem):
        execute(notebook, tmp_path / "x.ipynb")


def test_a_solution_that_fails_its_check_is_an_error(tmp_path: Path) -> None:
    cells = [new_code_cell(setup_text()), new_code_cell('check("0.1")', metadata={"tags": TAGS["check"]})]
    with pytest.raises(SourceError, match="a check failed"):
        execute(nbformat.v4.new_notebook(metadata=METADATA, cells=cells), tmp_path / "x.ipynb")
