"""Exercises of chapter 02: who may look at whom, from the causal square to the one rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from minicb import masks  # noqa: F401 - its seams are the exercises
from minicb.course.chapters import ch02_answers as answers
from minicb.course.spec import Case, Chapter, Dice, Exercise, Twin
from minicb.course.tiny import same_tokens


def causal_cases(dice: Dice) -> Iterator[Case]:
    for tokens in dice.lengths(high=12):
        yield Case((tokens,), f"{tokens} tokens")


def chunk_cases(dice: Dice) -> Iterator[Case]:
    for queries in dice.lengths(high=5):
        keys = queries + dice.number(0, 6)
        yield Case((queries, keys), f"{queries} queries, {keys} keys")


def block_cases(dice: Dice) -> Iterator[Case]:
    for sequences in dice.lengths(low=1, high=4):
        lengths = [dice.number(0, 5) for _ in range(sequences)]
        yield Case((lengths,), f"lengths {lengths}")


def visible_cases(dice: Dice) -> Iterator[Case]:
    """A batch as the engine packs it: some requests with cached keys, some without."""
    for requests in dice.lengths(high=4):
        new = [dice.number(1, 3) for _ in range(requests)]
        held = [count + dice.number(0, 4) for count in new]
        yield packed_case(new, held)


def packed_case(new: Sequence[int], held: Sequence[int]) -> Case:
    """new: tokens of each request in this step; held: its keys after the step."""
    order = torch.arange(len(new))
    q_pos = joined([torch.arange(total - count, total) for count, total in zip(new, held, strict=True)])
    k_pos = joined([torch.arange(total) for total in held])
    q_seq = order.repeat_interleave(torch.tensor(new, dtype=torch.int64))
    k_seq = order.repeat_interleave(torch.tensor(held, dtype=torch.int64))
    return Case((q_pos, q_seq, k_pos, k_seq), f"new tokens {list(new)}, keys {list(held)}")


def joined(parts: list[Tensor]) -> Tensor:
    return torch.cat([torch.zeros(0, dtype=torch.int64), *parts])


CAUSAL_MASK = Exercise(
    id="2.1",
    kind="W",
    minutes=4,
    importance="the shape that all the others are made of",
    tiny=Case((4,), "4 tokens"),
    cases=causal_cases,
    twins=(
        Twin(
            answers.causal_seeing_the_future,
            "your tokens see the future: what is right of the diagonal comes later. tril keeps the lower triangle.",
        ),
        Twin(answers.causal_without_itself, "your tokens do not see themselves: the diagonal belongs to the mask."),
        Twin(
            answers.causal_one_too_far, "each token sees one token too far: its own future. The diagonal is the limit."
        ),
        Twin(answers.causal_all_visible, "everybody sees everybody. A token may not look at what comes after it."),
        Twin(answers.causal_itself_only, "each token sees only itself; it may look at everything before it as well."),
        Twin(answers.causal_turned_round, "yours marks what is hidden. True means may look."),
        Twin(
            answers.causal_in_floats,
            "the numbers are right but they are floats: a mask is made of True and False (bool).",
        ),
        Twin(
            answers.causal_in_ints,
            "the example turned the mask into ints only to print it; a mask is made of True and False (bool).",
        ),
        Twin(
            answers.causal_as_a_bias,
            "that is what gets added to the scores. Here a mask says only who may look: bool, True = may look.",
        ),
    ),
    right=(answers.causal_by_positions, answers.causal_row_by_row),
    question="Row 2 belongs to the third token. Which columns may it look at?",
    steps=(
        "Make a square of True, one row and one column for each token.",
        "In row i the columns 0 to i stay True, itself included.",
        "tril keeps the lower triangle and the diagonal.",
    ),
    pieces=("torch.ones(", "num_tokens, num_tokens,", "dtype=torch.bool)", ".tril()", "return"),
    why="because nobody looks ahead, a token's keys and values never change when more tokens follow: they can be kept.",
    in_engine=same_tokens,
)

CHUNK_MASK = Exercise(
    id="2.2",
    kind="C",
    minutes=6,
    importance="everything later uses it",
    tiny=Case((3, 7), "3 queries, 7 keys"),
    cases=chunk_cases,
    twins=(
        Twin(
            answers.chunk_from_the_top_left,
            "your rows count from 0, but the first new token stands at position num_keys - num_queries.",
        ),
        Twin(answers.chunk_without_itself, "your tokens do not see themselves: < should be <=."),
        Twin(
            answers.chunk_one_too_far,
            "your positions are one too high: tokens see their future. The last query stands at num_keys - 1.",
        ),
        Twin(
            answers.chunk_skipping_the_queries,
            "your first query stands at position num_queries; num_keys - num_queries tokens stand before it.",
        ),
        Twin(
            answers.chunk_of_itself_only,
            "each of your tokens sees only itself; it may look at everything before it as well: <=.",
        ),
        Twin(
            answers.chunk_one_by_one,
            "you compare one by one; all with all needs a row for each query: [:, None] and [None, :].",
        ),
        Twin(answers.chunk_looking_ahead, "your tokens look ahead: the key's position must be <= the query's."),
        Twin(
            answers.chunk_all_visible,
            "everything is visible. Right for one new token; of several, the first may not see the later ones.",
        ),
        Twin(
            answers.chunk_of_old_keys_only,
            "your tokens see the cached keys only; they also see themselves and each other.",
        ),
        Twin(
            answers.chunk_of_new_keys_only, "the cached keys are hidden: the new tokens would forget what came before."
        ),
        Twin(
            answers.chunk_without_the_cache,
            "there is no column for the cached keys: one column for each of the num_keys keys, old ones first.",
        ),
        Twin(
            answers.chunk_counted_from_the_end, "with 0 queries [-0:] takes everything: count from the front instead."
        ),
        Twin(
            answers.chunk_with_keys_as_rows,
            "rows and columns are swapped: a row for each query, a column for each key.",
        ),
    ),
    right=(answers.chunk_by_tril, answers.chunk_cut_from_the_square),
    question="Four tokens are cached and three come now. At which position does the first of the three stand?",
    steps=(
        "Keys stand at positions 0 to num_keys - 1.",
        "The queries are the newest tokens: they stand at the last num_queries of these positions.",
        "A query may look at a key whose position is <= its own; [:, None] and [None, :] compare all with all.",
    ),
    why="positions stay true when rows of one mask belong to different requests (chapter 06). Row numbers do not.",
    in_engine=same_tokens,
)

BLOCK_MASK = Exercise(
    id="2.3",
    kind="F",
    minutes=8,
    importance="several requests in one row, without padding",
    tiny=Case(([2, 3],), "lengths [2, 3]"),
    cases=block_cases,
    twins=(
        Twin(
            answers.block_as_one_sequence,
            "that is one long sequence: the second request reads the first one's tokens. Each block sees only itself.",
        ),
        Twin(
            answers.block_without_triangles,
            "inside a block your tokens see their own future: each block is a triangle.",
        ),
        Twin(
            answers.block_padded_to_the_longest,
            "every block has the size of the longest. There is no padding here: a block is as long as its sequence.",
        ),
        Twin(
            answers.block_of_the_first_only, "only the first sequence has its block; move on by its length and go on."
        ),
        Twin(answers.block_without_itself, "your tokens do not see themselves: the diagonal belongs to the mask."),
        Twin(
            answers.block_seeing_the_future,
            "your triangles point the wrong way: a token may not look at what comes after it.",
        ),
        Twin(
            answers.block_always_at_the_start,
            "all blocks start at row 0. Each starts where the one before it ends: keep a running start.",
        ),
        Twin(
            answers.block_one_mask_a_sequence,
            "a list of masks is not one mask: lay the blocks on the diagonal of one square.",
        ),
        Twin(
            answers.block_in_floats,
            "the numbers are right but they are floats: a mask is made of True and False (bool).",
        ),
    ),
    right=(answers.block_by_pasting, answers.block_by_rule),
    question="Two sequences of 2 and 3 tokens lie in one row. Which cells of the 5 by 5 square may be True?",
    steps=(
        "Start with a square of False as large as all the lengths together.",
        "For each sequence paste a causal triangle of its length on the diagonal.",
        "The next one starts where this one ended.",
    ),
    pieces=("torch.block_diag(", "*[causal_mask(n)", "for n in lengths]", ").bool()", "return"),
    why="the False outside the blocks costs nothing to write but is still computed: chapter 06 gets rid of that too.",
    in_engine=same_tokens,
)

VISIBLE = Exercise(
    id="2.4",
    kind="F",
    minutes=7,
    importance="the one rule: the other three masks are cases of it",
    tiny=packed_case([1, 3], [3, 4]),
    cases=visible_cases,
    twins=(
        Twin(
            answers.visible_across_sequences,
            "positions alone do not tell requests apart: each counts from 0. A key must also be of the same sequence.",
        ),
        Twin(
            answers.visible_with_the_future,
            "within a sequence your tokens see their future: compare the positions too.",
        ),
        Twin(answers.visible_without_itself, "your tokens do not see themselves: < should be <=."),
        Twin(answers.visible_looking_ahead, "your tokens look ahead: the key's position must be <= the query's."),
        Twin(answers.visible_by_either_rule, "either rule is enough in yours; both must hold: &, not |."),
        Twin(
            answers.visible_with_keys_as_rows,
            "rows and columns are swapped: a row for each query, a column for each key.",
        ),
        Twin(
            answers.visible_by_row_and_column,
            "you compare rows with columns of the mask; compare positions. With cached keys row 0 is not position 0.",
        ),
        Twin(
            answers.visible_joined_by_and,
            "`and` and a chain of comparisons want one True or False. Put brackets round each comparison and use &.",
        ),
        Twin(
            answers.visible_one_by_one,
            "you compare one by one; all with all needs a row for each query: [:, None] and [None, :].",
        ),
        Twin(
            answers.visible_from_earlier_sequences_too,
            "your tokens also see earlier sequences: the sequence must be the same, == and not <=.",
        ),
    ),
    right=(answers.visible_by_minus, answers.visible_cell_by_cell),
    question="When may a query look at a key? Say it in one sentence with one 'and' in it.",
    steps=(
        "q_seq[:, None] == k_seq[None, :] says for every pair whether they are of the same sequence.",
        "k_pos[None, :] <= q_pos[:, None] says for every pair whether the key does not lie in the future.",
        "Both must hold: &.",
    ),
    why="nothing in this rule asks when a key was computed or what lies beside it: batching cannot change an answer.",
    in_engine=same_tokens,
)

CHAPTER = Chapter(2, "Masks: who may look at whom", (30, 40), (CAUSAL_MASK, CHUNK_MASK, BLOCK_MASK, VISIBLE))
