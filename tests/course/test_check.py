"""What `check` says, word for word, and what it leaves behind. Tried on chunk_mask (2.2)."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import IPython
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from learner import IMPORTS, hand_in, right, words
from traitlets.config import Config

import minicb.course as course
from minicb import seams
from minicb.course import check
from minicb.course.attempt import Attempt, workbench
from minicb.course.report import CheckFailedError, Report
from minicb.course.spec import find
from minicb.masks import chunk_mask
from minicb.seams import SEAMS

TOP_LEFT = """
def chunk_mask(num_queries, num_keys):
    query_pos = torch.arange(num_queries)
    return torch.arange(num_keys)[None, :] <= query_pos[:, None]
"""
GOOD = """
def chunk_mask(num_queries, num_keys):
    '''Docstrings are not counted.'''
    query_pos = torch.arange(num_keys - num_queries, num_keys)
    # nor are comments
    return torch.arange(num_keys)[None, :] <= query_pos[:, None]
"""
NOT_YET = (
    '[ ]  2.2 chunk_mask - not written yet. Replace the ... above, run that cell, then this one.  Stuck? hint("2.2")'
)


def body(text: str) -> Report:
    """Check a chunk_mask with this body."""
    return hand_in("2.2", "def chunk_mask(num_queries, num_keys):\n" + "".join(f"    {x}\n" for x in text.split("\n")))


def test_nothing_handed_in() -> None:
    assert str(check("2.2")) == NOT_YET


@pytest.mark.parametrize("text", ["...", "pass", "'''Only this.'''", "a = ...\nreturn a", "return torch.cat([..., 1])"])
def test_a_blank_is_not_written_yet(text: str) -> None:
    assert str(body(text)) == NOT_YET


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What runs a notebook's cells, without a notebook. It keeps no history on disk."""
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell(config=config)
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    shell.run_cell("import torch\nfrom minicb.course import *", store_history=True)
    return shell


def test_a_cell_that_python_cannot_read_is_not_answered_with_an_older_one(shell: Any) -> None:
    wrong = f'@exercise("2.2")\n{TOP_LEFT.strip()}\n'
    shell.run_cell(wrong, store_history=True)
    assert check("2.2").status == "wrong"
    shell.run_cell(wrong.replace("num_keys)[", "num_keys[("), store_history=True)
    shell.run_cell("print('any other cell')", store_history=True)
    found = check("2.2")
    assert str(found).startswith("[!]  2.2 chunk_mask - Python cannot read the cell above: line 4: ")
    assert "    return torch.arange(num_keys[(None, :]" in str(found)
    shell.run_cell(f'@exercise("2.2")\n{GOOD.strip()}\n', store_history=True)
    assert check("2.2").ok


def test_dots_inside_an_index_are_code() -> None:
    assert body("return torch.ones(num_queries, num_keys)[..., :]").status == "wrong"


def test_an_unknown_id_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r'there is no exercise "2\.9"; there are 2\.1, 2\.2, 2\.3, 2\.4'):
        check("2.9")


def test_the_graduation_is_no_exercise_and_says_what_it_is() -> None:
    with pytest.raises(ValueError, match=r"8\.3 is the graduation: call graduate\(\)"):
        check("8.3")


def test_an_id_is_text() -> None:
    with pytest.raises(ValueError, match=r'write the id as text: "2\.2"'):
        check(2.2)  # type: ignore[arg-type]


def test_only_functions_are_exercises() -> None:
    with pytest.raises(ValueError, match="stands above a function; this is a type"):
        course.exercise("2.2")(int)


def test_a_well_known_mistake_is_drawn_and_named() -> None:
    assert str(hand_in("2.2", TOP_LEFT)).splitlines() == [
        "[x]  2.2 chunk_mask - wrong for 3 queries, 7 keys: 12 of 21 cells differ.",
        "     yours     expected   difference",
        "     1000000   1111100    .xxxx..",
        "     1100000   1111110    ..xxxx.",
        "     1110000   1111111    ...xxxx",
        "     Likely cause: your rows count from 0, but the first new token stands at position num_keys -",
        "     num_queries.",
    ]


def test_success_shows_the_reference_and_one_why() -> None:
    assert str(hand_in("2.2", GOOD)).splitlines()[:6] == [
        "[ok] 2.2 chunk_mask - correct, and now part of the engine (3 requests, same tokens as alone).",
        "     Yours: 2 lines. The reference is below; say to yourself where it differs and whether that matters.",
        "         query_pos = torch.arange(num_keys - num_queries, num_keys)",
        "         key_pos = torch.arange(num_keys)",
        "         return key_pos[None, :] <= query_pos[:, None]",
        "     Why: positions stay true when rows of one mask belong to different requests (chapter 06). Row",
    ]


