"""The padded baseline of the lessons: counted by hand, on either side, and in words on the real model's stand-in."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from minicb import seams
from minicb.checkpoint import Tokenizer
from minicb.course import padded as module
from minicb.course.padded import (
    Kind,
    Side,
    baseline,
    padded,
    same_tokens_on_either_side,
    same_tokens_padded,
    same_waste,
)
from minicb.course.spec import MismatchError
from minicb.course.table import THREE, Run, Workload, measure
from minicb.course.table import padded as padded_method
from minicb.course.tiny import model
from minicb.padding import PaddedAttention


def slots(requests: dict[str, tuple[list[int], int]], rows: int, kind: Kind = "static") -> tuple[int, int]:
    _, steps = baseline(requests, rows=rows, kind=kind)
    return sum(step.token_slots for step in steps), sum(step.useful_slots for step in steps)


def test_the_longest_answer_holds_three_others_back() -> None:
    requests = {name: ([1], length) for name, length in zip("ABCD", (5, 5, 5, 50), strict=True)}
    assert slots(requests, 4) == (200, 65)


def test_one_long_prompt_pads_everybody_who_decodes() -> None:
    requests = {str(i): ([1], 2 if i == 0 else 4) for i in range(8)} | {"long": ([1] * 100, 1)}
    _, steps = baseline(requests, rows=8, kind="dynamic")
    assert [(step.token_slots, step.useful_slots) for step in steps][:3] == [(8, 8), (8, 8), (800, 107)]


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_padding_may_be_on_either_side(side: Side) -> None:
    def method(workload: Workload) -> Run:
        return Run(*baseline(workload.requests, rows=workload.rows, side=side))

    assert measure("padded", method, THREE).identical


def test_on_the_right_the_last_column_is_padding() -> None:
    def last_column(real: Tensor) -> Tensor:
        rows, width = real.shape
        return (torch.arange(rows) * width + width - 1)[real.any(dim=1)]

    with seams.swapped("5.4", last_column):
        assert same_tokens_padded()
        with pytest.raises(MismatchError, match="padded on the right"):
            same_tokens_on_either_side()


def test_a_wrong_share_is_noticed() -> None:
    with seams.swapped("5.3", lambda useful, total: useful / total), pytest.raises(MismatchError, match="slot by slot"):
        same_waste()


def test_without_the_mask_of_short_rows_answers_change() -> None:
    class Unmasked(PaddedAttention):
        def mask(self, positions: Tensor, places: Tensor, window: int | None) -> Tensor:
            return torch.ones_like(super().mask(positions, places, window))

    right, _ = baseline(THREE.requests, rows=3)
    assert baseline(THREE.requests, rows=3, attention=Unmasked())[0] != right


def test_an_answer_that_failed_is_an_error() -> None:
    with (
        seams.swapped("0.1", lambda logits: 1 // 0),  # noqa: ARG005
        pytest.raises(MismatchError, match="ended with ZeroDivisionError"),
    ):
        baseline({"A": ([1, 2], 2)})


class Letters:
    """A tokenizer of single letters."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) - 96 for letter in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(96 + id % 26) for id in ids)


def test_texts_are_answered_and_the_slots_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer: Tokenizer = Letters()  # type: ignore[assignment]
    monkeypatch.setattr(module, "packaged_model", lambda: (model(), tokenizer))
    seams.begin_receipt()
    with seams.swapped("5.2", seams.SEAMS["5.2"].reference):
        padded({"A": "abc", "B": "d"}, max_tokens=2)
    lines = capsys.readouterr().out.splitlines()
    assert [line[:11] for line in lines[:2]] == ["A  'abc' ->", "B  'd' -> '"]
    assert lines[2] == "2 steps, 8 slots, 2 of them padding"
    assert lines[3].startswith("yours: 5.2 padded_positions 2 calls;")


def test_the_tables_method_is_the_same_baseline() -> None:
    assert dict(padded_method(THREE).answers) == baseline(THREE.requests, rows=3)[0]
