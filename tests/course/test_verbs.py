"""The verbs and the folder behind them: nothing is locked, nothing is lost, nothing crashes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from learner import forget, hand_in, out, right, saved, words

import minicb.course as course
from minicb import cli, seams
from minicb.attention import weights
from minicb.course import work
from minicb.course.answer import generate
from minicb.course.spec import chapters, exercises, find
from minicb.engine import Engine
from minicb.masks import causal_mask, chunk_mask
from minicb.seams import SEAMS, NotYours
from minicb.weights import random_model

OTHER = """
def chunk_mask(num_queries, num_keys):
    square = torch.ones(num_keys, num_keys, dtype=torch.bool).tril()
    return square[num_keys - num_queries :]
"""
BLOCK = """
def block_mask(lengths):
    blocks = [causal_mask(n) for n in lengths]
    return torch.block_diag(*blocks, torch.ones(0, 0)).bool()
"""


# ---- looking back, starting afresh


def test_reset_puts_aside_and_deletes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hand_in("2.2", right("2.2"))
    out(capsys)
    course.reset("2.2")
    assert out(capsys) == "2.2 chunk_mask: not written yet again. What you had is .minicb/attic/2.2_chunk_mask.1.py\n"
    assert saved(home) == []
    assert not SEAMS["2.2"].yours
    assert course.check("2.2").status == "blank"


def test_reset_of_everything(home: Path) -> None:
    for id in ("2.1", "2.2"):
        hand_in(id, right(id))
    course.reset()
    assert saved(home) == []
    assert saved(home, "attic") == ["2.1_causal_mask.1.py", "2.2_chunk_mask.1.py"]


def test_use_reference_keeps_the_file(home: Path) -> None:
    hand_in("2.2", right("2.2"))
    course.use_reference("2.2")
    assert not SEAMS["2.2"].yours
    assert saved(home) == ["2.2_chunk_mask.py"]
    course.check("2.2")
    assert SEAMS["2.2"].yours


def test_mine_shows_the_saved_text(capsys: pytest.CaptureFixture[str]) -> None:
    course.mine("2.2")
    assert "nothing saved yet" in out(capsys)
    hand_in("2.2", OTHER)
    out(capsys)
    course.mine("2.2")
    assert OTHER.strip() in out(capsys)
    course.mine()
    assert out(capsys) == ".minicb/work/2.2_chunk_mask.py  (yours)\n"


def test_catch_up_fills_gaps_and_overwrites_nothing(home: Path) -> None:
    hand_in("1.3", right("1.3"))
    mine = (home / ".minicb/work/1.3_mix.py").read_text(encoding="utf-8")
    course.catch_up(2)
    assert (home / ".minicb/work/1.3_mix.py").read_text(encoding="utf-8") == mine
    owners = {id: one.seam.owner for id, one in exercises().items() if one.seam.chapter <= 2}
    assert owners.pop("1.3") == "yours"
    assert {id: owner for id, owner in owners.items() if not id.startswith("2.")} == dict.fromkeys(
        ["0.1", "1.1", "1.2", "1.4", "1.5"], "catch-up"
    )
    assert {owner for id, owner in owners.items() if id.startswith("2.")} == {"reference"}
    forget()
    work.load()
    assert SEAMS["1.1"].owner == "catch-up"


def test_a_catch_up_copy_gives_way_to_the_learners_own(home: Path) -> None:
    course.catch_up(3)
    hand_in("2.2", right("2.2"))
    assert SEAMS["2.2"].yours
    assert not (home / ".minicb/work/2.2_chunk_mask.py").read_text(encoding="utf-8").startswith("# catch-up")


def test_a_broken_file_of_the_learners_is_not_overwritten_by_catch_up(home: Path) -> None:
    hand_in("2.2", right("2.2"))
    path = home / ".minicb/work/2.2_chunk_mask.py"
    path.write_text("# half a thought", encoding="utf-8")
    forget()
    course.catch_up(3)
    assert path.read_text(encoding="utf-8") == "# half a thought"


@pytest.mark.parametrize("chapter", [-1, 1000])
def test_nobody_catches_up_to_a_chapter_that_is_not_there(chapter: int, home: Path) -> None:
    with pytest.raises(ValueError, match=f"there is no chapter {chapter} to catch up to: the last one is "):
        course.catch_up(chapter)
    assert not list(home.rglob("*.py"))


def test_a_second_catch_up_copies_nothing_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    course.catch_up(1)
    assert out(capsys).startswith("Copied for you: 0.1 greedy_pick.\n")
    course.catch_up(1)
    assert out(capsys) == "Nothing is missing before chapter 1: 1 catch-up copy is there already.\n"
    hand_in("0.1", right("0.1"))
    out(capsys)
    course.catch_up(1)
    assert out(capsys) == "Nothing is missing before chapter 1.\n"


def test_after_catching_up_the_map_leads_to_what_is_missing() -> None:
    course.catch_up(2)
    assert "Next: 2.1 causal_mask" in str(course.progress())
    course.catch_up(max(chapters()) + 1)
    assert "Next: 0.1 greedy_pick" in str(course.progress())


@pytest.mark.parametrize("verb", [course.start, course.catch_up])
def test_a_chapter_is_a_number(verb: Callable[[Any], None]) -> None:
    with pytest.raises(ValueError, match=f"as a number, as in {verb.__name__}\\(2\\); this is '6'"):
        verb("6")


# ---- hints and solutions


def test_hints_come_in_three_rungs(capsys: pytest.CaptureFixture[str]) -> None:
    exercise = find("2.4")
    shown = []
    for _ in range(4):
        course.hint("2.4")
        shown.append(out(capsys))
    assert exercise.question in words(shown[0])
    assert "1. " + exercise.steps[0] in shown[1]
    assert "  return same & past\n" in shown[2]
    assert shown[3] == shown[2]


def test_solution_is_the_engines_own_text(capsys: pytest.CaptureFixture[str]) -> None:
    course.solution("2.2")
    said = out(capsys)
    assert said.startswith("# 2.2 chunk_mask, the reference, from minicb.masks\ndef chunk_mask(")
    assert "@seam" not in said


def test_start_says_what_is_yours(capsys: pytest.CaptureFixture[str]) -> None:
    hand_in("2.2", right("2.2"))
    out(capsys)
    course.start(2)
    said = out(capsys)
    assert "    2.2  chunk_mask         yours\n" in said
    assert "    2.1  causal_mask        4 minutes\n" in said
    assert "nothing is locked" in said
    with pytest.raises(ValueError, match="there is no chapter 99"):
        course.start(99)


# ---- predictions


def test_a_guess_is_kept_and_shown_beside_the_truth(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    course.predict("2.P2", None)
    course.measured("2.P2", 18)
    course.predict("2.P2", 21)
    course.measured("2.P2", torch.tensor(18))
    course.predict("2.P2", None)
    course.predict("2.P2", 18)
    course.measured("2.P2", 18)
    assert out(capsys).splitlines() == [
        "2.P2  no guess yet: write yours instead of None. A wrong one teaches more than none.",
        "2.P2  measured: 18   (you made no guess)",
        "2.P2  your guess: 21. Run on and see.",
        "2.P2  measured: 18   your guess: 21, 3 too high",
        "2.P2  your guess from before: 21. Run on and see.",
        "2.P2  your guess: 18. Run on and see.",
        "2.P2  measured: 18   your guess: 18, right",
    ]
    assert json.loads((home / ".minicb/predictions.json").read_text(encoding="utf-8")) == {"2.P2": 18}


def test_guesses_may_be_words_lists_and_shares(capsys: pytest.CaptureFixture[str]) -> None:
    for guess, value in (([4, 4, 2], [4, 4, 2]), ("C", "A"), (0.33, 1 / 3), (0.2, 0.25)):
        course.predict("x", guess)
        course.measured("x", value)
    said = [line for line in out(capsys).splitlines() if "measured" in line]
    assert [line.split("   ")[1] for line in said] == [
        "your guess: [4, 4, 2], right",
        "your guess: C",
        "your guess: 0.33, 0.00333333 too low",
        "your guess: 0.2, 0.05 too low",
    ]


def test_a_damaged_file_of_guesses_costs_only_the_guesses(home: Path) -> None:
    (home / ".minicb").mkdir()
    (home / ".minicb/predictions.json").write_text("[", encoding="utf-8")
    course.predict("2.P2", 3)
    course.measured("2.P2", 3)


# ---- the map, the receipt, the trophy


def test_the_map_shows_what_is_yours() -> None:
    assert "[ok] 2.2 chunk_mask" not in str(course.progress())
    hand_in("2.2", right("2.2"))
    assert "[ok] 2.2 chunk_mask" in str(course.progress())
    assert "Next: 0.1 greedy_pick, 5 minutes, in notebooks/00." in str(course.progress())


def test_every_seam_is_on_the_map() -> None:
    text = str(course.progress())
    assert [id for id, point in SEAMS.items() if f" {id} {point.name[:20]}" not in text] == []


def test_the_receipt_says_whose_part_ran(capsys: pytest.CaptureFixture[str]) -> None:
    course.receipt()
    assert out(capsys) == "Nothing has run yet.\n"
    hand_in("2.1", right("2.1"))
    causal_mask(3)
    chunk_mask(1, 3)
    out(capsys)
    course.receipt()
    assert out(capsys).splitlines()[:2] == [
        "2.1  causal_mask        yours     1 call",
        "2.2  chunk_mask         reference 1 call  <- notebooks/02",
    ]


def test_the_first_fallback_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    seams.tell_once(course.say_fallback)
    causal_mask(2)
    chunk_mask(1, 2)
    assert out(capsys) == (
        "(note: what you have not written yet is the reference's; receipt() lists the parts that ran.)\n"
    )


# ---- in the engine


def test_run_anyway_runs_a_wrong_part_for_once(capsys: pytest.CaptureFixture[str]) -> None:
    hand_in("1.2", "def weights(scores, mask):\n    return scores * 0 + 1\n")
    scores, mask = torch.zeros(1, 1, 2), torch.ones(1, 2, dtype=torch.bool)
    with course.run_anyway("1.2"):
        assert weights(scores, mask).tolist() == [[[1, 1]]]
    assert weights(scores, mask).tolist() == [[[0.5, 0.5]]]
    assert "1.2 weights is out again; the reference is back." in out(capsys)


def test_run_anyway_with_a_prompt_shows_the_learners_line(capsys: pytest.CaptureFixture[str]) -> None:
    hand_in("1.2", "def weights(scores, mask):\n    return scores[9, 9, 9]\n")
    out(capsys)
    course.run_anyway("1.2", [1, 2, 3], model=random_model())
    said = out(capsys)
    assert said.startswith("The engine stopped at line 5: return scores[9, 9, 9]\nIndexError: ")
    with pytest.raises(ValueError, match="not written yet"):
        course.run_anyway("1.3")


def test_answer_says_whose_parts_ran(capsys: pytest.CaptureFixture[str]) -> None:
    model = random_model()
    course.answer([3, 1, 4, 1, 5], model=model, max_tokens=4)
    tokens, whose = out(capsys).splitlines()
    assert whose.startswith("yours: nothing yet; the reference: ")
    hand_in("2.2", right("2.2"))
    out(capsys)
    course.answer([3, 1, 4, 1, 5], model=model, max_tokens=4, feed=[3, 2])
    fed, whose = out(capsys).splitlines()
    assert fed == tokens
    assert whose.startswith("yours: 2.2 chunk_mask 4 calls; the reference: ")


def test_answer_refuses_pieces_that_do_not_add_up() -> None:
    with pytest.raises(ValueError, match=r"feed \[3, 3\] adds up to 6, but the prompt has 5 tokens"):
        course.answer([3, 1, 4, 1, 5], model=random_model(), feed=[3, 3])


def test_strict_is_passed_only_when_every_part_is_the_learners() -> None:
    for id, point in SEAMS.items():
        seams.install(id, point.reference)
    engine = Engine(random_model(), max_num_seqs=1, max_model_len=16)
    with seams.strict():
        assert generate(engine, [1, 2, 3], [], 2)
        seams.uninstall("2.2")
        with pytest.raises(NotYours, match=r"2\.2 chunk_mask is not yours yet"):
            generate(Engine(random_model(), max_num_seqs=1, max_model_len=16), [1, 2, 3], [], 2)


# ---- the commands


@pytest.mark.parametrize("arguments", [["progress"], ["mine"], ["mine", "2.2"], ["reset", "2.2"], ["reset", "--all"]])
def test_the_commands_work(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    hand_in("2.2", right("2.2"))
    out(capsys)
    assert cli.main(arguments) == 0
    assert "chunk_mask" in out(capsys)


def test_reset_wants_to_know_what(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reset"]) == 1
    assert "minicb reset 2.2" in capsys.readouterr().err
