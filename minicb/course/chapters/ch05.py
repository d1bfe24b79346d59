"""Exercises of chapter 05: rows of equal length, and what the filling costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from minicb import metrics, padding  # noqa: F401 - their seams are the exercises
from minicb.course.chapters import ch05_answers as answers
from minicb.course.chapters import ch05_reading_answers as reading
from minicb.course.padded import same_tokens_on_either_side, same_tokens_padded, same_waste
from minicb.course.spec import Case, Chapter, Dice, Exercise, Twin


def rows_cases(dice: Dice) -> Iterator[Case]:
    """Rows as a step has them: some whole prompts, some single tokens, some rows with nothing to do."""
    for extra in dice.lengths(high=4):
        lengths = [dice.number(0, 6) for _ in range(extra)]
        lengths.insert(dice.number(0, extra), dice.number(1, 6))  # somebody has a token, not always the first
        yield Case(([dice.whole(0, 9, n).tolist() for n in lengths], dice.number(0, 9)), f"rows of {lengths} tokens")


def positions_cases(dice: Dice) -> Iterator[Case]:
    for extra in dice.lengths(high=4):
        lengths, start = [dice.number(0, 5) for _ in range(extra + 1)], dice.whole(0, 7, extra + 1)
        sides = dice.number(0, 2)
        words = ("on the left", "on the right", "on both sides")[sides]
        real = filled(dice, lengths, sides)
        yield Case((real, start), f"tokens {lengths}, in the cache {start.tolist()}, padding {words}")


def newest_cases(dice: Dice) -> Iterator[Case]:
    for extra in dice.lengths(high=4):
        lengths, sides = [dice.number(0, 5) for _ in range(extra + 1)], dice.number(0, 2)
        words = ("on the left", "on the right", "on both sides")[sides]
        yield Case((filled(dice, lengths, sides),), f"tokens {lengths}, padding {words}")


def filled(dice: Dice, lengths: Sequence[int], sides: int) -> torch.Tensor:
    """bool [B, W]: rows of so many real tokens. sides: 0 padding on the left, 1 on the right, 2 on both."""
    width = max(1, *lengths) + (dice.number(0, 2) if sides == 2 else 0)
    real = torch.zeros(len(lengths), width, dtype=torch.bool)
    for row, count in enumerate(lengths):
        first = (width - count, 0, dice.number(0, width - count))[sides]
        real[row, first : first + count] = True
    return real


def share_cases(dice: Dice) -> Iterator[Case]:
    for total in dice.lengths(high=200):
        useful = dice.number(0, total)
        yield Case((useful, total), f"{useful} useful of {total}")


LEFT_PAD = Exercise(
    id="5.1",
    kind="F",
    minutes=8,
    importance="the rectangle that padded engines feed",
    tiny=Case(([[3, 1, 4], [1, 5, 9, 2, 6], [], [7]], 0), "rows of 3, 5, 0 and 1 tokens, padding id 0"),
    cases=rows_cases,
    twins=(
        Twin(
            answers.pad_on_the_right,
            "your padding is on the right. On the left, every row ends with its newest token.",
        ),
        Twin(
            answers.pad_marked_as_real, "your second result is True where the padding is. True means a token is real."
        ),
        Twin(
            answers.pad_told_by_its_id,
            "a prompt may contain the padding's id, so the id does not tell them apart. The lengths do.",
        ),
        Twin(
            answers.pad_cut_to_the_shortest,
            "your rows are cut to the shortest. All must become as wide as the longest.",
        ),
        Twin(answers.pad_real_in_ints, "the numbers of `real` are right, but it must be True and False (bool)."),
        Twin(answers.pad_ids_in_floats, "your ids are floats: torch.zeros and torch.ones make floats if not told."),
        Twin(
            answers.pad_ids_only, "the second result is missing: return ids and real, which says where a token is real."
        ),
        Twin(
            answers.pad_in_lists,
            "your rows are lists of numbers; the model needs a tensor of ids and a tensor of bools.",
        ),
        Twin(answers.pad_real_first, "your results are the wrong way round: ids first, then real."),
        Twin(answers.pad_always_with_zero, "you fill with 0, whatever pad_id is."),
        Twin(
            answers.pad_changing_the_rows,
            "insert, append and += change the request's own tokens. Build new lists: [pad_id] * n + list(row).",
        ),
        Twin(
            answers.pad_writing_from_the_end,
            "[-n:] with n = 0 means the whole row. Count from the front: [width - n:].",
        ),
        Twin(
            answers.pad_filling_from_the_end,
            "[-n:] with n = 0 means the whole row, and an empty one has nothing to fill it with. Count from the front: "
            "[width - n:].",
        ),
        Twin(
            answers.pad_by_pad_sequence,
            "torch.tensor([]) is a tensor of floats, and an empty row makes one. Give torch.tensor a dtype.",
        ),
        Twin(
            answers.pad_to_the_first_row,
            "the first row need not be the longest. Take the largest of all lengths as width.",
        ),
    ),
    right=(answers.pad_into_a_full_tensor, answers.pad_by_comparing),
    question="The longest of your rows has 5 tokens, another has 3. How many paddings go in front of the 3?",
    steps=(
        "The width is the length of the longest row.",
        "In front of each row go width - len(row) paddings; then come its own ids.",
        "real has the same shape: False for each padding, True for each token.",
        "Both become tensors: torch.tensor takes a list of equally long lists.",
    ),
    why="every row ends with its newest token, so the next one can be laid on at the right, for all rows at once.",
    in_engine=same_tokens_padded,
)

PADDED_POSITIONS = Exercise(
    id="5.2",
    kind="C",
    minutes=6,
    importance="wrong here, and nothing complains",
    tiny=Case(
        (torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 1]], dtype=torch.bool), torch.tensor([0, 0, 5])),
        "rows of 2, 4 and 1 tokens; the last has 5 in the cache",
    ),
    cases=positions_cases,
    twins=(
        Twin(
            answers.positions_of_the_columns,
            "you number the columns: the padding in front of a token counts as well. Count only real tokens.",
        ),
        Twin(
            answers.positions_of_the_columns_everywhere,
            "you number the columns, padding included. Count only real tokens, and give padding a 0.",
        ),
        Twin(answers.positions_from_one, "yours are one too high: the first token of a text stands at position 0."),
        Twin(
            answers.positions_without_the_cache,
            "the tokens in the cache are missing: a row's first new token stands at position start.",
        ),
        Twin(answers.positions_of_padding_too, "the padding has positions of its own in yours; it must get 0."),
        Twin(
            answers.positions_clamped,
            "clamp only lifts what is below 0. Padding must get 0 wherever it is, also in a row with a cache.",
        ),
        Twin(answers.positions_down_the_columns, "you count down the columns; a row is one request: dim=1."),
        Twin(answers.positions_minus_one_for_padding, "padding must get 0 here; -1 would point to the end of a table."),
        Twin(
            answers.positions_start_along_the_columns,
            "start has one number a row. start[:, None] stands it up as a column, so that each row gets its own.",
        ),
        Twin(answers.positions_counting_padding, "you count the padding: real is True where a token is."),
        Twin(
            answers.positions_by_the_sum,
            "sum gives one number a row. You need one for each cell, counted up to there: the running sum, cumsum.",
        ),
        Twin(
            answers.positions_by_the_sum_of_each_row,
            "all tokens of a row get the same position: sum counts the whole row, cumsum up to each cell.",
        ),
        Twin(
            answers.positions_if_padded_on_the_left,
            "you subtract the padding of the row, which is right while all of it is in front. Count the real tokens.",
        ),
    ),
    right=(answers.positions_by_where, answers.positions_row_by_row),
    question="A row is padding, padding, token, token. Counting only tokens, which number does the last one have?",
    steps=(
        "real.cumsum(dim=1) counts the True cells of each row up to every cell, this one included.",
        "The first real token must get start, the second start + 1: so take 1 off.",
        "start[:, None] gives every row its own start; ~real picks the padding.",
    ),
    why="a position says how many tokens of its own text stand before a token; who is beside it has no say in it.",
    in_engine=same_tokens_on_either_side,
)

WASTED_FRACTION = Exercise(
    id="5.3",
    kind="F",
    minutes=3,
    importance="the number that the next two chapters bring down",
    tiny=Case((12, 16), "12 useful of 16"),
    cases=share_cases,
    twins=(
        Twin(reading.waste_turned_round, "that is the useful share; the wasted one is what is left of 1."),
        Twin(reading.waste_in_per_cent, "yours is in per cent. A fraction lies between 0 and 1."),
        Twin(
            reading.waste_in_whole_numbers,
            "// drops everything after the point: use / for a fraction.",
        ),
        Twin(
            reading.waste_of_nothing,
            "nothing computed means total = 0: then nothing was wasted, and 0 / 0 is no number.",
        ),
        Twin(reading.waste_per_useful, "you divide by the useful slots; the share is of all slots."),
        Twin(reading.waste_counted, "that is how many slots are wasted; divide by all of them."),
        Twin(reading.waste_rounded, "do not round: whoever prints it decides on the digits."),
        Twin(reading.waste_of_nothing_as_one, "where nothing was computed nothing was wasted: 0, not 1."),
        Twin(reading.waste_upside_down, "total / useful is upside down: a share is the part divided by the whole."),
    ),
    right=(reading.waste_by_difference, reading.waste_guarded_first),
    question="Of 16 slots 12 were useful. How many were not, and what share of the 16 is that?",
    steps=(
        "The useful share is useful divided by total.",
        "What is left of 1 is wasted.",
        "If nothing was computed, total is 0: return 0.0 before you divide.",
    ),
    pieces=("return", "1 -", "useful / total", "if total", "else 0.0"),
    why="one number for any engine: whatever it calls its slots, somebody needed them or nobody did.",
    in_engine=same_waste,
)

NEWEST_ROWS = Exercise(
    id="5.4",
    kind="D",
    minutes=7,
    importance="reads the answer where it stands",
    tiny=Case(
        (torch.tensor([[1, 1, 0], [1, 1, 1], [0, 0, 0], [1, 0, 0]], dtype=torch.bool),),
        "rows of 2, 3, 0 and 1 tokens, padding on the right",
    ),
    cases=newest_cases,
    twins=(
        Twin(
            reading.newest_in_the_last_column,
            "you read the last column. With padding on the right a padding stands there: find the last True.",
        ),
        Twin(
            reading.newest_by_counting,
            "real tokens minus one is the right column only if the row begins with its first token.",
        ),
        Twin(reading.newest_is_the_first, "you found the first True of each row; the newest token is the last."),
        Twin(
            reading.newest_column_only,
            "these are columns. The rows lie end to end: row i of the rectangle begins at i * width.",
        ),
        Twin(
            reading.newest_of_empty_rows_too,
            "a row without a real token has no newest one: it must be left out.",
        ),
        Twin(
            reading.newest_from_behind,
            "argmax of a row without any True is 0, and looks like an answer: leave such rows out.",
        ),
        Twin(
            reading.newest_of_the_row_before,
            "a row without a real token still has the column of the row before it in your variable: leave it out.",
        ),
        Twin(
            reading.newest_of_a_neighbour,
            "a row of nothing but padding gives place -1, and that is the neighbour's last token. Leave it out.",
        ),
        Twin(
            reading.newest_by_index,
            "a row of nothing but padding has no last True to be found: leave it out first.",
        ),
        Twin(reading.newest_every_token, "you return every real token; wanted is the last one of each row."),
        Twin(reading.newest_as_a_mask, "wanted are row numbers (int64), not True and False."),
        Twin(
            reading.newest_in_a_list, "the numbers are right, but the model takes them as a tensor: torch.tensor(...)."
        ),
        Twin(
            reading.newest_times_the_rows,
            "row i begins at i * width: width is the number of columns, real.shape[1].",
        ),
    ),
    right=(reading.newest_by_cumsum, reading.newest_row_by_row),
    question="The rows of a 4 by 3 rectangle lie end to end. Which number has the middle cell of the second row?",
    steps=(
        "Write each real token's column number into its cell, and -1 into the others: torch.where does that.",
        "The largest number of a row is the column of its newest token.",
        "Add where the row begins, which is its number times the width.",
        "Leave out the rows where the largest number is -1.",
    ),
    why="a shape says where the tokens could be; only the mask says where they are.",
    in_engine=same_tokens_on_either_side,
)

CHAPTER = Chapter(
    5,
    "Batching by padding, and what it wastes",
    (35, 45),
    (LEFT_PAD, PADDED_POSITIONS, WASTED_FRACTION, NEWEST_ROWS),
)
