"""The page that names other engines' names: ours must exist here, transformers' in the version that is installed."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest
import transformers

import minicb
from minicb.course.build import NOTEBOOKS

PAGE = (NOTEBOOKS / "bridge.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("|--", "| here"))
]
CORE = "\n".join(path.read_text(encoding="utf-8") for path in Path(minicb.__path__[0]).glob("*.py"))
GENERATION = Path(transformers.__path__[0]) / "generation"
THEIRS = "\n".join(path.read_text(encoding="utf-8") for path in GENERATION.rglob("*.py"))


def names(cell: str) -> list[str]:
    """The identifiers in a cell's code."""
    return [word for code in re.findall(r"`([^`]+)`", cell) for word in re.findall(r"[A-Za-z_]\w+", code)]


def test_every_row_has_a_name_in_each_of_the_five() -> None:
    assert len(ROWS) > 25
    assert {len(row) for row in ROWS} == {5}
    assert all(cell for row in ROWS for cell in row)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_first_names_are_minicbs(row: list[str]) -> None:
    assert names(row[0])
    assert [name for name in names(row[0]) if not re.search(rf"\b{name}\b", CORE)] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_third_names_are_those_of_the_installed_transformers(row: list[str]) -> None:
    version = re.search(r"\*\*transformers\*\* ([\d.]+)", PAGE)
    assert version
    if metadata.version("transformers") != version[1]:
        pytest.skip(f"the page speaks of transformers {version[1]}")
    assert [name for name in names(row[2]) if not re.search(rf"\b{name}\b", THEIRS)] == []
