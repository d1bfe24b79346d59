"""The dispatcher: who is called, who is counted, what happens where nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from minicb import Engine, SamplingParams, seams
from minicb.seams import SEAMS, NotYours, install, learner_owns, receipt, seam, strict, swapped, uninstall
from minicb.weights import random_model

Double = Callable[[int], int]


@pytest.fixture
def double() -> Iterator[Double]:
    """A seam of its own, bound to a name before anything is installed, as an old import would be."""

    @seam("99.1")
    def double(x: int) -> int:
        """Twice."""
        return 2 * x

    yield double
    del SEAMS["99.1"]


def lines() -> list[tuple[str, str, int]]:
    return [(line.id, line.owner, line.calls) for line in receipt() if line.id == "99.1"]


def test_an_old_import_reaches_the_version_of_the_moment(double: Double) -> None:
    assert double(4) == 8
    install("99.1", lambda x: x + 100)
    assert double(4) == 104
    uninstall("99.1")
    assert double(4) == 8


def test_the_name_and_the_text_of_the_reference_stay_visible(double: Double) -> None:
    assert double.__name__ == "double"
    assert double.__doc__ == "Twice."


def test_calls_are_counted_for_whoever_was_called(double: Double) -> None:
    double(1)
    install("99.1", lambda x: x)
    double(1)
    double(1)
    install("99.1", lambda x: x, "catch-up")
    double(1)
    assert lines() == [("99.1", "reference", 1), ("99.1", "yours", 2), ("99.1", "catch-up", 1)]


def test_a_receipt_begins_at_zero(double: Double) -> None:
    double(1)
    seams.begin_receipt()
    assert lines() == []
    double(1)
    assert lines() == [("99.1", "reference", 1)]
    install("99.1", lambda x: x)
    seams.begin_receipt()
    double(1)
    assert lines() == [("99.1", "yours", 1)]


def test_an_identical_copy_is_yours_once_it_is_installed(double: Double) -> None:
    install("99.1", SEAMS["99.1"].reference)
    double(1)
    assert lines() == [("99.1", "yours", 1)]
    assert learner_owns(99)


@pytest.mark.usefixtures("double")
def test_a_catch_up_copy_is_not_the_learners() -> None:
    install("99.1", lambda x: x, "catch-up")
    assert not learner_owns(99)


def test_a_line_of_the_receipt_says_where_to_write_it(double: Double) -> None:
    double(1)
    assert str(receipt()[-1]) == "99.1 double             reference 1 call  <- notebooks/99"
    install("99.1", lambda x: x)
    seams.begin_receipt()
    double(1)
    double(1)
    assert str(receipt()[-1]) == "99.1 double             yours     2 calls"


def test_strict_turns_a_fallback_into_an_error(double: Double) -> None:
    with strict(), pytest.raises(NotYours, match=r"99\.1 double is not yours yet: write it in notebooks/99"):
        double(1)
    assert double(1) == 2


def test_strict_lets_the_learners_own_run(double: Double) -> None:
    with strict():
        install("99.1", lambda x: x)
        assert double(1) == 1


def test_strict_does_not_take_a_catch_up_copy_for_the_learners(double: Double) -> None:
    install("99.1", lambda x: x, "catch-up")
    with strict(), pytest.raises(NotYours, match="catch-up copy"):
        double(1)


def test_a_fallback_is_told_once(double: Double) -> None:
    told: list[str] = []
    seams.tell_once(lambda point: told.append(point.id))
    assert double(3) == 6
    assert double(3) == 6
    assert told == ["99.1"]
    assert SEAMS["99.1"].active is SEAMS["99.1"].reference  # nothing stands in the way from then on


def test_swapped_gives_back_what_was_there(double: Double) -> None:
    install("99.1", lambda _: 1)
    with swapped("99.1", lambda _: 2):
        assert double(0) == 2
    assert double(0) == 1
    assert SEAMS["99.1"].owner == "yours"


def test_references_only_leaves_owners_and_counts_as_they_were(double: Double) -> None:
    install("99.1", lambda _: 1)
    double(0)
    with seams.references_only():
        assert double(4) == 8
        assert not learner_owns(99)
    assert double(0) == 1
    assert lines() == [("99.1", "yours", 2)]


def test_without_a_learner_a_call_goes_straight_to_the_reference() -> None:
    assert all(point.active is point.reference for point in SEAMS.values())


def test_ids_are_sorted_as_numbers() -> None:
    assert sorted(["2.10", "2.9", "10.1", "2.1"], key=seams.order) == ["2.1", "2.9", "2.10", "10.1"]


def test_a_new_generation_starts_a_new_receipt() -> None:
    engine = Engine(random_model(), attention="reference", max_model_len=16)
    for _ in range(2):
        engine.add_request([1, 2, 3], SamplingParams(max_tokens=2))
        while engine.has_unfinished_requests:
            engine.step()
        calls = {line.name: line.calls for line in seams.receipt()}
        assert calls["causal_mask"] == calls["chunk_mask"] == 1
