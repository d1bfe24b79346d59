"""Exercises of chapter 04: a prompt in pieces, what may be sampled, who sees whom, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from minicb import metrics, reference, request  # noqa: F401 - their seams are the exercises
from minicb.batch import Batch
from minicb.cache import KVCache
from minicb.course.chapters import ch04_answers as answers
from minicb.course.spec import Case, Chapter, Dice, Exercise, MismatchError, Twin
from minicb.course.tiny import PROMPTS, model, same_tokens
from minicb.engine import Engine
from minicb.metrics import StepRecord
from minicb.model import Attend
from minicb.reference import ReferenceAttention, find_spans, step_mask
from minicb.sampling import SamplingParams


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


def cached_and_new_cases(dice: Dice) -> Iterator[Case]:
    for new in dice.lengths(low=1, high=6):
        yield cached_and_new(dice.number(0, 7), new)


def cached_and_new(computed: int, new: int) -> Case:
    return Case((computed, new), f"{computed} computed, {new} new")


class CountingAttention(ReferenceAttention):
    """Counts the cells that each step really computes and sees, by its own masks."""

    def __init__(self) -> None:
        self.counts: list[tuple[int, int]] = []

    def bind(self, batch: Batch, cache: KVCache) -> Attend:
        mask = step_mask(batch)
        parts: list[Tensor] = [mask[span.rows, span.columns] for span in find_spans(batch, cache.page_size)]
        self.counts.append((sum(part.numel() for part in parts), sum(int(part.sum()) for part in parts)))
        return super().bind(batch, cache)


def counts_what_attention_computes() -> str:
    """Run three requests; MismatchError if a step's record counts other cells than its attention computed."""
    attention, steps = CountingAttention(), list[StepRecord]()
    engine = Engine(
        model(), attention=attention, max_num_batched_tokens=5, max_num_seqs=4, max_model_len=32,
        kv_cache_memory_bytes=1 << 24, on_step=steps.append,
    )  # fmt: skip
    for name, prompt in PROMPTS.items():
        engine.add_request(prompt, SamplingParams(max_tokens=4, ignore_eos=True), request_id=name)
    while engine.has_unfinished_requests:
        engine.step()
    for step, (computed, seen) in zip(steps, attention.counts, strict=True):
        if (step.score_cells, step.useful_cells) != (computed, seen):
            raise MismatchError(
                f"step {step.step} computed {computed} cells and saw {seen}; "
                f"its record says {step.score_cells} and {step.useful_cells}."
            )
    return f"{len(steps)} steps of {len(PROMPTS)} requests, counted right"


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

MASK_OF_CHUNK = Exercise(
    id="4.3",
    kind="P",
    minutes=4,
    importance="here the masks of chapter 02 meet the cache of chapter 03",
    tiny=cached_and_new(4, 3),
    cases=cached_and_new_cases,
    twins=(
        Twin(
            answers.mask_of_chunk_without_the_cache,
            "there is no column for the cached keys; the chunk would forget what came before. Right for the first one.",
        ),
        Twin(
            answers.mask_of_chunk_for_all_tokens,
            "your mask has a row for every token; the computed ones ask nothing now. A row for each new token.",
        ),
        Twin(
            answers.mask_of_chunk_with_cached_keys_only,
            "there is no column for the new keys: the chunk's tokens also see each other. num_keys counts both.",
        ),
        Twin(
            answers.mask_of_chunk_with_keys_as_rows,
            "rows and columns are swapped: a row for each query, a column for each key.",
        ),
        Twin(
            answers.mask_of_chunk_of_the_cached_rows,
            "your rows are the cached tokens; the queries of this pass are the new ones.",
        ),
        Twin(
            answers.mask_of_chunk_from_the_top_left,
            "your rows count from 0, but the first new token stands at position num_computed.",
        ),
        Twin(
            answers.mask_of_chunk_all_visible,
            "everything is visible. Cached keys are, but within the chunk nobody may look ahead.",
        ),
        Twin(
            answers.mask_of_chunk_of_old_keys_alone,
            "your tokens see the cached keys only; they also see themselves and what stands before them in the chunk.",
        ),
        Twin(
            answers.mask_of_chunk_of_new_keys_alone,
            "the cached keys are hidden: each chunk would be read as if it were a text of its own.",
        ),
    ),
    right=(answers.mask_of_chunk_by_chunk_mask, answers.mask_of_chunk_cut_from_the_square),
    question="Four tokens are in the cache and three are new. How many rows has the mask, and how many columns?",
    steps=(
        "Where nothing is computed yet, the chunk is a whole text: the square of 2.1.",
        "Otherwise the keys are the cached ones and the chunk's own.",
        "The rectangle of 2.2 wants the number of queries first, then the number of keys.",
    ),
    why="a whole prompt is the widest chunk, a decoded token the narrowest: one function, and no phases.",
    in_engine=same_tokens,
)