def test_an_exception_shows_the_learners_line_and_nothing_of_ours() -> None:
    assert str(body("lengths = {}\nreturn lengths['k']")).splitlines() == [
        "[!]  2.2 chunk_mask - your code stopped: line 6: KeyError: 'k'.",
        "         return lengths['k']",
        "     That was with 3 queries, 7 keys.",
    ]


def test_an_exception_deep_in_torch_is_shown_at_the_learners_line() -> None:
    report = body("return torch.nn.functional.softmax(num_queries)")
    assert report.headline.startswith("your code stopped: line 5: ")
    assert report.details[-2].strip() == "return torch.nn.functional.softmax(num_queries)"


def test_exit_does_not_end_the_session() -> None:
    assert "SystemExit" in body("raise SystemExit").headline


@pytest.mark.parametrize(
    "loop",
    [
        "while True:\n    pass",
        "try:\n    while True:\n        pass\nexcept:\n    while True:\n        pass",
    ],
)
def test_an_endless_loop_is_interrupted(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minicb.course.trial.LIMIT_S", 0.2)
    report = body(loop)
    assert "still running after 0.2 seconds. Does every loop end?" in words(report)
    assert report.details


def test_after_an_interrupted_loop_nothing_more_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minicb.course.trial.LIMIT_S", 0.05)
    for _ in range(5):
        body("while True:\n    try:\n        pass\n    except:\n        pass")
        sum(range(10_000))
    time.sleep(0.7)
    sum(range(10_000))


def test_an_interrupted_loop_leaves_nothing_that_hangs_a_debugger() -> None:
    code = """
import contextlib, sys
from minicb.course.trial import TooLong, limited

def endless():
    while True:
        pass

def watched():
    return 3

with contextlib.suppress(TooLong):
    limited(endless, 0.05)
sys.settrace(lambda *_: None)
print(watched())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=60, check=True)
    assert done.stdout == "3\n"


def test_the_stop_button_stops_the_check() -> None:
    with pytest.raises(KeyboardInterrupt):
        body("raise KeyboardInterrupt")


def test_a_mistake_that_looks_like_a_well_known_one_once_gets_no_advice() -> None:
    report = body("return torch.ones(num_queries, num_keys, dtype=torch.bool).tril(num_keys - 7)")
    assert report.headline.startswith("wrong for 3 queries, 7 keys")
    assert "Likely cause" not in str(report)


def test_what_is_saved_must_be_right_not_only_what_ran() -> None:
    """A decorator, say, would be missing in the saved text."""
    workbench["2.2"] = Attempt("2.2", find("2.2").right[0], TOP_LEFT.strip(), "<cell>")
    report = check("2.2")
    assert report.headline.startswith("wrong for 3 queries, 7 keys")
    assert not SEAMS["2.2"].yours


def test_a_missing_return_is_named() -> None:
    assert "it returns None: is a return missing?" in words(body("query_pos = 1"))


def test_a_list_is_not_a_tensor() -> None:
    assert "should be a Tensor, yours a list." in words(body("return [[True] * num_keys] * num_queries"))


def test_a_wrong_shape_says_both_shapes() -> None:
    report = body("return torch.ones(num_keys, num_keys, 1, dtype=torch.bool)")
    assert "shape should be [3, 7], yours [7, 7, 1]." in words(report)


def test_a_wrong_dtype_says_both() -> None:
    text = "return torch.ones(num_queries, num_keys).tril(num_keys - num_queries)"
    assert "dtype should be bool, yours float32." in words(body(text))


def test_small_case_right_others_wrong_shows_sizes_but_no_answers() -> None:
    report = body("return torch.ones(num_queries, num_keys, dtype=torch.bool).tril(4)")
    assert re.match(r"right for the small case, but wrong for \d queries, \d+ keys: \d+ of \d+ cells", report.headline)
    assert report.details == ()


def test_a_changed_input_is_named() -> None:
    report = hand_in("1.3", "def mix(weights, v):\n    v += 1\n    return torch.einsum('hts,shd->thd', weights, v)\n")
    assert "it changes its input v, which others still need." in words(report)


def test_another_name_is_asked_for() -> None:
    report = hand_in("2.2", GOOD.replace("chunk_mask", "my_mask"))
    assert str(report) == "[!]  2.2 chunk_mask - the cell above defines my_mask; call it chunk_mask."


def test_other_parameters_are_shown_as_the_engine_passes_them() -> None:
    report = hand_in("2.2", "def chunk_mask(n):\n    return n\n")
    assert report.headline == "the engine calls it with (num_queries, num_keys), yours takes (n)."


def test_parameters_may_have_other_names() -> None:
    assert hand_in("2.2", GOOD.replace("num_queries", "t").replace("num_keys", "s")).ok


def test_a_name_of_the_notebook_only_is_named() -> None:
    report = hand_in("2.2", GOOD.replace("query_pos[:, None]", "query_pos[:, None] + OFFSET"), OFFSET=0)
    assert str(report) == (
        "[!]  2.2 chunk_mask - name 'OFFSET' exists only in the notebook: put it inside the function."
    )
    assert not SEAMS["2.2"].yours


def test_a_helper_of_the_notebook_is_named() -> None:
    notebook: dict[str, Any] = {"__name__": "__main__"}
    exec("import torch\ndef positions(n):\n    return torch.arange(n)", notebook)
    source = GOOD.replace("torch.arange(num_keys)", "positions(num_keys)")
    assert "name 'positions' exists only in the notebook" in words(
        hand_in("2.2", source, positions=notebook["positions"])
    )


def test_modules_and_their_functions_become_imports(home: Path) -> None:
    text = GOOD.replace("torch.arange", "count").replace(
        "def chunk_mask(num_queries", "def chunk_mask(num_queries: Tensor"
    )
    assert hand_in("2.2", text, count=torch.arange, Tensor=torch.Tensor).ok
    saved = (home / ".minicb" / "work" / "2.2_chunk_mask.py").read_text(encoding="utf-8")
    assert "from torch import arange as count\n" in saved
    assert "from torch import Tensor\n" in saved


def test_an_earlier_exercise_becomes_an_import_of_its_part(home: Path) -> None:
    causal_mask = course.exercise("2.1")(find("2.1").right[0])
    source = """
def block_mask(lengths):
    total = sum(lengths)
    return torch.block_diag(*[causal_mask(n) for n in lengths]).reshape(total, total).bool()
"""
    assert hand_in("2.3", source, causal_mask=causal_mask).ok
    saved = (home / ".minicb" / "work" / "2.3_block_mask.py").read_text(encoding="utf-8")
    assert "from minicb.masks import causal_mask\n" in saved


def test_the_engines_own_version_is_no_answer() -> None:
    report = hand_in("2.2", "def chunk_mask(a, b):\n    return theirs(a, b)\n", theirs=chunk_mask)
    assert "it cannot call itself" in words(report)


def test_a_right_answer_runs_in_the_engine_from_now_on() -> None:
    assert hand_in("2.2", GOOD).ok
    seams.begin_receipt()
    chunk_mask(2, 5)
    assert SEAMS["2.2"].counts() == {"yours": 1}


def test_a_wrong_answer_leaves_the_earlier_right_one_in_place() -> None:
    hand_in("2.2", GOOD)
    before = SEAMS["2.2"].installed
    hand_in("2.2", TOP_LEFT)
    assert SEAMS["2.2"].installed is before
    later = str(hand_in("2.2", "def chunk_mask(a, b):\n    ...\n"))
    assert later.startswith(NOT_YET)
    assert 'mine("2.2")' in later


def test_a_check_leaves_the_counts_of_the_last_run_alone() -> None:
    seams.begin_receipt()
    chunk_mask(1, 2)
    hand_in("2.2", TOP_LEFT)
    assert SEAMS["2.2"].counts() == {"reference": 1}


def test_what_the_function_prints_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    hand_in("2.2", GOOD.replace("    # nor", "    print('here', num_keys)\n    # nor"))
    assert capsys.readouterr().out.count("here 7\n") <= 2


def test_a_failed_check_raises_only_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not hand_in("2.2", TOP_LEFT).ok
    monkeypatch.setenv("MINICB_STRICT", "1")
    with pytest.raises(CheckFailedError, match="wrong for 3 queries"):
        hand_in("2.2", TOP_LEFT)
    assert hand_in("2.2", GOOD).ok


def test_a_report_is_ascii() -> None:
    assert str(body("raise ValueError('\u00e4\u2192')")).isascii()


def test_a_report_is_not_shown_a_second_time_by_the_notebook() -> None:
    assert hand_in("2.2", TOP_LEFT)._ipython_display_() is None


def test_the_text_is_found_in_a_file(tmp_path: Path) -> None:
    import importlib.util

    path = tmp_path / "cell.py"
    path.write_text(f"from minicb.course import exercise\n{IMPORTS}@exercise('2.2'){GOOD}", encoding="utf-8")
    spec = importlib.util.spec_from_file_location("cell", path)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert check("2.2").ok


def test_a_right_answer_from_the_spec_passes_as_text() -> None:
    assert hand_in("2.2", right("2.2")).ok
