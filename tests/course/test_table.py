"""The growing table: counts that a person can check by hand, and rows that speak about the learner's own parts."""

from __future__ import annotations

import pytest
import torch

from minicb import seams
from minicb.course.table import METHODS, SIXTEEN, THREE, grow_table, longest_gap, measure, records
from minicb.course.trial import one_thread
from minicb.metrics import Entry, StepRecord


def row(name: str, workload=THREE):  # type: ignore[no-untyped-def]
    return measure(name, METHODS[name], workload)


def test_the_three_requests_are_those_of_the_course() -> None:
    assert {name: (len(ids), n) for name, (ids, n) in THREE.requests.items()} == {"A": (3, 4), "B": (9, 5), "C": (4, 6)}
    assert THREE.needed == (3 + 3) + (9 + 4) + (4 + 5)


def test_naive_reads_everything_again_for_each_token() -> None:
    naive = row("naive")
    lengths = [*range(3, 7), *range(9, 14), *range(4, 10)]
    assert (naive.steps, naive.computed, naive.longest_gap) == (15, sum(lengths), 13)
    assert naive.useful_share == pytest.approx(28 / 112)
    assert [step.token_slots for step in records("naive")] == lengths


@pytest.mark.parametrize("name", METHODS)
def test_every_method_gives_the_same_tokens(name: str) -> None:
    assert row(name).identical


@pytest.mark.parametrize("name", ["cached", "chunked", "ragged", "continuous"])
def test_a_method_without_padding_computes_each_token_once(name: str) -> None:
    assert row(name).computed == THREE.needed


def test_the_story_of_the_sixteen() -> None:
    """What the chapters say about them."""
    static, dynamic, ragged, continuous = (
        row(n, SIXTEEN) for n in ("padded", "padded, dynamic", "ragged", "continuous")
    )
    assert dynamic.steps < static.steps
    assert dynamic.longest_gap > SIXTEEN.rows * 20 > static.longest_gap
    assert ragged.steps == static.steps
    assert ragged.computed < static.computed
    assert continuous.steps < 0.7 * ragged.steps
    assert continuous.longest_gap <= SIXTEEN.budget


def test_a_part_that_changes_the_answers_shows_in_the_table() -> None:
    even = lambda scores, mask: mask / mask.sum(dim=-1, keepdim=True) + torch.zeros_like(scores)  # noqa: E731
    with seams.swapped("1.2", even):
        assert not row("naive").identical
        assert set(seams.SEAMS["1.2"].counts()) == {"yours"}
    assert row("naive").identical


def test_the_wait_for_a_first_token_is_no_gap() -> None:
    def step(*sampled: str) -> StepRecord:
        entries = tuple(Entry(name, 5, 0, 5, sampled=True) for name in sampled)
        return StepRecord(0, entries, (), (), 0, 5 * len(entries), 5 * len(entries), 0, 0, 0, 0)

    assert longest_gap([]) == 0
    assert longest_gap([step("A"), step("B")]) == 0
    assert longest_gap([step("A"), step("B"), step("A", "B")]) == 15


@one_thread()
def test_the_table_as_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    grow_table("naive", ("mine", METHODS["cached"]), workloads=(THREE,))
    assert capsys.readouterr().out.splitlines() == [
        "three requests: 16 tokens to read, 15 to write",
        "                    tokens identical?  steps  tokens computed  useful share  longest gap",
        "naive               yes                   15              112          25 %           13",
        "mine                yes                   15               28         100 %            1",
    ]
