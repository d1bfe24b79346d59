"""Exercises 4.3 and 4.4: who sees whom in a chunk, and how many cells that are."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from minicb import metrics, reference  # noqa: F401 - their seams are the exercises
from minicb.batch import Batch
from minicb.cache import KVCache
from minicb.course.chapters import ch04_cells_answers as answers
from minicb.course.spec import Case, Dice, Exercise, MismatchError, Twin
from minicb.course.tiny import PROMPTS, model, same_tokens
from minicb.engine import Engine
from minicb.metrics import StepRecord
from minicb.model import Attend
from minicb.reference import ReferenceAttention, find_spans, step_mask
from minicb.sampling import SamplingParams


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
            answers.mask_of_chunk_with_both_swapped,
            "the two are swapped: chunk_mask wants the number of queries first, then the number of keys.",
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
            answers.cells_hiding_the_first_ones_future,
            "you hide what the first new token may not see. The second may not see one less, and so on: add them up.",
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
