"""Wrong and right answers to the two exercises of chapter 03 that touch the cache, written as a learner would."""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False
# ruff: noqa: ARG001

from __future__ import annotations

import torch

# --- 3.2 write_kv


def write_into_something_new(k_cache, v_cache, slots, k, v):
    k_cache = k_cache.index_copy(0, slots, k)
    v_cache = v_cache.index_copy(0, slots, v)


def write_and_return_something_new(k_cache, v_cache, slots, k, v):
    return k_cache.index_copy(0, slots, k), v_cache.index_copy(0, slots, v)


def write_by_joining(k_cache, v_cache, slots, k, v):
    return torch.cat([k_cache, k]), torch.cat([v_cache, v])


def write_at_the_start(k_cache, v_cache, slots, k, v):
    k_cache[: len(k)] = k
    v_cache[: len(v)] = v


def write_at_the_end(k_cache, v_cache, slots, k, v):
    k_cache[-len(k) :] = k
    v_cache[-len(v) :] = v


def write_side_by_side(k_cache, v_cache, slots, k, v):
    if len(slots):
        k_cache[slots[0] : slots[0] + len(k)] = k
        v_cache[slots[0] : slots[0] + len(v)] = v


def write_from_first_to_last_slot(k_cache, v_cache, slots, k, v):
    k_cache[slots[0] : slots[-1] + 1] = k
    v_cache[slots[0] : slots[-1] + 1] = v


def write_by_adding(k_cache, v_cache, slots, k, v):
    k_cache.index_add_(0, slots, k)
    v_cache.index_add_(0, slots, v)


def write_after_wiping(k_cache, v_cache, slots, k, v):
    k_cache.zero_()
    v_cache.zero_()
    k_cache[slots] = k
    v_cache[slots] = v


def write_the_two_of_the_example(k_cache, v_cache, slots, k, v):
    k_cache[slots[0]] = k[0]
    k_cache[slots[1]] = k[1]
    v_cache[slots[0]] = v[0]
    v_cache[slots[1]] = v[1]


def write_keys_only(k_cache, v_cache, slots, k, v):
    k_cache[slots] = k


def write_keys_twice(k_cache, v_cache, slots, k, v):
    k_cache[slots] = k
    v_cache[slots] = k


def write_crosswise(k_cache, v_cache, slots, k, v):
    k_cache[slots] = v
    v_cache[slots] = k


def write_with_the_slots_on_both_sides(k_cache, v_cache, slots, k, v):
    k_cache[slots] = k[slots]
    v_cache[slots] = v[slots]


def write_along_the_heads(k_cache, v_cache, slots, k, v):
    k_cache[:, slots] = k
    v_cache[:, slots] = v


def write_and_return_the_cache(k_cache, v_cache, slots, k, v):
    k_cache[slots] = k
    v_cache[slots] = v
    return k_cache, v_cache


def write_by_index(k_cache, v_cache, slots, k, v):
    k_cache[slots] = k
    v_cache[slots] = v


def write_one_by_one(k_cache, v_cache, slots, k, v):
    for row, slot in enumerate(slots.tolist()):
        k_cache[slot], v_cache[slot] = k[row], v[row]


# --- 3.3 attend_with_cache


