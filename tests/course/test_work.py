"""The folder of passing sources: it is the only state, and nothing in it is ever lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from learner import IMPORTS, forget, hand_in, out, right, saved

import minicb.course as course
from minicb.course import work
from minicb.course.attempt import attempt_from_source
from minicb.masks import chunk_mask
from minicb.seams import SEAMS

BROKEN = "def chunk_mask(num_queries, num_keys):\n    return torch.ones(num_queries, num_keys, dtype=torch.bool)\n"
OTHER = """
def chunk_mask(num_queries, num_keys):
    square = torch.ones(num_keys, num_keys, dtype=torch.bool).tril()
    return square[num_keys - num_queries :]
"""


def test_only_what_passes_is_saved(home: Path) -> None:
    hand_in("2.2", BROKEN)
    assert saved(home) == []
    hand_in("2.2", right("2.2"))
    assert saved(home) == ["2.2_chunk_mask.py"]


def test_after_a_restart_the_engine_runs_what_was_saved() -> None:
    hand_in("2.2", right("2.2"))
    forget()
    work.load()
    assert SEAMS["2.2"].yours
    assert chunk_mask(1, 3).all()


def test_a_saved_file_stands_on_its_own(home: Path) -> None:
    hand_in("2.2", right("2.2"))
    path = home / ".minicb" / "work" / "2.2_chunk_mask.py"
    code = f"exec(open({str(path)!r}, encoding='utf-8').read()); print(chunk_mask(1, 2).tolist())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert run.stdout == "[[True, True]]\n"


def test_a_better_version_moves_the_earlier_one_to_the_attic(home: Path) -> None:
    hand_in("2.2", right("2.2"))
    first = (home / ".minicb/work/2.2_chunk_mask.py").read_text(encoding="utf-8")
    hand_in("2.2", OTHER)
    assert (home / ".minicb/attic/2.2_chunk_mask.1.py").read_text(encoding="utf-8") == first
    assert "square" in (home / ".minicb/work/2.2_chunk_mask.py").read_text(encoding="utf-8")


def test_the_same_version_again_changes_nothing(home: Path) -> None:
    hand_in("2.2", right("2.2"))
    hand_in("2.2", right("2.2"))
    assert saved(home, "attic") == []


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("def chunk_mask(:", "SyntaxError"),
        (IMPORTS + BROKEN, "wrong for 3 queries, 7 keys"),
        ("import nowhere_to_be_found\n" + OTHER, "ModuleNotFoundError"),
        ("", "expected one function, found 0"),
        ("raise SystemExit\n" + OTHER, "SystemExit"),
        (IMPORTS + OTHER.replace("chunk_mask", "other"), "call it chunk_mask"),
    ],
)
def test_a_file_that_no_longer_passes_is_said_and_left_out(
    text: str, trouble: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hand_in("2.1", right("2.1"))
    hand_in("2.2", right("2.2"))
    (home / ".minicb/work/2.2_chunk_mask.py").write_text(text, encoding="utf-8")
    forget()
    out(capsys)
    work.load()
    said = out(capsys)
    assert said.startswith("note: .minicb/work/2.2_chunk_mask.py is left out, the reference stands in: ")
    assert trouble in said
    assert said.count("\n") == 1
    assert not SEAMS["2.2"].yours
    assert SEAMS["2.1"].yours, "the others are not held up"
    assert saved(home) == ["2.1_causal_mask.py", "2.2_chunk_mask.py"], "it stays where it is"


def test_a_strange_file_is_said_and_left_alone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".minicb/work").mkdir(parents=True)
    (home / ".minicb/work/9.9_mine.py").write_text("1/0", encoding="utf-8")
    work.load()
    assert out(capsys) == "note: .minicb/work/9.9_mine.py belongs to no exercise and is left out.\n"


def test_an_import_of_the_course_installs_what_was_saved(home: Path) -> None:
    hand_in("2.2", right("2.2"))
    code = "import minicb.course\nfrom minicb.seams import SEAMS\nprint([i for i in SEAMS if SEAMS[i].yours])"
    environment = {"MINICB_HOME": str(home), "PYTHONPATH": str(Path(course.__file__).parents[2])}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, encoding="utf-8", check=True
    )
    assert run.stdout == "['2.2']\n"


def test_a_copied_file_of_a_neighbour_works_like_ones_own(home: Path) -> None:
    (home / ".minicb/work").mkdir(parents=True)
    (home / ".minicb/work/2.2_chunk_mask.py").write_text(IMPORTS + OTHER, encoding="utf-8")
    work.load()
    assert SEAMS["2.2"].yours
    assert attempt_from_source("2.2", IMPORTS + OTHER).code_lines == 2
