"""Exercises of chapter 06: one ragged row for all requests, its mask, its logits, and attention request by request.

The row and its logits are here; its mask and attention are in `ch06_attention.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from minicb import batch  # noqa: F401 - its seams are the exercises
from minicb.course.chapters import ch06_answers as answers
from minicb.course.chapters.ch06_attention import ATTEND_RAGGED, RAGGED_MASK
from minicb.course.spec import Case, Chapter, Dice, Exercise, Twin
from minicb.course.tiny import same_tokens


def row_cases(dice: Dice) -> Iterator[Case]:
    for requests in dice.lengths(high=5):
        chunks = [[dice.number(0, 9) for _ in range(dice.number(0, 4))] for _ in range(requests)]
        if requests > 2:
            chunks[-1] = list(chunks[0])  # two requests may well say the same
        yield Case((chunks,), f"chunks of {[len(chunk) for chunk in chunks]} tokens")


def sample_cases(dice: Dice) -> Iterator[Case]:
    for requests in dice.lengths(high=6):
        starts = [0, *accumulate(dice.number(1, 4) for _ in range(requests))]
        samples = [dice.number(0, 2) > 0 for _ in range(requests)]
        ends = ["yes" if wanted else "no" for wanted in samples]
        yield Case((starts, samples), f"chunks begin at {starts}, sample {', '.join(ends) or 'nobody'}")


CONCATENATE = Exercise(
    id="6.1",
    kind="F",
    minutes=6,
    importance="tokens, positions and slots all go through it",
    tiny=Case(([[3, 1, 4], [1, 5], [9]],), "chunks of 3, 2 and 1 tokens"),
    cases=row_cases,
    twins=(
        Twin(
            answers.row_without_the_total,
            "starts lacks its last number, the total. It is where the last chunk ends: one number more than chunks.",
        ),
        Twin(
            answers.row_with_ends_for_starts,
            "your starts are the ends: the first chunk begins at 0. Note the place before you lay the chunk down.",
        ),
        Twin(answers.row_behind_its_starts, "the order is the other way round: first the row, then the starts."),
        Twin(
            answers.row_with_lengths_for_starts,
            "these are the lengths. A chunk begins where all the chunks before it end: a running sum, from 0.",
        ),
        Twin(
            answers.row_with_zero_and_lengths,
            "after the 0 come the lengths; they have to be added up: each start is the start before plus that length.",
        ),
        Twin(
            answers.row_of_lists,
            "your row is a list of lists. The model wants the tokens themselves, end to end (extend, not append).",
        ),
        Twin(
            answers.row_counting_chunks,
            "append puts the whole chunk in as one item, and so your starts count chunks. Add its tokens: extend.",
        ),
        Twin(
            answers.row_counting_chunks_from_one,
            "append puts the whole chunk in as one item: extend adds its tokens. And the first chunk begins at 0.",
        ),
        Twin(
            answers.row_padded_to_the_longest,
            "you filled the chunks up to equal length. A ragged row has no padding: that is the point of it.",
        ),
        Twin(
            answers.row_a_token_each_in_turn,
            "your row takes a token of each request in turn. Lay down whole chunks, one after another.",
        ),
        Twin(answers.row_alone, "only the row comes back; the starts are wanted too: return both, the row first."),
        Twin(
            answers.row_without_empty_chunks,
            "an empty chunk has no start in yours, so all behind it are taken for the wrong request.",
        ),
        Twin(
            answers.row_looking_the_chunk_up,
            "you look the chunk up (index), and two equal chunks are found at the same place. Keep count instead.",
        ),
        Twin(
            answers.row_growing_the_first_chunk,
            "your row *is* the first chunk, so += makes that request's own tokens grow. Begin with an empty list.",
        ),
        Twin(
            answers.row_as_a_sum_of_lists,
            "sum begins with the number 0, and a list cannot be added to a number: tell it what to begin with.",
        ),
        Twin(
            answers.row_adding_a_number_to_starts,
            "+= puts the items of another list behind; a single number goes there with append.",
        ),
        Twin(
            answers.row_in_tensors,
            "tensors are made later, all in one place; here two plain lists are wanted.",
        ),
    ),
    right=(answers.row_by_sums, answers.row_by_slices),
    question="Chunks of 3, 2 and 1 tokens lie end to end. Where does each begin, and where does the last end?",
    steps=(
        "Start with an empty row and with starts that know only where the first chunk begins.",
        "Chunk by chunk: put its tokens at the end of the row.",
        "Then note how long the row is now: there the next chunk begins, or the row ends.",
    ),
    why="chunk i is row[starts[i] : starts[i + 1]], so nothing else has to be kept to find a request again.",
    in_engine=same_tokens,
)

ROWS_TO_SAMPLE = Exercise(
    id="6.3",
    kind="W",
    minutes=5,
    importance="one row off, and you get somebody else's answer",
    tiny=Case(([0, 3, 8, 12], [True, False, True]), "chunks begin at [0, 3, 8, 12], sample yes, no, yes"),
    cases=sample_cases,
    twins=(
        Twin(
            answers.rows_at_the_beginnings,
            "these are the first rows of the chunks: they know only one token. The last row has seen the whole chunk.",
        ),
        Twin(
            answers.rows_one_too_far,
            "that is the first row of the next request. A chunk's last row is the one before its end.",
        ),
        Twin(
            answers.rows_one_before_the_beginnings,
            "you subtract 1 from the beginnings: that is the end of the request before. Use each chunk's own end.",
        ),
        Twin(
            answers.rows_of_everybody,
            "you sample every chunk. One that ends in the middle of its prompt predicts a token that is known already.",
        ),
        Twin(
            answers.rows_of_the_others,
            "you sample those that are not due, and only those: True in `samples` means yes.",
        ),
        Twin(
            answers.rows_by_the_number_of_the_request,
            "these are the numbers of the requests. Wanted are rows; q_start leads from one to the other.",
        ),
        Twin(
            answers.rows_counted_within_the_chunk,
            "you count within each chunk; wanted is the place in the whole row.",
        ),
        Twin(
            answers.rows_counted_from_the_end,
            "-1 is the last row of the whole row, the last request's. In a rectangle each has a last place, here not.",
        ),
        Twin(
            answers.rows_with_a_place_for_everybody,
            "-1 for those that are not due is a row as well: the last one. They must not appear in the list at all.",
        ),
        Twin(
            answers.rows_with_zero_for_the_others,
            "0 for those that are not due is a row as well: the first one. They must not appear in the list at all.",
        ),
        Twin(
            answers.rows_whole_chunks,
            "you read every row of the chunks. Only the last of each says what comes after what is known.",
        ),
        Twin(
            answers.rows_in_a_tensor,
            "the tensor is made later, together with the others; here a plain list of numbers is wanted.",
        ),
        Twin(answers.rows_as_yes_and_no, "wanted are the numbers of the rows, not a yes or no for each."),
        Twin(
            answers.rows_with_the_total_taken_for_a_chunk,
            "q_start has one number more than samples: leave its first one out, and what remains are the ends.",
        ),
    ),
    right=(answers.rows_by_number, answers.rows_by_mask),
    question="The second chunk begins at row 3 and the third at row 8. Which row is the second chunk's last?",
    steps=(
        "q_start without its first number holds the end of each chunk.",
        "The row before an end is the chunk's last.",
        "Keep only those whose entry in `samples` is True.",
    ),
    pieces=("[end - 1", "for end, wanted in", "zip(q_start[1:],", "samples,", "strict=True)", "if wanted]", "return"),
    why="the head is the model's widest matrix; for a prompt of 100 tokens 99 of its products would be thrown away.",
    in_engine=same_tokens,
)

CHAPTER = Chapter(
    6,
    "Ragged batching: no padding at all",
    (45, 55),
    (CONCATENATE, RAGGED_MASK, ROWS_TO_SAMPLE, ATTEND_RAGGED),
)
