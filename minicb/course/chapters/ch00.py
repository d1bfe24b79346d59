"""Exercises of chapter 00: the smallest part of the loop, picking a token."""

# Twins and right answers are written as a learner would, without type hints.
# mypy: disallow-untyped-defs=False, check-untyped-defs=False
# ruff: noqa: PERF401

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from minicb import sampling  # noqa: F401 - its seam is the exercise
from minicb.course.spec import Case, Chapter, Dice, Exercise, Twin
from minicb.course.tiny import same_tokens


def case(logits: Tensor) -> Case:
    rows, vocabulary = logits.shape
    return Case((logits,), f"{rows} row{'s' * (rows != 1)} over a vocabulary of {vocabulary}")


def pick_cases(dice: Dice) -> Iterator[Case]:
    for rows in dice.lengths():
        logits = dice.floats(rows, dice.number(1, 9))
        yield case(logits.round() if dice.number(0, 1) else logits)  # rounded: equal numbers are common


def pick_the_value(logits):
    return logits.max(dim=-1).values


def pick_over_all_rows(logits):
    return logits.argmax()


def pick_down_the_columns(logits):
    return logits.argmax(dim=0)


def pick_the_smallest(logits):
    return logits.argmin(dim=-1)


def pick_the_last_of_equals(logits):
    return logits.shape[-1] - 1 - logits.flip(-1).argmax(dim=-1)


def pick_the_first_row_only(logits):
    return logits[0].argmax() if len(logits) else logits.new_zeros(0)


def pick_as_a_list(logits):
    return logits.argmax(dim=-1).tolist()


def pick_and_keep_the_row_form(logits):
    return logits.argmax(dim=-1, keepdim=True)


def with_max(logits):
    return logits.max(dim=-1).indices


def row_by_row(logits):
    best = []
    for row in logits.tolist():
        best.append(row.index(max(row)))
    return torch.tensor(best, dtype=torch.int64)


CHAPTER = Chapter(
    0,
    "Check your set-up, meet the loop",
    (10, 15),
    (
        Exercise(
            id="0.1",
            kind="F",
            minutes=5,
            importance="every token of every greedy answer goes through it",
            tiny=case(torch.tensor([[2.0, 7.0, 7.0, 1.0], [5.0, 3.0, 0.0, 4.0]])),
            cases=pick_cases,
            twins=(
                Twin(pick_the_value, "you return the largest number itself; the engine needs its place in the row."),
                Twin(
                    pick_over_all_rows,
                    "argmax without a dim looks at all rows at once. Each row belongs to a request of its own: "
                    "look along the last dimension.",
                ),
                Twin(
                    pick_down_the_columns,
                    "you compare the requests with each other (dim 0); compare the tokens of one row: dim -1.",
                ),
                Twin(pick_the_smallest, "that is the least likely token; the largest logit is the likeliest."),
                Twin(pick_the_last_of_equals, "of equal logits the lowest index wins, and yours takes the last one."),
                Twin(pick_the_first_row_only, "you answer for the first row only; there is one row for each request."),
                Twin(pick_as_a_list, "you return a Python list; the engine goes on computing with a tensor."),
                Twin(
                    pick_and_keep_the_row_form,
                    "keepdim leaves a dimension of size 1; the engine wants one number a row.",
                ),
            ),
            right=(with_max, row_by_row),
            question="Each row holds one number a token. Do you need the largest number, or the place where it stands?",
            steps=(
                "Look along the last dimension: one answer for each row.",
                "Take the index of the largest number there.",
                "Of equal numbers take the first: check what your function does with [2, 7, 7, 1].",
            ),
            pieces=("argmax", "return", "(dim=-1)", "logits", "."),
            why="a tie must always fall the same way, or the same prompt could get two different answers.",
            in_engine=same_tokens,
        ),
    ),
)