def attend_before_writing(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    out = attend(q, k_cache[slots], v_cache[slots], mask)
    new = slots[len(slots) - len(q) :]
    k_cache[new], v_cache[new] = k, v
    return out


def attend_with_minus_zero(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    new = slots[-len(q) :]
    k_cache.index_copy_(0, new, k)
    v_cache.index_copy_(0, new, v)
    return attend(q, k_cache[slots], v_cache[slots], mask)


def attend_with_minus_zero_assigned(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    new = slots[-len(q) :]
    k_cache[new], v_cache[new] = k, v
    return attend(q, k_cache[slots], v_cache[slots], mask)


def attend_with_the_last_two_slots(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    new = slots[-2:]
    k_cache.index_copy_(0, new, k)
    v_cache.index_copy_(0, new, v)
    return attend(q, k_cache[slots], v_cache[slots], mask)


def attend_with_the_last_two_slots_assigned(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    new = slots[-2:]
    k_cache[new], v_cache[new] = k, v
    return attend(q, k_cache[slots], v_cache[slots], mask)


def attend_with_what_writing_returns(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend
    from minicb.cache import write_kv

    k_cache, v_cache = write_kv(k_cache, v_cache, slots[len(slots) - len(q) :], k, v)
    return attend(q, k_cache[slots], v_cache[slots], mask)


def attend_with_the_last_slot_only(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    new = slots[-1:]
    k_cache.index_copy_(0, new, k)
    v_cache.index_copy_(0, new, v)
    return attend(q, k_cache[slots], v_cache[slots], mask)


def attend_with_the_first_slots_skipped(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    new = slots[len(q) :]
    k_cache.index_copy_(0, new, k)
    v_cache.index_copy_(0, new, v)
    return attend(q, k_cache[slots], v_cache[slots], mask)


def attend_with_the_first_slots_skipped_assigned(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    new = slots[len(q) :]
    k_cache[new], v_cache[new] = k, v
    return attend(q, k_cache[slots], v_cache[slots], mask)


def attend_over_the_new_ones(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    first = len(slots) - len(q)
    k_cache[slots[first:]], v_cache[slots[first:]] = k, v
    return attend(q, k, v, mask[:, first:])


def attend_over_the_new_ones_with_the_whole_mask(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    new = slots[len(slots) - len(q) :]
    k_cache[new], v_cache[new] = k, v
    return attend(q, k, v, mask)


def attend_over_the_old_ones(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    first = len(slots) - len(q)
    k_cache[slots[first:]], v_cache[slots[first:]] = k, v
    old = slots[:first]
    return attend(q, k_cache[old], v_cache[old], mask[:, :first])


def attend_without_writing(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    return attend(q, k_cache[slots], v_cache[slots], mask)


def attend_without_keeping(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    old = slots[: len(slots) - len(q)]
    return attend(q, torch.cat([k_cache[old], k]), torch.cat([v_cache[old], v]), mask)


def attend_after_writing_over_the_oldest(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    new = slots[: len(q)]
    k_cache[new], v_cache[new] = k, v
    return attend(q, k_cache[slots], v_cache[slots], mask)


def attend_to_everybody(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    new = slots[len(slots) - len(q) :]
    k_cache[new], v_cache[new] = k, v
    return attend(q, k_cache, v_cache, mask)


def attend_by_position(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    new = slots[len(slots) - len(q) :]
    k_cache[new], v_cache[new] = k, v
    return attend(q, k_cache[: len(slots)], v_cache[: len(slots)], mask)


def attend_with_positions_written(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    first = len(slots) - len(q)
    k_cache[first : len(slots)], v_cache[first : len(slots)] = k, v
    return attend(q, k_cache[: len(slots)], v_cache[: len(slots)], mask)


def attend_with_all_slots_written(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    k_cache.index_copy_(0, slots, k)
    v_cache.index_copy_(0, slots, v)
    return attend(q, k_cache[slots], v_cache[slots], mask)


def attend_with_all_slots_assigned(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    k_cache[slots], v_cache[slots] = k, v
    return attend(q, k_cache[slots], v_cache[slots], mask)


def attend_with_keys_for_values(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    new = slots[len(slots) - len(q) :]
    k_cache[new], v_cache[new] = k, v
    return attend(q, k_cache[slots], k_cache[slots], mask)


def attend_with_a_key_for_each_query_head(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend, repeat_kv

    new, times = slots[len(slots) - len(q) :], q.shape[1] // k.shape[1]
    k_cache.index_copy_(0, new, repeat_kv(k, times))
    v_cache.index_copy_(0, new, repeat_kv(v, times))
    return attend(q, k_cache[slots], v_cache[slots], mask)


def attend_without_mask(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    new = slots[len(slots) - len(q) :]
    k_cache[new], v_cache[new] = k, v
    return attend(q, k_cache[slots], v_cache[slots], torch.ones_like(mask))


def attend_by_index(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import attend

    new = slots[len(slots) - len(q) :]
    k_cache[new], v_cache[new] = k, v
    return attend(q, k_cache[slots], v_cache[slots], mask)


def attend_in_three_steps(q, k, v, mask, k_cache, v_cache, slots):
    from minicb.attention import mix, repeat_kv, scores, weights
    from minicb.cache import write_kv

    old, new = slots.split([len(slots) - len(q), len(q)])
    keys, values = torch.cat([k_cache[old], k]), torch.cat([v_cache[old], v])
    write_kv(k_cache, v_cache, new, k, v)
    times = q.shape[1] // k.shape[1]
    return mix(weights(scores(q, repeat_kv(keys, times)), mask), repeat_kv(values, times))
