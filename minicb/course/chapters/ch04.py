"""Exercises of chapter 04: a prompt in pieces. The two about masks and cells are in `ch04_cells.py`."""

from __future__ import annotations

from collections.abc import Iterator

from minicb import request  # noqa: F401 - its seams are exercises
from minicb.course.chapters import ch04_answers as answers
from minicb.course.chapters.ch04_cells import COUNT_CELLS, MASK_OF_CHUNK
from minicb.course.spec import Case, Chapter, Dice, Exercise, Twin
from minicb.course.tiny import same_tokens


def next_chunk_cases(dice: Dice) -> Iterator[Case]:
    """Nothing left, no budget, a budget that fits exactly, and everything between."""
    for budget in dice.lengths(high=8):
        tokens = dice.number(1, 20)
        yield chunk_case(tokens, dice.number(0, tokens), budget)


def next_span_cases(dice: Dice) -> Iterator[Case]:
    """As the engine calls it: the last token of a request is never computed yet."""
    for number, budget in enumerate(dice.lengths(low=1, high=8)):
        left = budget if number % 4 == 2 else budget + 1 if number % 4 == 3 else dice.number(1, 16)
        computed = dice.number(0, 9)
        yield chunk_case(computed + left, computed, budget)


def chunk_case(tokens: int, computed: int, budget: int) -> Case:
    return Case((tokens, computed, budget), f"{tokens} tokens, {computed} computed, budget {budget}")


NEXT_CHUNK = Exercise(
    id="4.1",
    kind="W",
    minutes=3,
    importance="every step of the engine begins with it",
    tiny=chunk_case(10, 8, 4),
    cases=next_chunk_cases,
    twins=(
        Twin(answers.next_chunk_without_budget, "your chunk takes all that is left, however small the budget is."),
        Twin(
            answers.next_chunk_always_full,
            "your chunk is always as large as the budget, even where fewer tokens are left.",
        ),
        Twin(
            answers.next_chunk_of_the_whole_text,
            "you compare the budget with all tokens; the computed ones need not be computed again.",
        ),
        Twin(
            answers.next_chunk_of_the_larger,
            "max takes the larger of the two. Neither what is left nor the budget may be exceeded.",
        ),
        Twin(
            answers.next_chunk_up_to_its_end,
            "that is the position where the chunk ends; asked is how many tokens it has.",
        ),
        Twin(
            answers.next_chunk_of_computed_ones,
            "you count the tokens that are computed already; left are the others.",
        ),
        Twin(
            answers.next_chunk_with_the_examples_budget,
            "3 was the budget of the example; yours is called budget.",
        ),
        Twin(
            answers.next_chunk_and_all_the_others,
            "you list all chunks to come. One number is wanted, the next one: the engine asks again in the next step.",
        ),
        Twin(
            answers.next_chunk_left_for_later,
            "that is what is left for later, after this chunk; asked is the chunk itself.",
        ),
        Twin(
            answers.next_chunk_turned_round,
            "your difference is turned round and negative: from all tokens take the computed ones away.",
        ),
        Twin(
            answers.next_chunk_never_empty,
            "your chunk has a token even where none is left, or where the budget is 0. Then the answer is 0.",
        ),
        Twin(
            answers.next_chunk_of_the_rest_of_a_division,
            "% gives what is left over in the end: the size of the last chunk, not of the next one.",
        ),
        Twin(
            answers.next_chunk_in_even_shares,
            "your chunks are evenly sized. It works, but each step must use its budget as far as it goes: 4, 4, 2.",
        ),
        Twin(
            answers.next_chunk_all_or_nothing,
            "your request waits until everything fits at once; a longer prompt than the budget would wait for ever.",
        ),
        Twin(
            answers.next_chunk_from_a_budget_for_the_request,
            "your budget is used up by what was computed in earlier steps; it is new in each step.",
        ),
    ),
    right=(answers.next_chunk_by_if, answers.next_chunk_by_slicing),
    question="10 tokens, 8 of them computed, budget 4. How many can you compute, and which of the numbers decides it?",
    steps=(
        "Left to compute: all tokens without the computed ones.",
        "The chunk may not be larger than what is left, and not larger than the budget.",
        "The smaller of two numbers is min(a, b).",
    ),
    pieces=("num_tokens - num_computed,", "min(", "return", "budget)"),
    why="a prompt, one token of an answer, a restart after losing the cache: for this function they are all the same.",
    in_engine=same_tokens,
)