COUNT_CELLS = Exercise(
    id="4.4",
    kind="F",
    minutes=6,
    importance="count before you build: it tells what a chunk saves and what not",
    tiny=cached_and_new(4, 4),
    cases=cached_and_new_cases,
    twins=(
        Twin(
            answers.cells_without_the_cache,
            "you count the chunk's own keys only; each query also meets every key from the cache.",
        ),
        Twin(
            answers.cells_without_brackets,
            "num_new is multiplied with the cached keys only; put brackets round all the keys.",
        ),
        Twin(
            answers.cells_of_the_whole_square,
            "you count the whole text up to here; only the new tokens ask in this pass, so only their rows count.",
        ),
        Twin(
            answers.cells_of_the_cache_only,
            "you count the cached keys only; the new tokens also meet their own keys and each other's.",
        ),
        Twin(
            answers.cells_hiding_the_diagonal,
            "you hide one cell too many in each row: a token sees itself.",
        ),
        Twin(
            answers.cells_seen_in_the_chunk_only,
            "your visible cells are the chunk's triangle alone; the cached keys are visible too, all of them.",
        ),
        Twin(
            answers.cells_that_are_hidden,
            "your second number counts the hidden cells; asked are the visible ones.",
        ),
        Twin(
            answers.cells_half_of_them_seen,
            "half is only roughly right, and only for a square: the cached keys are all visible.",
        ),
        Twin(
            answers.cells_all_seen,
            "all your cells are visible; within the chunk each token's future is computed and then hidden.",
        ),
        Twin(
            answers.cells_hiding_a_square,
            "you hide both triangles, past and future; only what lies above the diagonal is hidden: half of that.",
        ),
        Twin(
            answers.cells_the_other_way_round,
            "the two numbers are swapped: first those that are computed, then those that are visible.",
        ),
        Twin(
            answers.cells_in_halves,
            "the count is right but it is a float: / makes one. Cells are whole: use // instead.",
        ),
        Twin(
            answers.cells_in_tensors,
            "the count is right but it is a tensor: int(...) makes a plain number of it.",
        ),
        Twin(answers.cells_computed_only, "two numbers are wanted, in this order: computed, visible."),
    ),
    right=(answers.cells_from_the_mask, answers.cells_row_by_row),
    question="4 cached, 4 new. How many keys does the first of the new tokens see, and how many does it meet?",
    steps=(
        "Computed: every query meets every key, cached ones and new ones, visible or not.",
        "Of the new tokens the first cannot see the others, the second all but itself and the first, and so on.",
        "0 + 1 + ... + (n - 1) is n(n - 1) / 2; in whole numbers // 2.",
    ),
    pieces=(
        "computed = num_new *",
        "(num_computed + num_new)",
        "hidden = num_new *",
        "(num_new - 1) // 2",
        "return computed,",
        "computed - hidden",
    ),
    why="the visible cells add up to the same triangle for every cut; a cut only changes what is computed beside it.",
    in_engine=counts_what_attention_computes,
)

CHAPTER = Chapter(4, "Chunked prefill", (30, 40), (NEXT_CHUNK, NEXT_SPAN, MASK_OF_CHUNK, COUNT_CELLS))
