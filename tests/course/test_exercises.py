"""Every exercise of every chapter that there is: mistakes are named, right answers pass, the engine runs them."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from learner import handed_in, words

from minicb import seams
from minicb.course.attempt import Attempt, attempt_from_source, reference_attempt, standalone
from minicb.course.check import NUM_CASES, all_cases, examine, probe
from minicb.course.report import MAX_LINES
from minicb.course.spec import Case, Exercise, chapters, exercises
from minicb.course.trial import attempt_call
from minicb.course.verbs import shuffled_pieces
from minicb.seams import SEAMS

ALL = list(exercises().values())
TWINS = [pytest.param(one, twin, id=f"{one.id}-{twin.name}") for one in ALL for twin in one.twins]
RIGHT = [pytest.param(one, function, id=f"{one.id}-{function.__name__}") for one in ALL for function in one.right]
IN_ENGINE = [one for one in ALL if one.in_engine]


def label(value: object) -> str:
    return value.id if isinstance(value, Exercise) else str(value)


@pytest.mark.parametrize(("exercise", "twin"), TWINS)
def test_a_well_known_mistake_is_rejected_with_its_own_advice(exercise: Exercise, twin: Any) -> None:
    report, clean = examine(exercise, handed_in(exercise, twin.function))
    assert not report.ok
    assert clean is None
    assert f"Likely cause: {twin.advice}" in words(report)
    assert len(str(report).splitlines()) <= MAX_LINES


@pytest.mark.parametrize(("exercise", "function"), RIGHT)
def test_a_right_answer_passes_however_it_is_written(exercise: Exercise, function: Callable[..., Any]) -> None:
    report, clean = examine(exercise, handed_in(exercise, function))
    assert report.ok, str(report)
    assert clean is not None
    assert len(str(report).splitlines()) <= MAX_LINES


@pytest.mark.parametrize("exercise", ALL, ids=label)
def test_there_are_two_different_right_answers_and_neither_is_the_reference(exercise: Exercise) -> None:
    texts = {inspect.getsource(function).split(":", 1)[1] for function in exercise.right}
    assert len(texts) >= 2
    assert reference_attempt(exercise.id).source.split('"""')[-1] not in texts


@pytest.mark.parametrize("exercise", ALL, ids=label)
def test_the_reference_passes_its_own_check(exercise: Exercise) -> None:
    report, _ = examine(exercise, reference_attempt(exercise.id))
    assert report.ok, str(report)


@pytest.mark.parametrize("exercise", ALL, ids=label)
def test_an_answer_that_is_always_the_same_fails(exercise: Exercise) -> None:
    first = attempt_call(exercise.seam.reference, exercise.tiny)

    def last_seen(*args: Any, **kwargs: Any) -> Any:  # noqa: ARG001
        return copy.deepcopy(first.value)

    def nothing(*args: Any, **kwargs: Any) -> None:  # noqa: ARG001
        return None

    def zero(*args: Any, **kwargs: Any) -> Any:
        right = attempt_call(exercise.seam.reference, Case(args, "", kwargs)).value
        return torch.zeros_like(right) if isinstance(right, torch.Tensor) else type(right)()

    for constant in (last_seen, nothing) if first.value is None else (last_seen, nothing, zero):
        attempt = Attempt(exercise.id, constant, reference_attempt(exercise.id).source, "<constant>")
        assert probe(exercise, attempt) is not None, constant.__name__


@pytest.mark.parametrize("exercise", ALL, ids=label)
def test_the_cases_are_enough_the_same_every_time_and_never_larger_than_they_need_be(exercise: Exercise) -> None:
    first, again = list(all_cases(exercise)), list(all_cases(exercise))
    assert len(first) == NUM_CASES + 1
    assert [case.about for case in first] == [case.about for case in again]
    assert len({case.about for case in first}) > NUM_CASES // 3, "the cases are nearly all alike"


@pytest.mark.parametrize("exercise", IN_ENGINE, ids=label)
def test_the_engine_calls_an_identical_copy_and_counts_it_as_yours(exercise: Exercise) -> None:
    copied = attempt_from_source(exercise.id, standalone(reference_attempt(exercise.id)))
    with seams.swapped(exercise.id, copied.function):
        seams.begin_receipt()
        assert exercise.in_engine()
        assert exercise.seam.counts().get("yours", 0) > 0


@pytest.mark.parametrize("exercise", IN_ENGINE, ids=label)
def test_a_broken_part_changes_what_the_engine_does(exercise: Exercise) -> None:
    assert any(engine_minds(exercise, twin.function) for twin in exercise.twins)


def engine_minds(exercise: Exercise, function: Callable[..., Any]) -> bool:
    with seams.swapped(exercise.id, function):
        try:
            exercise.in_engine()
        except Exception:
            return True
    return False


@pytest.mark.parametrize("number", chapters())
def test_a_chapter_needs_nothing_of_later_ones(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    later = [point for point in SEAMS.values() if point.chapter > number]
    own = list(chapters()[number].exercises)

    def not_taught_yet(*args: Any, **kwargs: Any) -> None:  # noqa: ARG001
        raise AssertionError("this is taught later")

    with seams.references_only():
        for point in later:
            seams.install(point.id, not_taught_yet)
        for exercise in own:
            assert probe(exercise, handed_in(exercise, exercise.right[0])) is None, exercise.label
    for point in later:
        monkeypatch.delitem(SEAMS, point.id)
    for exercise in own:
        assert examine(exercise, handed_in(exercise, exercise.right[1]))[0].ok, exercise.label


@pytest.mark.parametrize("exercise", ALL, ids=label)
def test_hints_lead_to_the_solution_without_being_it(exercise: Exercise) -> None:
    assert exercise.question.strip().endswith(("?", "it."))
    assert len(exercise.steps) >= 2
    pieces = shuffled_pieces(exercise)
    assert len(pieces) >= 3, "give `pieces`: a shuffled single line is the solution"
    body = reference_attempt(exercise.id).source
    assert not any(words(step) in words(body) for step in exercise.steps)


def test_ids_belong_to_their_chapter_and_come_in_order() -> None:
    for chapter in chapters().values():
        assert [one.id for one in chapter.exercises] == sorted((one.id for one in chapter.exercises), key=seams.order)
        assert {one.seam.chapter for one in chapter.exercises} <= {chapter.number}


@pytest.mark.parametrize("chapter", chapters().values(), ids=lambda chapter: str(chapter.number))
def test_the_exercises_fit_into_the_chapters_minutes(chapter: Any) -> None:
    assert sum(one.minutes for one in chapter.exercises) < chapter.minutes[1]
