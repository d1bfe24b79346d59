"""Exercises 3.2 and 3.3: writing to the cache, and attention that uses it."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from minicb import cache  # noqa: F401 - its seams are the exercises
from minicb.course.chapters import ch03_cache_answers as answers
from minicb.course.spec import Case, Dice, Exercise, Twin
from minicb.course.tiny import same_tokens


def write_cases(dice: Dice) -> Iterator[Case]:
    for tokens in dice.lengths(high=6):
        others, heads, size = dice.number(1, 5), dice.number(1, 3), dice.number(1, 4)
        dtype = torch.float32 if dice.number(0, 1) else torch.float64
        k_cache, v_cache = (dice.floats(tokens + others, heads, size, dtype=dtype) for _ in range(2))
        k, v = (dice.floats(tokens, heads, size, dtype=dtype) for _ in range(2))
        slots = dice.floats(tokens + others).argsort()[:tokens]  # in any order, with gaps
        about = f"new tokens={tokens}, slots in the cache={tokens + others}, KV heads={heads}, head size={size}"
        yield Case((k_cache, v_cache, slots, k, v), about)


def attend_cases(dice: Dice) -> Iterator[Case]:
    """One request among others: its slots lie anywhere, and its new ones hold what somebody has left there."""
    for new in dice.lengths(high=4):
        old = dice.number(1, 6) if new == 0 else dice.number(0, 6)
        kv_heads, served, size = dice.number(1, 2), dice.number(1, 3), 2 * dice.number(1, 2)
        dtype = torch.float32 if dice.number(0, 1) else torch.float64
        total, others = old + new, dice.number(2, 5)
        k_cache, v_cache = (dice.floats(total + others, kv_heads, size, dtype=dtype) for _ in range(2))
        q = dice.floats(new, kv_heads * served, size, dtype=dtype) / 3
        k, v = (dice.floats(new, kv_heads, size, dtype=dtype) for _ in range(2))
        mask = torch.ones(new, total, dtype=torch.bool).tril(old)
        slots = dice.floats(total + others).argsort()[:total]
        about = f"tokens in the cache={old}, new={new}, query heads={kv_heads * served}, KV heads={kv_heads}"
        yield Case((q, k, v, mask, k_cache, v_cache, slots), about)


def rows(*values: float) -> torch.Tensor:
    """[len(values), 1, 2]: one head of size 2, both numbers the same."""
    return torch.tensor(values, dtype=torch.float32)[:, None, None].repeat(1, 1, 2)


def attend_tiny() -> Case:
    """Two tokens are kept, in slots 4 and 1; the third comes, and its slot 2 still holds a stranger's row."""
    q, k, v = torch.tensor([[[0.0, 0.0]]]), torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[6.0, 9.0]]])
    k_cache, v_cache = rows(50, 1, 70, 80, 1, 90), rows(50, 3, 70, 80, 0, 90)
    mask, slots = torch.ones(1, 3, dtype=torch.bool), torch.tensor([4, 1, 2])
    return Case((q, k, v, mask, k_cache, v_cache, slots), "2 tokens in the cache, 1 new, 6 slots")


LAST_ONES = "slots[n:] leaves out the first n places. The new tokens have the last len(q): where do these begin?"
NOT_ALWAYS_TWO = (
    "the two of the prose were an example. Here there are len(q) new tokens: as many places of slots, its last."
)
TOO_MANY = "slots has one place for each token of the request, k only the new ones: write to the last of them."

WRITE_KV = Exercise(
    id="3.2",
    kind="F",
    minutes=6,
    importance="every token of every request passes here, once in each layer",
    tiny=Case(
        (rows(0, 1, 2, 3, 4, 5), rows(0, 10, 20, 30, 40, 50), torch.tensor([4, 1]), rows(7, 8), rows(70, 80)),
        "2 new tokens, for slots 4 and 1 of 6",
    ),
    cases=write_cases,
    twins=(
        Twin(
            answers.write_into_something_new,
            "you make new tensors, and the engine's cache stays as it was. A plain =, torch.cat, index_copy without _ "
            "at its end and cache[slots][...] all do that. Assign to a place inside the tensor.",
        ),
        Twin(
            answers.write_and_return_something_new,
            "you return new tensors, and the engine's cache stays as it was: write into the two that you are given.",
        ),
        Twin(
            answers.write_by_joining,
            "you join new rows to a copy. The cache was made once, with room for all: write into it, at the slots.",
        ),
        Twin(
            answers.write_at_the_start,
            "the new rows always go to the start of the cache, over somebody's old ones. slots says where they belong.",
        ),
        Twin(
            answers.write_at_the_end,
            "the new rows always go to the end of the cache. slots says where they belong.",
        ),
        Twin(
            answers.write_side_by_side,
            "you use the first slot only and go on from there. Slots need not lie side by side: use all of them.",
        ),
        Twin(
            answers.write_from_first_to_last_slot,
            "you write everything from the first slot to the last. Slots need not lie side by side, nor in order.",
        ),
        Twin(
            answers.write_by_adding,
            "you add to what is there. A slot may hold a former owner's row: it must be replaced.",
        ),
        Twin(
            answers.write_after_wiping,
            "you wipe the cache before you write: everything older is lost, for all requests. Touch only the slots.",
        ),
        Twin(
            answers.write_the_two_of_the_example,
            "you write two rows, as in the example. There can be one, or nine, or none: use all of slots at once.",
        ),
        Twin(answers.write_keys_only, "only the keys are written; the values need their places as well."),
        Twin(answers.write_keys_twice, "the keys are written into both: the second should be the values."),
        Twin(answers.write_crosswise, "keys and values are swapped."),
        Twin(
            answers.write_with_the_slots_on_both_sides,
            "the slots say where a row goes, not which row it is: the new ones are taken in order, 0, 1, 2, ...",
        ),
        Twin(answers.write_along_the_heads, "the slots are the first dimension of the cache; the second is the heads."),
        Twin(
            answers.write_and_return_the_cache,
            "what you write is right. But a function that changes its arguments returns nothing: drop the return.",
        ),
    ),
    right=(answers.write_by_index, answers.write_one_by_one),
    question="Two new tokens, slots [4, 1]. Which rows of k_cache change, and what becomes of the others?",
    steps=(
        "Row 0 of k goes to slot slots[0], row 1 to slots[1], and so on; every other row stays as it is.",
        "A tensor of whole numbers can stand in the brackets on the left of an assignment: it names the rows.",
        "The same for the values. Nothing is returned: the cache is changed where it lies.",
    ),
    pieces=("k_cache", "v_cache", ".index_copy_(", "0, slots,", "k)", "v)"),
    why="in place, because others hold the same tensor: the engine makes the cache once and shares it among all.",
    mutates=(0, 1),
    in_engine=same_tokens,
)