NEXT_SPAN = Exercise(
    id="4.2",
    kind="C",
    minutes=5,
    importance="a wrong True puts a word into somebody's prompt",
    tiny=chunk_case(7, 4, 4),
    cases=next_span_cases,
    twins=(
        Twin(
            answers.span_that_always_samples,
            "your chunks are always sampled. In the middle of a prompt the next token is known already: False there.",
        ),
        Twin(
            answers.span_that_never_samples,
            "yours is never True. Ask where this chunk ends, not what was computed before it.",
        ),
        Twin(
            answers.span_sampled_where_the_chunk_is_short,
            "a short chunk is not the sign of the end: 8 tokens by 4 end with a full one. Compare its end.",
        ),
        Twin(
            answers.span_sampled_where_the_chunk_is_full,
            "a full chunk is no sign of the end: in a long prompt all but the last one are full. Compare its end.",
        ),
        Twin(
            answers.span_sampled_at_the_last_position,
            "you compare with the last token's own position. The end is the position after it: num_tokens.",
        ),
        Twin(
            answers.span_sampled_until_the_end,
            "yours is turned round: True in the middle, False at the end. True means the next token can be sampled.",
        ),
        Twin(
            answers.span_sampled_at_the_first_chunk,
            "you sample where a request begins; it must be where its tokens end.",
        ),
        Twin(
            answers.span_with_a_count_for_an_end,
            "your second number is how many tokens the chunk has; asked is the position after its last one.",
        ),
        Twin(
            answers.span_compared_with_the_count,
            "you compare the size of the chunk with all tokens; compare the position where it ends.",
        ),
        Twin(
            answers.span_up_to_the_last_one,
            "your end is the last token itself; as in a slice, it should be the position after it.",
        ),
        Twin(
            answers.span_with_one_too_many,
            "your end is one too far. The tokens at 4, 5 and 6 are the slice from 4 to 7: start plus count is enough.",
        ),
        Twin(
            answers.span_counted_from_the_end,
            "you count on from the request's last token; the chunk begins behind the computed ones.",
        ),
        Twin(
            answers.span_from_the_front,
            "your chunk begins at 0 again. The computed tokens stand before it: it begins where they end.",
        ),
        Twin(
            answers.span_one_further,
            "your chunk leaves a token out: with 4 computed the next one stands at position 4, as we count from 0.",
        ),
        Twin(answers.span_without_budget, "your chunk takes all that is left, however small the budget is."),
        Twin(
            answers.span_past_the_end,
            "your last chunk ends behind the request's tokens; next_chunk knows how many there are.",
        ),
    ),
    right=(answers.span_by_min, answers.span_by_what_is_left),
    question="7 tokens by 4: after which of the two chunks do you know everything that you need for token 8?",
    steps=(
        "A chunk begins at the first token that is not computed; we count from 0.",
        "It ends so many positions later as next_chunk says.",
        "If that is where the request's tokens end, the next one can be sampled.",
    ),
    pieces=(
        "end = num_computed +",
        "next_chunk(num_tokens, num_computed, budget)",
        "return num_computed,",
        "end,",
        "end == num_tokens",
    ),
    why="prompt or answer makes no difference: a request may be sampled when nothing of it is left to compute.",
    in_engine=same_tokens,
)

CHAPTER = Chapter(4, "Chunked prefill", (30, 40), (NEXT_CHUNK, NEXT_SPAN, MASK_OF_CHUNK, COUNT_CELLS))
