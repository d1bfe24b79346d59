"""Chapter 07's own engine runs: requests that come later, the audit of every step, the live view, the playground."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minicb.checkpoint import Tokenizer
from minicb.course import playground as play
from minicb.course import serving
from minicb.course.live import live, race
from minicb.course.serving import ARRIVE, SIX, Served, alone, audit, crowd, order_of, serve, workload
from minicb.course.spec import MismatchError
from minicb.course.table import SIXTEEN, Workload
from minicb.course.tiny import model
from minicb.scheduler import may_join
from minicb.step import run_plan


def test_a_request_runs_when_it_comes_and_an_idle_engine_does_not_wait_for_it() -> None:
    run = serve(SIX, arrive=ARRIVE)
    came = {name: record.step for record in run.records for name in record.arrived}
    assert came == {"A": 0, "B": 0, **ARRIVE}
    assert serve(workload([3], [2], 1, 8), arrive={"A": 99}).records[0].step == 0


def test_everybody_gets_the_tokens_that_it_gets_alone() -> None:
    assert serve(SIX, arrive=ARRIVE).answers == alone()


def test_the_clock_counts_tokens_so_that_latencies_add_up_exactly() -> None:
    run = serve(SIXTEEN, arrive={name: i for i, name in enumerate(SIXTEEN.requests)})
    for out in run.outputs.values():
        assert out.metrics.ttft_s is not None
        assert out.metrics.e2e_s == out.metrics.ttft_s + sum(out.metrics.itl_s)
        assert float(out.metrics.e2e_s).is_integer()
    assert max(gap for out in run.outputs.values() for gap in out.metrics.itl_s) <= SIXTEEN.budget


def test_the_seam_itself_as_a_part_is_what_is_installed() -> None:
    assert serve(SIX, parts={"7.1": may_join, "7.4": run_plan}).answers == alone()


def test_an_engine_in_which_nobody_starts_is_a_mismatch_and_not_a_hang() -> None:
    with pytest.raises(MismatchError, match="after step 0 nobody runs any more, and 6 still wait"):
        serve(SIX, parts={"7.1": lambda *_: False})


def test_a_good_run_passes_its_audit_with_one_budget_or_several_in_turn() -> None:
    audit(serve(SIX, arrive=ARRIVE), SIX.rows, SIX.budget)
    audit(serve(SIX, arrive=ARRIVE, budgets=[8, 3], long_prefill_token_threshold=4), SIX.rows, 8, 3)


@pytest.mark.parametrize(
    ("spoil", "rows", "complaint"),
    [
        (lambda r: replace(r, token_slots=9), 3, "computes 9 tokens; the budget is 8"),
        (lambda r: r, 2, "runs 3 requests; the limit is 2"),
        (lambda r: replace(r, entries=(replace(r.entries[0], num_new=0), *r.entries[1:])), 3, "gets no token"),
        (lambda r: replace(r, entries=r.entries[1:]), 3, "A is left out, though it is running"),
        (lambda r: replace(r, num_waiting=1), 4, "somebody waits, though a place is free and 5 of the budget left"),
    ],
)
def test_the_audit_names_what_is_wrong_with_a_step(spoil: Any, rows: int, complaint: str) -> None:
    run = serve(workload([2, 3, 3], [4, 4, 4], 3, 8))
    broken = [spoil(record) if record.step == 2 else record for record in run.records]
    with pytest.raises(MismatchError, match=complaint):
        audit(Served(broken, run.outputs), rows, 8)


def test_in_a_crowd_the_three_orders_treat_the_long_prompt_differently() -> None:
    work, arrive = crowd(9)
    policies = ("fcfs", "hrrn", "shortest_prefill_first")
    orders = [order_of(serve(work, arrive=arrive, policy=policy).records) for policy in policies]
    assert [order.index("B") for order in orders] == [1, 7, 10]


def test_the_checks_last_probes_pass_with_the_references() -> None:
    assert serving.limits_kept() == "6 requests under 5 limits, same tokens as alone"
    assert serving.ends_right() == "6 answers, each as long as it may be"
    assert serving.fair_order().startswith("a crowd of 11")


# ---- the live view


class Letters:
    """A tokenizer of single letters."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) - 96 for letter in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(96 + id % 26) for id in ids)


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer: Tokenizer = Letters()  # type: ignore[assignment]
    monkeypatch.setattr("minicb.course.live.packaged_model", lambda: (model(), tokenizer))


@pytest.mark.usefixtures("letters")
def test_a_line_is_a_step_and_a_column_a_request(capsys: pytest.CaptureFixture[str]) -> None:
    prompts = {"A": "abc", "B": "de", "C": "fghij"}
    shown = live(prompts, places=2, budget=4, max_tokens={"A": 1, "B": 2, "C": 1})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["step", "tokens", *prompts]
    assert len(lines) == len(shown.records) + 2
    assert lines[1].split() == ["0", "4", "reads", "3", repr(shown.texts["A"]), "reads", "1", "..."]
    assert all(
        live({name: text}, max_tokens=2, quiet=True).ids[name][0] == shown.ids[name][0]
        for name, text in prompts.items()
    )


@pytest.mark.usefixtures("letters")
def test_a_race_runs_both_ways_on_the_same_requests(capsys: pytest.CaptureFixture[str]) -> None:
    race([3, 6, 2], [2, 3, 2], places=2, budget=4)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["dynamic", "continuous"]
    assert int(lines[1].split()[3]) == 3 + 6 + 2 + 1 + 2 + 1  # each token once, but for the last of an answer


# ---- the playground


@pytest.mark.parametrize("text", ["", "a", "0", "31", "1 2 3 4 5 6 7 8 9", "2.5"])
def test_a_length_that_cannot_be_drawn_is_one_clear_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    play.show_typed(text, "3", 1, 8)
    said = capsys.readouterr().out.splitlines()
    assert said == ["prompts: write 1 to 8 whole numbers from 1 to 30, for example 6 3 4"]


def test_prompts_and_answers_must_be_as_many(capsys: pytest.CaptureFixture[str]) -> None:
    play.show_typed("3, 4", "3", 1, 8)
    assert capsys.readouterr().out == "2 prompts but 1 answers: as many of both, please\n"


def test_three_schedules_serve_the_same_and_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    play.compare_schedules([3, 5], [2, 3], places=2, budget=4)
    head, *rows = capsys.readouterr().out.splitlines()[:4]
    assert head == play.HEAD
    assert [row.split()[0] for row in rows] == ["static", "dynamic", "continuous"]
    useful = 3 + 5 + 1 + 2
    assert [int(row.split()[2]) - int(row.split()[3]) for row in rows] == [useful] * 3


def test_the_wait_for_a_first_token_counts_what_was_computed_before_it() -> None:
    steps = play.run_schedules(workload([3, 5], [2, 3], 1, 8))["continuous"]
    assert play.first_tokens(steps) == {"A": 3, "B": 3 + 1 + 5}


def test_an_example_fills_all_boxes_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    widgets = pytest.importorskip("ipywidgets")
    box = play.playground()
    preset, *boxes = [child for child in box.children if not isinstance(child, widgets.Output)]
    capsys.readouterr()
    for name, values in play.PRESETS.items():
        preset.value = name
        assert tuple(one.value for one in boxes) == values


def test_every_example_can_be_drawn() -> None:
    for prompts, answers, places, budget in play.PRESETS.values():
        reads, writes = play.read_lengths("prompts", prompts), play.read_lengths("answers", answers)
        runs = play.run_schedules(Workload("", workload(reads, writes, places, budget).requests, places, budget))
        assert all(len(steps) >= max(writes) for steps in runs.values())
