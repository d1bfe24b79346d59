"""Several requests at once: what they say, how often the model runs for them, and what each way computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
import torch
from learner import Letters, handed_in, words

pytest.importorskip("matplotlib")

from pictures import words_outside

from minicb import seams
from minicb.batch import Batch, Chunk
from minicb.checkpoint import Tokenizer
from minicb.course import together as module
from minicb.course.chapters import ch06_loop_answers
from minicb.course.check import examine
from minicb.course.draw import FULL, HALF, draw_areas, draw_costs
from minicb.course.spec import find
from minicb.course.table import SIXTEEN, THREE, Workload, _alone
from minicb.course.tiny import model
from minicb.course.together import serve, together
from minicb.course.ways import WAYS, costs, three_ways
from minicb.metrics import count_cells
from minicb.seams import SEAMS


def one_row(chunks: Sequence[Chunk]) -> list[Sequence[Chunk]]:
    return [chunks]


def one_by_one(chunks: Sequence[Chunk]) -> list[Sequence[Chunk]]:
    return [[chunk] for chunk in chunks]


def prompts_apart(chunks: Sequence[Chunk]) -> list[Sequence[Chunk]]:
    prompts = [chunk for chunk in chunks if chunk.start < chunk.request.num_prompt_tokens]
    return [prompts, [chunk for chunk in chunks if chunk not in prompts]]


# -- a step cut into passes


@pytest.mark.parametrize("workload", [THREE, SIXTEEN], ids=lambda workload: workload.title)
@pytest.mark.parametrize("cut", [one_row, one_by_one, prompts_apart])
def test_however_a_step_is_cut_the_tokens_are_the_same(cut: module.Cut, workload: Workload) -> None:
    run = serve(cut, workload)
    assert run.answers == _alone(workload.title)
    assert run.tokens == workload.needed


def test_runs_of_the_model_are_counted_and_not_steps() -> None:
    row, apart, single = (serve(cut, SIXTEEN) for cut in (one_row, prompts_apart, one_by_one))
    assert row.steps == apart.steps == single.steps == row.passes
    assert single.passes == sum(length for _, length in SIXTEEN.requests.values())
    assert row.passes < apart.passes < single.passes


def test_a_run_leaves_the_step_as_it_was() -> None:
    def broken(_chunks: Sequence[Chunk]) -> list[Sequence[Chunk]]:
        raise RuntimeError("on purpose")

    before = SEAMS["7.4"].installed, SEAMS["7.4"].owner
    with pytest.raises(RuntimeError, match="on purpose"):
        serve(broken)
    assert (SEAMS["7.4"].installed, SEAMS["7.4"].owner) == before
    assert not model()._forward_pre_hooks


# -- several prompts, with their words


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer: Tokenizer = Letters()  # type: ignore[assignment]
    monkeypatch.setattr(module, "packaged_model", lambda: (model(), tokenizer))


@pytest.mark.usefixtures("letters")
def test_a_late_request_joins_the_row_and_changes_nobodys_answer(capsys: pytest.CaptureFixture[str]) -> None:
    prompts = {"A": "abc", "B": "de"}
    at_once = together(prompts, max_tokens=3)
    said = capsys.readouterr().out.splitlines()[:2]
    later = together(prompts, late={"B": 1}, max_tokens=3)
    assert capsys.readouterr().out.splitlines()[:2] == said
    assert [batch.q_start.tolist() for batch in at_once] == [[0, 3, 5], [0, 1, 2], [0, 1, 2]]
    assert [batch.q_start.tolist() for batch in later] == [[0, 3], [0, 1, 3], [0, 1, 2], [0, 1]]


@pytest.mark.usefixtures("letters")
def test_a_changed_batch_is_the_one_that_the_model_sees(capsys: pytest.CaptureFixture[str]) -> None:
    def along_the_row(batch: Batch) -> Batch:
        return replace(batch, positions=torch.arange(len(batch.tokens)))

    assert together({"A": "abc", "B": "de"}, change=along_the_row, max_tokens=1)[0].positions.tolist() == [
        0,
        1,
        2,
        3,
        4,
    ]
    first = capsys.readouterr().out.splitlines()[:2]
    together({"A": "abc", "B": "de"}, max_tokens=1)
    assert capsys.readouterr().out.splitlines()[:2] == first, "within a first row only distances count"


@pytest.mark.usefixtures("letters")
def test_a_part_that_stops_the_engine_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with seams.swapped("6.3", lambda q_start, samples: q_start[1:]):  # noqa: ARG005
        together({"A": "abc", "B": "de"}, max_tokens=2)
    assert capsys.readouterr().out.startswith("The engine stopped: IndexError")
    assert not model()._forward_pre_hooks


# -- what each way computes


def test_the_numbers_of_chapter_06() -> None:
    server = three_ways([1] * 7 + [100], [100] * 8)
    assert [way.slots for way in server] == [(800, 107), (107, 107), (107, 107)]
    assert [way.cells for way in server] == [(80_000, 5_750), (85_600, 5_750), (10_700, 5_750)]
    assert [way.cells for way in three_ways([3, 9, 4], [3, 9, 4])] == [(243, 61), (256, 61), (106, 61)]
    assert [way.cells for way in three_ways([1, 1, 1], [4, 10, 5])] == [(30, 19), (57, 19), (19, 19)]


def test_all_ways_need_the_same_and_request_by_request_computes_least() -> None:
    dice = Random(6)
    for _ in range(30):
        new = [dice.randint(1, 6) for _ in range(dice.randint(1, 5))]
        context = [count + dice.randint(0, 8) for count in new]
        padded, dense, ragged = (way.cells for way in three_ways(new, context))
        computed, useful = (sum(part) for part in zip(*map(count_cells, *_held(new, context)), strict=True))
        assert ragged == (computed, useful)
        assert padded == (len(new) * max(new) * max(context), useful)
        assert dense == (sum(new) * sum(context), useful)
        assert ragged[0] <= min(padded[0], dense[0])


def _held(new: list[int], context: list[int]) -> tuple[list[int], list[int]]:
    return [total - count for count, total in zip(new, context, strict=True)], new


def test_attention_over_all_requests_at_once_is_sent_back_for_its_cost() -> None:
    report, clean = examine(find("6.4"), handed_in(find("6.4"), ch06_loop_answers.all_at_once_under_one_mask))
    assert clean is None
    assert "the tokens are right, but it computed" in words(report)
    assert "Go request by request." in words(report)


@pytest.mark.parametrize("width", [HALF, FULL])
@pytest.mark.parametrize("step", [([3, 9, 4], [3, 9, 4]), ([1] * 7 + [100], [100] * 8), ([1], [1])])
def test_areas_are_drawn_to_scale_and_fit_on_the_sheet(step: tuple[list[int], list[int]], width: float) -> None:
    picture = draw_areas(three_ways(*step), width=width)
    assert words_outside(picture) == []
    assert all(f"{way.cells[0]:,} {way.name}" in picture.data for way in three_ways(*step))


def test_costs_tell_the_useful_share_of_every_way() -> None:
    picture = draw_costs(costs({"three prompts": ([3, 9, 4], [3, 9, 4]), "equal": ([5, 5], [5, 5])}))
    assert words_outside(picture) == []
    assert picture.data == "useful score cells in %: three prompts: 25.1, 23.8, 57.5; equal: 60.0, 30.0, 60.0"
    assert set(costs({"x": ([1], [1])})["x"]["token slots"]) == set(WAYS)
