"""Notebook sources: whatever does not fit together is an error with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from minicb.course.source import SourceError, read_source

GOOD = """# notes of the author

# %% [markdown]
# # 00 A title

# %% setup

# %% [markdown] heading 0.1
# Write it.

# %% exercise 0.1
def greedy_pick(logits):
    return ...

# %% check 0.1

# %% [markdown] folded Why?
# Because.

# %% only=solution
1 + 1

# %% timed
import time

# %% widget
2
"""


def read(text: str, tmp_path: Path, name: str = "00_setup.py") -> list[tuple[str, str, int]]:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return [(cell.kind, cell.word, cell.line) for cell in read_source(path).cells]


def test_a_good_source_is_read_cell_by_cell(tmp_path: Path) -> None:
    assert read(GOOD, tmp_path) == [
        ("markdown", "", 3),
        ("setup", "", 6),
        ("heading", "0.1", 8),
        ("exercise", "0.1", 11),
        ("check", "0.1", 15),
        ("folded", "Why?", 17),
        ("code", "", 20),
        ("timed", "", 23),
        ("widget", "", 26),
    ]


def test_markdown_loses_its_comment_signs_and_keeps_its_form(tmp_path: Path) -> None:
    path = tmp_path / "00_setup.py"
    path.write_text(GOOD.replace("# Because.", "# One\n#\n#     code\n# - two"), encoding="utf-8")
    folded = next(cell for cell in read_source(path).cells if cell.kind == "folded")
    assert folded.text == "One\n\n    code\n- two"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("# %% setup", "# %% set-up", ":6: unknown kind of cell 'set-up'"),
        ("# %% setup", "", ":1: exactly one '# %% setup' cell is needed"),
        ("# # 00 A title", "# 00 A title", ":3: the first cell is the title"),
        ("# notes", "notes = 1  # notes", ":1: only comments may stand before the first"),
        ("# Write it.", "Write it.", ":9: a line of a markdown cell must begin with #"),
        ("exercise 0.1", "exercise 0.9", ":11: there is no exercise '0.9'"),
        ("exercise 0.1", "exercise 1.1", ":11: exercise 1.1 is not one of chapter 0"),
        ("# %% check 0.1", "", ":1: exercise 0.1 has no check cell"),
        ("# %% [markdown] heading 0.1", "# %% [markdown]", ":11: exercise 0.1 has no heading cell above it"),
        ("# %% [markdown] heading", "# %% heading", ":8: write # %% [markdown] heading"),
        ("# %% [markdown] folded", "# %% folded", ":17: write # %% [markdown] folded"),
        ("# %% check 0.1", "# %% check 0.1\ncheck('0.1')", ":16: a check cell is generated: leave it empty"),
        ("# %% check 0.1", "# %% check 0.1\n\n# %% check 0.1", ":17: a second check cell for 0.1"),
        ("# %% check 0.1", "# %% check 0.1 only=blank", ":15: a check cell belongs to both notebooks"),
        ("def greedy_pick", "def pick", ":11: the skeleton of 0.1 must define greedy_pick, not pick"),
        ("    return ...", "    return 1", ":11: the skeleton of 0.1 has no ... to fill in"),
        ("def greedy_pick(logits):", "def greedy_pick(logits:", ":11: the skeleton of 0.1 is not one function"),
        ("def greedy_pick", "@exercise('0.1')\ndef greedy_pick", ":11: leave the decorator out"),
        ("1 + 1", "%matplotlib inline", ":21: invalid syntax"),
    ],
)
def test_what_does_not_fit_is_named_with_its_line(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in GOOD
    with pytest.raises(SourceError) as caught:
        read(GOOD.replace(old, new, 1), tmp_path)
    assert str(caught.value).startswith(f"00_setup.py{message}")


def test_a_check_before_its_exercise_is_an_error(tmp_path: Path) -> None:
    text = GOOD.replace("# %% check 0.1\n", "").replace(
        "# %% [markdown] heading", "# %% check 0.1\n\n# %% [markdown] heading"
    )
    with pytest.raises(SourceError, match=r"the check of 0\.1 comes before its exercise cell"):
        read(text, tmp_path)


@pytest.mark.parametrize("name", ["setup.py", "0_setup.py", "00 setup.py"])
def test_the_file_is_named_like_the_notebook(name: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"the name must be NN_title\.py"):
        read(GOOD, tmp_path, name)


def test_a_chapter_without_exercises_module_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"there is no minicb/course/chapters/ch77\.py"):
        read(GOOD, tmp_path, "77_other.py")
