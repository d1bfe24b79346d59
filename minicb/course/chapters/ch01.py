"""Exercises of chapter 01: attention in three small functions; those about heads are in `ch01_heads.py`."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from minicb import attention  # noqa: F401 - its seams are the exercises
from minicb.course.chapters import ch01_answers as answers
from minicb.course.chapters.ch01_heads import REPEAT_KV, SPLIT_HEADS
from minicb.course.spec import Case, Chapter, Dice, Exercise, Twin
from minicb.course.tiny import same_tokens


def score_cases(dice: Dice) -> Iterator[Case]:
    for queries in dice.lengths(high=6):
        keys, heads, size = dice.number(0, 7), dice.number(1, 3), dice.number(2, 5)
        dtype = torch.float32 if dice.number(0, 1) else torch.float64
        q, k = dice.floats(queries, heads, size, dtype=dtype), dice.floats(keys, heads, size, dtype=dtype)
        yield Case((q, k), f"queries={queries}, keys={keys}, heads={heads}, head size={size}")


def weight_cases(dice: Dice) -> Iterator[Case]:
    for queries in dice.lengths(high=6):
        keys, heads = dice.number(0, 7), dice.number(1, 3)
        mask = dice.bools(queries, keys)
        if queries > 1:
            mask[dice.number(0, queries - 1)] = False  # a query that may see nothing
        yield Case((dice.floats(heads, queries, keys), mask), f"heads={heads}, queries={queries}, keys={keys}")


def mix_cases(dice: Dice) -> Iterator[Case]:
    for queries in dice.lengths(high=6):
        keys, heads, size = dice.number(0, 7), dice.number(1, 3), dice.number(1, 5)
        dtype = torch.float32 if dice.number(0, 1) else torch.float64
        shares = torch.softmax(dice.floats(heads, queries, keys, dtype=dtype), dim=-1)
        about = f"heads={heads}, queries={queries}, keys={keys}, head size={size}"
        yield Case((shares, dice.floats(keys, heads, size, dtype=dtype)), about)


SCORES = Exercise(
    id="1.1",
    kind="W",
    minutes=5,
    importance="the first of the three steps",
    tiny=Case(
        (
            torch.tensor([[[2.0, 0, 0, 0]], [[0, 2, 0, 2]]]),
            torch.tensor([[[4.0, 0, 0, 0]], [[0, 4, 0, 0]], [[3, 0, 0, 5]]]),
        ),
        "2 queries, 3 keys, 1 head of size 4",
    ),
    cases=score_cases,
    twins=(
        Twin(
            answers.scores_without_scaling,
            "the division by sqrt(D) is missing: scores grow with the head size, and softmax picks only the best.",
        ),
        Twin(
            answers.scores_divided_by_the_size,
            "you divide by D; the spread of a sum of D products grows with sqrt(D) only.",
        ),
        Twin(answers.scores_multiplied_by_the_root, "you multiply by sqrt(D) where you should divide by it."),
        Twin(
            answers.scores_scaled_by_the_heads,
            "you take the root of the number of heads; D is the last dimension of q.",
        ),
        Twin(
            answers.scores_scaled_by_the_tokens,
            "you take the root of the number of queries; D is the last dimension of q.",
        ),
        Twin(
            answers.scores_with_a_letter_for_the_size,
            "D is only the letter of the drawing; in code it is the last dimension of q: q.shape[-1].",
        ),
        Twin(
            answers.scores_with_rows_and_columns_swapped,
            "rows and columns are swapped: a row for each query, a column for each key.",
        ),
        Twin(answers.scores_with_heads_in_the_middle, "the heads come first in the result: [H, T, S]."),
        Twin(
            answers.scores_summed_over_heads,
            "you add up the heads. Each head compares on its own: keep h in the result.",
        ),
        Twin(answers.scores_in_float32, "your answer is always float32; it should have the type of q."),
    ),
    right=(answers.scores_by_matmul, answers.scores_head_by_head),
    question="A query and a key of the same head match if they point the same way. Which product measures that?",
    steps=(
        "For each head, each query and each key: multiply number by number and add up (a dot product over D).",
        'torch.einsum says it in one line: the dimensions of q are "thd", of k "shd", of the result "hts".',
        "Divide by the square root of the head size, q.shape[-1].",
    ),
    pieces=('torch.einsum("thd,shd->hts", q, k)', "math.sqrt(q.shape[-1])", "/", "return"),
    why="a dot product of D random numbers has a spread of sqrt(D); dividing keeps softmax equally sharp at every D.",
    in_engine=same_tokens,
)

WEIGHTS = Exercise(
    id="1.2",
    kind="C",
    minutes=8,
    importance="here the mask does its work, in every chapter from now on",
    tiny=Case(
        (
            torch.tensor([[[1.0, 2.0, 4.0], [3.0, 3.0, 0.5], [2.0, 1.0, 1.0]]]),
            torch.tensor([[True, True, False], [True, True, True], [False, False, False]]),
        ),
        "3 queries, 3 keys, the last query may see nothing",
    ),
    cases=weight_cases,
    twins=(
        Twin(
            answers.weights_over_the_wrong_axis,
            "each column adds up to 1 where each row should: softmax runs over the keys, the last dimension.",
        ),
        Twin(
            answers.weights_with_the_mask_multiplied,
            "you multiply the scores by the mask. A score of 0 is not hidden: exp(0) = 1 still takes a share. "
            "A hidden score must be minus infinity.",
        ),
        Twin(
            answers.weights_masked_after_softmax,
            "you mask after softmax: the hidden keys have taken their share already, so rows add up to less than 1.",
        ),
        Twin(
            answers.weights_with_nan_for_empty_rows,
            "a row of minus infinities gives 0/0 = NaN. It should get zeros.",
        ),
        Twin(
            answers.weights_with_a_large_negative_number,
            "with a large negative number instead of minus infinity, a query that may see nothing spreads its "
            "attention evenly over what is hidden. It should get zeros.",
        ),
        Twin(answers.weights_with_the_mask_turned_round, "you hide what is visible: True in the mask means may look."),
        Twin(
            answers.weights_with_the_first_fill_turned_round,
            "you hide the visible keys and show the hidden ones: ~ turns a mask round.",
        ),
        Twin(
            answers.weights_with_the_last_fill_turned_round,
            "you give zeros to the rows that can see something; it should be those where any() is False.",
        ),
        Twin(
            answers.weights_over_the_heads,
            "softmax runs over the heads in yours; the shares of one query are along the keys, the last dimension.",
        ),
        Twin(
            answers.weights_with_both_fills_turned_round,
            "both fills are turned round: you hide what is visible, and give zeros to the rows that see something. "
            "~ turns a mask round.",
        ),
        Twin(
            answers.weights_with_the_mask_added_as_ones,
            "adding True adds 1. To hide a score add minus infinity to it, and 0 to the others.",
        ),
        Twin(answers.weights_without_mask, "the mask is not used: hidden keys get a share."),
        Twin(
            answers.weights_without_exp, "you divide by the plain sum. Scores can be negative; softmax takes exp first."
        ),
        Twin(answers.weights_exp_without_dividing, "rows do not add up to 1: divide each row by its sum."),
        Twin(
            answers.weights_written_into_the_scores,
            "a method that ends in _ writes into its tensor: use masked_fill, without _.",
        ),
        Twin(answers.weights_always_float32, "your answer is always float32; it should have the type of the scores."),
    ),
    right=(answers.weights_by_hand, answers.weights_with_nan_replaced),
    question="After softmax a hidden key must have a share of exactly 0. Which score gives exp(score) = 0?",
    steps=(
        'Make a copy of the scores in which hidden places are float("-inf"): masked_fill(~mask, ...).',
        "softmax over the keys, the last dimension.",
        "A row that is hidden altogether comes out as NaN: find those rows with mask.any(dim=-1) and give them zeros.",
    ),
    pieces=(
        'hidden = scores.masked_fill(~mask, float("-inf"))',
        "shares = torch.softmax(hidden, dim=-1)",
        "return shares.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)",
    ),
    why="the zeros for an empty row keep one padded or empty request from turning a whole batch into NaN.",
    in_engine=same_tokens,
)

MIX = Exercise(
    id="1.3",
    kind="F",
    minutes=6,
    importance="the last of the three steps",
    tiny=Case(
        (
            torch.tensor([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], [[0.0, 1.0, 0.0], [0.0, 0.5, 0.5]]]),
            torch.tensor([[[2.0, 4.0], [1.0, 0.0]], [[6.0, 8.0], [3.0, 2.0]], [[9.0, 9.0], [5.0, 6.0]]]),
        ),
        "2 heads, 2 queries, 3 keys, head size 2",
    ),
    cases=mix_cases,
    twins=(
        Twin(
            answers.mix_with_heads_first, "the tokens come first in the result: [T, H, D]. Yours has the heads first."
        ),
        Twin(answers.mix_averaged, "you divide by the number of keys. The weights are shares already: their sum is 1."),
        Twin(answers.mix_without_weights, "every value counts in full: the weights are not used."),
        Twin(answers.mix_summed_over_heads, "you add up the heads. Each head keeps its own mix: [T, H, D]."),
        Twin(answers.mix_with_all_heads_alike, "all heads take the values of head 0; each head has values of its own."),
        Twin(
            answers.mix_taking_the_best_only,
            "you take the value with the largest share; a mix takes all of them, by share.",
        ),
        Twin(
            answers.mix_reshaped_instead_of_swapped,
            "reshape reads the numbers on in the same order and does not swap dimensions: use transpose or permute.",
        ),
    ),
    right=(answers.mix_by_matmul, answers.mix_by_adding_up),
    question="A query gives the shares 0.5, 0.5 and 0 to three keys. What is its answer, in terms of the three values?",
    steps=(
        "For each head and each query: multiply every key's value by its share and add up over the keys.",
        'In letters: weights are "hts", values "shd"; s disappears, and the tokens come first in the result.',
        "torch.einsum does both at once.",
    ),
    pieces=('"hts,shd->thd"', "torch.einsum", "weights, v", "return", "( , )"),
    why="tokens first again, [T, H, D]: the heads of a token lie side by side, ready for merge_heads.",
    in_engine=same_tokens,
)

CHAPTER = Chapter(1, "Attention: three small steps", (35, 45), (SCORES, WEIGHTS, MIX, SPLIT_HEADS, REPEAT_KV))
