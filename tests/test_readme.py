"""The table of reports in README.md: every entry is there, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
TEXT = (HERE / "README.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| ([AR]\d+) \| (.*) \|$", TEXT, flags=re.MULTILINE))
# The whole first list, and of the second what concerns something that exists.
WANTED = [f"A{n}" for n in range(1, 27)] + [f"R{n}" for n in (*range(1, 8), *range(10, 15), 18, 19, *range(21, 26), 27)]


@cache
def written() -> set[str]:
    """Every test of this folder, as file::name."""
    return {
        f"{path.stem}::{node.name}"
        for path in HERE.rglob("test_*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def named(row: str) -> list[str]:
    return re.findall(r"`(test_\w+::\w+)`", row)


def test_every_report_has_its_line() -> None:
    assert list(ROWS) == WANTED


def test_every_named_test_exists() -> None:
    assert [name for row in ROWS.values() for name in named(row) if name not in written()] == []


def test_every_line_names_a_test_or_says_what_is_missing() -> None:
    assert [entry for entry, row in ROWS.items() if not named(row) and "Not yet: " not in row] == []


def test_every_file_of_tests_is_in_the_overview() -> None:
    overview = TEXT.partition("## Reports")[0]
    files = [path.name for path in HERE.glob("*.py") if path.name != "conftest.py"]
    assert [name for name in files if f"`{name}`" not in overview] == []