ATTEND_WITH_CACHE = Exercise(
    id="3.3",
    kind="C",
    minutes=10,
    importance="the heart of this chapter; every later chapter calls it",
    tiny=attend_tiny(),
    cases=attend_cases,
    twins=(
        Twin(
            answers.attend_before_writing,
            "you look before you write: the new token does not find its own key, but what somebody has left there.",
        ),
        Twin(
            answers.attend_with_minus_zero,
            "with 0 new tokens [-0:] takes everything: count from the front instead.",
        ),
        Twin(
            answers.attend_with_minus_zero_assigned,
            "with 0 new tokens [-0:] takes everything: count from the front instead.",
        ),
        Twin(answers.attend_with_the_last_two_slots, NOT_ALWAYS_TWO),
        Twin(answers.attend_with_the_last_two_slots_assigned, NOT_ALWAYS_TWO),
        Twin(
            answers.attend_with_what_writing_returns,
            "write_kv returns nothing: it writes into the two tensors that you hold. Call it without the =, and go on "
            "using k_cache and v_cache.",
        ),
        Twin(
            answers.attend_with_the_last_slot_only,
            "you write to one slot; there is one for each of the len(q) new tokens, or none.",
        ),
        Twin(answers.attend_with_the_first_slots_skipped, LAST_ONES),
        Twin(answers.attend_with_the_first_slots_skipped_assigned, LAST_ONES),
        Twin(
            answers.attend_over_the_new_ones,
            "your tokens look at the new keys only: what was said before is forgotten. Look at all slots.",
        ),
        Twin(
            answers.attend_over_the_new_ones_with_the_whole_mask,
            "the mask has a column for every token of the request, and you look at the new keys only: "
            "take the keys and values of all slots from the cache.",
        ),
        Twin(
            answers.attend_over_the_old_ones,
            "your tokens look at the old keys only; they also see themselves and each other.",
        ),
        Twin(answers.attend_without_writing, "nothing is written: the new keys and values are not in the cache."),
        Twin(
            answers.attend_without_keeping,
            "the answer is right, but nothing is kept: the next token will not find this one in the cache.",
        ),
        Twin(
            answers.attend_after_writing_over_the_oldest,
            "the new rows replace the oldest ones: the new tokens' slots are the last of slots, not the first.",
        ),
        Twin(
            answers.attend_to_everybody,
            "you look at the whole cache, other people's rows included: take only the rows that slots names.",
        ),
        Twin(
            answers.attend_by_position,
            "you read rows 0, 1, 2, ... of the cache, which belong to somebody else. A slot is not a position: "
            "slots says where each position is kept.",
        ),
        Twin(
            answers.attend_with_positions_written,
            "you write and read by position, rows 0, 1, 2, ..., over somebody else's. slots says where each "
            "position of this request is kept.",
        ),
        Twin(answers.attend_with_all_slots_written, TOO_MANY),
        Twin(answers.attend_with_all_slots_assigned, TOO_MANY),
        Twin(answers.attend_with_keys_for_values, "you mix the keys. What is mixed are the values."),
        Twin(
            answers.attend_with_a_key_for_each_query_head,
            "you spread the KV heads before you write. The cache keeps the few; attend spreads them by itself.",
        ),
        Twin(answers.attend_without_mask, "the mask is not used: of several new tokens the first sees the later ones."),
    ),
    right=(answers.attend_by_index, answers.attend_in_three_steps),
    question="The request has 7 slots and 1 new token comes. Which slot is written, and which are read?",
    steps=(
        "The new tokens are the newest: their slots are the last len(q) of slots. Mind len(q) == 0.",
        "Write their keys and values there, first of all: a token sees itself.",
        "Read the keys and values of all slots, in order, and attend with these and the mask.",
    ),
    why="one token or a thousand, first pass or hundredth: it is the same function. Decoding is the case T = 1.",
    mutates=(4, 5),
    in_engine=same_tokens,
)
