"""Exercises of chapter 06 about attention: the mask of a ragged row, and the loop over its requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from minicb import reference  # noqa: F401 - its seams are the exercises
from minicb.course import tiny
from minicb.course.chapters import ch06_loop_answers as loops
from minicb.course.chapters import ch06_mask_answers as masks
from minicb.course.spec import Case, Dice, Exercise, MismatchError, Twin
from minicb.metrics import StepRecord
from minicb.reference import Span
from minicb.seams import SEAMS, swapped


def mask_cases(dice: Dice) -> Iterator[Case]:
    for requests in dice.lengths(high=4):
        new = [dice.number(1, 3) for _ in range(requests)]
        context = [count + dice.number(0, 4) for count in new]
        yield Case((new, context), f"new tokens {new}, keys {context}")


def loop_cases(dice: Dice) -> Iterator[Case]:
    """Steps as the engine packs them, the cache full of older keys, its slots in another order than the row."""
    for requests in dice.lengths(low=1, high=4):
        new = [dice.number(1, 3) for _ in range(requests)]
        context = [count + dice.number(0, 3) for count in new]
        kv_heads, group, size = dice.number(1, 2), dice.number(1, 2), 2
        tokens, dtype = sum(new), dice.floats(1).dtype
        q = dice.floats(tokens, kv_heads * group, size, dtype=dtype)
        k, v = (dice.floats(tokens, kv_heads, size, dtype=dtype) for _ in range(2))
        caches = [dice.floats(sum(context) + 3, kv_heads, size, dtype=dtype) for _ in range(2)]
        yield loop_case(new, context, q, k, v, *caches)


def loop_case(
    new: Sequence[int], context: Sequence[int], q: Tensor, k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor
) -> Case:
    mask = torch.block_diag(
        *[torch.ones(n, total).tril(total - n) for n, total in zip(new, context, strict=True)]
    ).bool()
    rows, columns = list(pairwise(accumulate(new, initial=0))), list(pairwise(accumulate(context, initial=0)))
    last = len(k_cache)
    spans = [
        Span(slice(*own), slice(*seen), torch.arange(last - seen[1], last - seen[0]))
        for own, seen in zip(rows, columns, strict=True)
    ]
    return Case((q, k, v, mask, k_cache, v_cache, spans), f"new tokens {list(new)}, keys {list(context)}")


def tiny_loop_case() -> Case:
    """Queries of zero share alike, so every answer is the mean of the values that are seen."""
    q, k = torch.zeros(3, 1, 1), torch.zeros(3, 1, 1)
    v = torch.tensor([10.0, 20.0, 40.0]).reshape(3, 1, 1)
    kept = torch.tensor([0.0, 0.0, 0.0, 2.0, 0.0]).reshape(5, 1, 1)  # slot 3 holds the older value of the first request
    return loop_case([1, 2], [2, 2], q, k, v, torch.zeros(5, 1, 1), kept)


def same_tokens_without_waste() -> str:
    """The usual three requests; and no score may be computed between two of them. MismatchError if one is."""
    shown = tiny.same_tokens()
    records, counted, scores = list[StepRecord](), 0, SEAMS["1.1"].installed or SEAMS["1.1"].reference

    def count(q: Tensor, k: Tensor) -> Tensor:
        nonlocal counted
        counted += q.shape[0] * k.shape[0]
        return scores(q, k)  # type: ignore[no-any-return]

    with swapped("1.1", count):
        tiny.run(tiny.PROMPTS, 64, records.append)
    enough = tiny.model().config.num_layers * sum(record.score_cells for record in records)
    if counted > enough:
        raise MismatchError(
            f"the tokens are right, but it computed {counted:,} score cells where {enough:,} are enough. "
            "Do queries of one request meet keys of another? Go request by request."
        )
    return f"{shown}; {counted:,} score cells, none of them between two requests"


RAGGED_MASK = Exercise(
    id="6.2",
    kind="C",
    minutes=8,
    importance="one mask for prompts, chunks and single tokens side by side",
    tiny=Case(([1, 2], [3, 4]), "new tokens [1, 2], keys [3, 4]"),
    cases=mask_cases,
    twins=(
        Twin(
            masks.ragged_from_zero,
            "your queries count from 0 in every chunk. They stand behind the cached tokens, the last at total - 1.",
        ),
        Twin(
            masks.ragged_along_the_row,
            "your queries are numbered along the row. A position belongs to its request: it starts anew with each.",
        ),
        Twin(
            masks.ragged_keys_along_the_row,
            "your keys are numbered along the columns. Each request's keys stand at 0, 1, 2, ... again.",
        ),
        Twin(
            masks.ragged_behind_the_context,
            "your queries see their own future. Only the newest stands at total - 1, the others stand before it.",
        ),
        Twin(
            masks.ragged_one_too_far,
            "your positions are one too high: each token sees the one after it. The newest stands at total - 1.",
        ),
        Twin(
            masks.ragged_all_at_the_first,
            "all new tokens of a chunk stand at the place of its first. They stand one behind another.",
        ),
        Twin(
            masks.ragged_from_the_count,
            "range(count, total) leaves out the first `count` of all; the queries are the last `count`.",
        ),
        Twin(
            masks.ragged_with_keys_in_every_request,
            "k_seq says whose a key is: the same number for all keys of a request, not a running one.",
        ),
        Twin(
            masks.ragged_with_all_keys_in_one_request,
            "everybody has the number 0, so all are one request: positions alone do not keep them apart.",
        ),
        Twin(
            masks.ragged_with_new_keys_only,
            "the cached keys have no columns: a request has as many keys as `context` says.",
        ),
        Twin(
            masks.ragged_with_as_many_keys_as_queries,
            "your keys are as many as the queries, counted from 0. All that are kept can be seen: `total` of them.",
        ),
        Twin(
            masks.ragged_with_a_row_for_each_key,
            "you have a row for each key. Only the new tokens look: as many rows as `new` says.",
        ),
        Twin(
            masks.ragged_with_a_row_for_each_request,
            "you have one row a request. Right while all decode; a chunk has a row for each of its tokens.",
        ),
        Twin(
            masks.ragged_with_one_number_a_request,
            "k_seq has one number a request; it needs one for each key, as k_pos has: repeat it.",
        ),
        Twin(
            masks.ragged_with_rows_and_columns_swapped,
            "rows and columns are swapped: `visible` wants the queries first, then the keys.",
        ),
        Twin(
            masks.ragged_with_one_position_a_request,
            "one position a request is too few: each of its tokens has its own. A range has them all.",
        ),
        Twin(
            masks.ragged_adding_a_number,
            "a single number cannot be added to a list: each request adds several, a range or a list of them.",
        ),
        Twin(
            masks.ragged_with_the_new_ones_on_top,
            "`context` counts the new tokens already: there are `total` keys, and the queries are the last of them.",
        ),
        Twin(
            masks.ragged_appending_ranges,
            "append puts the range in as one item; += adds its numbers.",
        ),
    ),
    right=(masks.ragged_by_pasting, masks.ragged_by_repeating),
    question="A request has 5 keys after this step, 2 of them new. At which positions do its 2 queries stand?",
    steps=(
        "Four lists grow side by side: position and request of every query, position and request of every key.",
        "The new tokens are the last `count` of `total` positions.",
        "The keys are all `total` positions from 0 on, and every one of them belongs to request i.",
    ),
    why="no word in it about prompts or answers: a prompt, a chunk and a single token are the same thing to this mask.",
    in_engine=tiny.same_tokens,
)

ATTEND_RAGGED = Exercise(
    id="6.4",
    kind="F",
    minutes=9,
    importance="the loop that removes the waste, and the engine's reference for all faster ones",
    tiny=tiny_loop_case(),
    cases=loop_cases,
    mutates=(4, 5),
    twins=(
        Twin(
            loops.loop_that_ends_after_the_first,
            "return stands inside the loop: only the first request gets its turn. Move it one step to the left.",
        ),
        Twin(
            loops.loop_that_keeps_the_last,
            "each request replaces the result of the one before; only the last is returned. Put each into its rows.",
        ),
        Twin(
            loops.loop_into_a_list,
            "a list of parts is not one tensor [T, H, D]: join them along the tokens, or write each into its rows.",
        ),
        Twin(
            loops.loop_stacking_the_parts,
            "stack wants parts of equal size and adds a dimension; requests differ in length. Join them end to end.",
        ),
        Twin(
            loops.loop_with_every_column,
            "the mask still has the columns of all requests, beside the keys of one: cut out its rows and its columns.",
        ),
        Twin(
            loops.loop_with_columns_from_the_first,
            "you take the first columns for every request. Its own begin behind those of the others: span.columns.",
        ),
        Twin(
            loops.loop_with_rows_and_columns_swapped,
            "rows and columns are swapped: a mask's rows are queries (span.rows), its columns keys (span.columns).",
        ),
        Twin(
            loops.loop_with_everything_visible,
            "everything is visible in yours. Right for one new token; in a chunk the first would see the later ones.",
        ),
        Twin(
            loops.loop_with_all_the_queries,
            "you hand over the new tokens of everybody: q, k and v each have to be cut to this request's rows.",
        ),
        Twin(
            loops.loop_with_all_the_new_keys,
            "q is cut to this request's rows, k and v are not: they too hold the new tokens of everybody.",
        ),
        Twin(
            loops.loop_with_k_and_v_cut_by_columns,
            "k and v hold the new tokens only, as q does: cut them by rows. The columns count the cached keys too.",
        ),
        Twin(
            loops.loop_cutting_the_cache,
            "you cut the cache to the request's slots, but the slots are places in the whole cache: hand that over.",
        ),
        Twin(
            loops.loop_adding_parts_up,
            "+= adds a part to all rows at once. A part belongs into its own rows of the result.",
        ),
        Twin(
            loops.loop_that_never_writes,
            "the new keys and values never reach the cache. attend_with_cache (3.3) writes them and then looks.",
        ),
        Twin(
            loops.loop_without_the_cache,
            "you look at the new keys only; what came before is in the cache. attend_with_cache (3.3) does both.",
        ),
        Twin(
            loops.loop_adding_on_top,
            "you write the result into q, which belongs to the caller. Make a tensor of the same shape for it.",
        ),
    ),
    right=(loops.loop_joined_at_the_end, loops.loop_writing_everything_first),
    question="Which rows of q, which part of the mask and which slots of the cache belong to one request?",
    steps=(
        "Make room for the result: a tensor like q.",
        "For each span cut q, k and v to its rows, and the mask to its rows and columns.",
        "attend_with_cache (3.3) does the rest for one request, with the span's slots.",
        "Its answer goes into the same rows of the result.",
    ),
    why="requests never meet in it, so the answer cannot depend on the company, whatever the mask says between them.",
    in_engine=same_tokens_without_waste,
)
