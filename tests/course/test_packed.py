"""Packed under one dense mask: right with the engine's mask, and leaking with a wrong one."""

from __future__ import annotations

import pytest
import torch
from learner import Letters
from torch import Tensor

from minicb.checkpoint import Tokenizer
from minicb.course import packed as module
from minicb.course.packed import in_one_row, packed
from minicb.course.table import SIXTEEN, THREE, Workload, measure
from minicb.course.tiny import model
from minicb.masks import block_mask, chunk_mask


def staircase(mask: Tensor) -> Tensor:
    return chunk_mask(*mask.shape)


@pytest.mark.parametrize("workload", [THREE, SIXTEEN], ids=lambda workload: workload.title)
def test_with_the_engines_masks_everybody_gets_what_it_gets_alone(workload: Workload) -> None:
    assert measure("packed", in_one_row(), workload).identical


def test_with_one_staircase_requests_read_each_other_at_the_same_cost() -> None:
    right, wrong = measure("packed", in_one_row(), THREE), measure("packed", in_one_row(staircase), THREE)
    assert not wrong.identical
    assert (wrong.steps, wrong.computed, wrong.longest_gap) == (right.steps, right.computed, right.longest_gap)


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer: Tokenizer = Letters()  # type: ignore[assignment]
    monkeypatch.setattr(module, "packaged_model", lambda: (model(), tokenizer))


@pytest.mark.usefixtures("letters")
def test_the_masks_of_all_steps_are_handed_out(capsys: pytest.CaptureFixture[str]) -> None:
    masks = packed({"A": "abc", "B": "de"}, max_tokens=2)
    assert torch.equal(masks[0], block_mask([3, 2]))
    assert [tuple(mask.shape) for mask in masks] == [(5, 5), (2, 7)]
    lines = capsys.readouterr().out.splitlines()
    assert [line[:11] for line in lines] == ["A  'abc' ->", "B  'de' -> "]


@pytest.mark.usefixtures("letters")
def test_a_changed_mask_is_the_one_used() -> None:
    assert torch.equal(packed({"A": "abc", "B": "de"}, staircase, max_tokens=1)[0], chunk_mask(5, 5))
