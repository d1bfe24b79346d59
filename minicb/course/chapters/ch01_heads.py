"""Exercises of chapter 01 about heads: cutting a row into them, and sharing few of them among many."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from minicb import attention  # noqa: F401 - its seams are the exercises
from minicb.course.chapters import ch01_answers as answers
from minicb.course.spec import Case, Dice, Exercise, Twin
from minicb.course.tiny import same_tokens


def split_cases(dice: Dice) -> Iterator[Case]:
    for tokens in dice.lengths(low=1):
        heads, size = dice.number(1, 5), dice.number(1, 4)
        about = f"tokens={tokens}, heads={heads}, head size={size}"
        yield Case((dice.floats(tokens, heads * size), heads), about)


def repeat_cases(dice: Dice) -> Iterator[Case]:
    for keys in dice.lengths(high=6):
        heads, times, size = dice.number(1, 4), dice.number(1, 3), dice.number(1, 4)
        about = f"keys={keys}, KV heads={heads}, repeats={times}, head size={size}"
        yield Case((dice.floats(keys, heads, size), times), about)


SPLIT_HEADS = Exercise(
    id="1.4",
    kind="P",
    minutes=4,
    importance="wrong here, every head reads another head's numbers",
    tiny=Case((torch.arange(12.0).reshape(2, 6), 3), "2 tokens, 3 heads of size 2"),
    cases=split_cases,
    twins=(
        Twin(
            answers.split_with_heads_interleaved,
            "your heads take every num_heads-th number; a head is a run of neighbouring numbers of its token.",
        ),
        Twin(answers.split_with_the_two_sizes_swapped, "heads and head size are swapped: [T, num_heads, D]."),
        Twin(
            answers.split_across_the_tokens,
            "your reshape starts with the heads, so one head gets numbers of several tokens. Start with x.shape[0].",
        ),
        Twin(
            answers.split_with_heads_first,
            "the tokens come first in the result: [T, num_heads, D]. Leave out the transpose.",
        ),
        Twin(
            answers.split_into_tokens_by_reshape,
            "your first dimension is the heads; a token's numbers must stay together in one row: [T, num_heads, D].",
        ),
    ),
    right=(answers.split_by_stacking, answers.split_by_view),
    question="The row of a token is head 0's numbers, then head 1's, and so on. Which numbers have to move?",
    steps=(
        "None has to move: the row is only read in pieces.",
        "Keep the first dimension, the tokens.",
        "Cut the second into num_heads pieces: each is x.shape[1] // num_heads numbers long.",
    ),
    pieces=("x.reshape(", "x.shape[0],", "num_heads,", "x.shape[1] // num_heads)", "return"),
    why="heads are neighbours in memory, so cutting and merging them costs nothing: no number moves.",
    in_engine=same_tokens,
)

REPEAT_KV = Exercise(
    id="1.5",
    kind="F",
    minutes=5,
    importance="every modern model shares KV heads",
    tiny=Case((torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]]), 3), "2 keys, 2 KV heads, 3 repeats, head size 1"),
    cases=repeat_cases,
    twins=(
        Twin(
            answers.repeat_as_tiles,
            "your order is 0,1,0,1,0,1. Neighbours share a KV head: 0,0,0,1,1,1 (repeat_interleave, not repeat).",
        ),
        Twin(
            answers.repeat_without_a_dimension,
            "without a dim the whole tensor is flattened first; the heads are dim 1.",
        ),
        Twin(answers.repeat_the_tokens, "you repeat the tokens (dim 0); the heads are dim 1."),
        Twin(answers.repeat_the_numbers, "you repeat the numbers inside a head (dim 2); the heads are dim 1."),
        Twin(
            answers.repeat_up_to_so_many_heads,
            "you take num_repeats for the number of query heads; it says how often each KV head appears.",
        ),
        Twin(
            answers.repeat_in_a_dimension_of_its_own,
            "the repeats still have a dimension of their own: join it with the heads.",
        ),
        Twin(
            answers.repeat_averaging_the_heads, "all your heads are the same mean; each query head reads one KV head."
        ),
    ),
    right=(answers.repeat_by_expanding, answers.repeat_by_index),
    question="Six query heads and two KV heads: which KV head does query head 2 read, and which query head 3?",
    steps=(
        "Query head h reads KV head h // num_repeats: 0,0,0,1,1,1.",
        "The heads are dimension 1 of x.",
        "x.repeat_interleave(n, dim=...) repeats each element in place; x.repeat(...) lays whole copies end to end.",
    ),
    pieces=("x", ".repeat_interleave(", "num_repeats,", "dim=1)", "return"),
    why="the cache keeps the few KV heads, and they are spread out only while attention looks at them.",
    in_engine=same_tokens,
)
