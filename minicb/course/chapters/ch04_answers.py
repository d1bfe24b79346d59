"""Wrong and right answers to the exercises of chapter 04, written as a learner would.

The wrong ones (*twins*) are the well-known mistakes, named after what they do; `ch04.py` has the advice for
each. Two different right answers an exercise must pass, so that a check judges what a function does and not how.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False
# ruff: noqa: ARG001

from __future__ import annotations

import math

import torch

# --- 4.1 next_chunk


def next_chunk_without_budget(num_tokens, num_computed, budget):
    return num_tokens - num_computed


def next_chunk_always_full(num_tokens, num_computed, budget):
    return budget


def next_chunk_of_the_whole_text(num_tokens, num_computed, budget):
    return min(num_tokens, budget)


def next_chunk_of_the_larger(num_tokens, num_computed, budget):
    return max(num_tokens - num_computed, budget)


def next_chunk_up_to_its_end(num_tokens, num_computed, budget):
    return min(num_computed + budget, num_tokens)


def next_chunk_of_computed_ones(num_tokens, num_computed, budget):
    return min(num_computed, budget)


def next_chunk_turned_round(num_tokens, num_computed, budget):
    return min(num_computed - num_tokens, budget)


def next_chunk_never_empty(num_tokens, num_computed, budget):
    return max(1, min(num_tokens - num_computed, budget))


def next_chunk_of_the_rest_of_a_division(num_tokens, num_computed, budget):
    return (num_tokens - num_computed) % budget


def next_chunk_in_even_shares(num_tokens, num_computed, budget):
    left = num_tokens - num_computed
    if left == 0 or budget == 0:
        return 0
    return math.ceil(left / math.ceil(left / budget))


def next_chunk_all_or_nothing(num_tokens, num_computed, budget):
    left = num_tokens - num_computed
    return left if left <= budget else 0


def next_chunk_from_a_budget_for_the_request(num_tokens, num_computed, budget):
    return max(0, min(num_tokens, budget) - num_computed)


def next_chunk_left_for_later(num_tokens, num_computed, budget):
    return num_tokens - num_computed - budget


def next_chunk_by_if(num_tokens, num_computed, budget):
    left = num_tokens - num_computed
    if left > budget:
        return budget
    return left


def next_chunk_by_slicing(num_tokens, num_computed, budget):
    positions = list(range(num_tokens))
    return len(positions[num_computed:][:budget])


# --- 4.2 next_span


def span_that_always_samples(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return num_computed, end, True


def span_that_never_samples(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return num_computed, end, False


def span_sampled_where_the_chunk_is_short(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return num_computed, end, end - num_computed < budget


def span_sampled_where_the_chunk_is_full(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return num_computed, end, end - num_computed == budget


def span_sampled_at_the_last_position(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return num_computed, end, end == num_tokens - 1


def span_sampled_at_the_first_chunk(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return num_computed, end, num_computed == 0


def span_sampled_until_the_end(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return num_computed, end, end < num_tokens


def span_with_a_count_for_an_end(num_tokens, num_computed, budget):
    count = min(num_tokens - num_computed, budget)
    return num_computed, count, num_computed + count == num_tokens


def span_compared_with_the_count(num_tokens, num_computed, budget):
    count = min(num_tokens - num_computed, budget)
    return num_computed, num_computed + count, count == num_tokens


def span_up_to_the_last_one(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return num_computed, end - 1, end == num_tokens


def span_from_the_front(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return 0, end, end == num_tokens


def span_one_further(num_tokens, num_computed, budget):
    start = num_computed + 1
    end = min(start + budget, num_tokens)
    return start, end, end == num_tokens


def span_without_budget(num_tokens, num_computed, budget):
    return num_computed, num_tokens, True


def span_past_the_end(num_tokens, num_computed, budget):
    end = num_computed + budget
    return num_computed, end, end >= num_tokens


def span_by_min(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return num_computed, end, not end < num_tokens


def span_by_what_is_left(num_tokens, num_computed, budget):
    left = num_tokens - num_computed
    if left <= budget:
        return num_computed, num_tokens, True
    return num_computed, num_computed + budget, False


# --- 4.3 mask_of_chunk


def mask_of_chunk_without_the_cache(num_computed, num_new):
    return torch.ones(num_new, num_new, dtype=torch.bool).tril()


def mask_of_chunk_for_all_tokens(num_computed, num_new):
    num_keys = num_computed + num_new
    return torch.ones(num_keys, num_keys, dtype=torch.bool).tril()


def mask_of_chunk_with_cached_keys_only(num_computed, num_new):
    if num_computed == 0:
        return torch.ones(num_new, num_new, dtype=torch.bool).tril()
    return torch.ones(num_new, num_computed, dtype=torch.bool)


def mask_of_chunk_with_keys_as_rows(num_computed, num_new):
    return torch.ones(num_new, num_computed + num_new, dtype=torch.bool).tril(num_computed).T


def mask_of_chunk_of_the_cached_rows(num_computed, num_new):
    num_keys = num_computed + num_new
    if num_computed == 0:
        return torch.ones(num_new, num_new, dtype=torch.bool).tril()
    return torch.ones(num_computed, num_keys, dtype=torch.bool).tril(num_new)


def mask_of_chunk_from_the_top_left(num_computed, num_new):
    return torch.ones(num_new, num_computed + num_new, dtype=torch.bool).tril()


def mask_of_chunk_all_visible(num_computed, num_new):
    return torch.ones(num_new, num_computed + num_new, dtype=torch.bool)


def mask_of_chunk_of_old_keys_alone(num_computed, num_new):
    num_keys = num_computed + num_new
    return (torch.arange(num_keys) < num_computed).expand(num_new, num_keys)


def mask_of_chunk_of_new_keys_alone(num_computed, num_new):
    old = torch.zeros(num_new, num_computed, dtype=torch.bool)
    return torch.cat([old, torch.ones(num_new, num_new, dtype=torch.bool).tril()], dim=1)


def mask_of_chunk_by_chunk_mask(num_computed, num_new):
    from minicb.masks import chunk_mask

    return chunk_mask(num_new, num_computed + num_new)


def mask_of_chunk_cut_from_the_square(num_computed, num_new):
    from minicb.masks import causal_mask

    return causal_mask(num_computed + num_new)[num_computed:]


# --- 4.4 count_cells


def cells_without_the_cache(num_computed, num_new):
    return num_new * num_new, num_new * (num_new + 1) // 2


def cells_of_the_whole_square(num_computed, num_new):
    end = num_computed + num_new
    return end * end, end * (end + 1) // 2


def cells_of_the_cache_only(num_computed, num_new):
    computed = num_new * num_computed
    return computed, computed


def cells_hiding_the_diagonal(num_computed, num_new):
    computed = num_new * (num_computed + num_new)
    return computed, computed - num_new * (num_new + 1) // 2


def cells_seen_in_the_chunk_only(num_computed, num_new):
    return num_new * (num_computed + num_new), num_new * (num_new + 1) // 2


def cells_that_are_hidden(num_computed, num_new):
    return num_new * (num_computed + num_new), num_new * (num_new - 1) // 2


def cells_half_of_them_seen(num_computed, num_new):
    computed = num_new * (num_computed + num_new)
    return computed, computed // 2


def cells_all_seen(num_computed, num_new):
    computed = num_new * (num_computed + num_new)
    return computed, computed


def cells_hiding_a_square(num_computed, num_new):
    computed = num_new * (num_computed + num_new)
    return computed, computed - num_new * (num_new - 1)


def cells_the_other_way_round(num_computed, num_new):
    computed = num_new * (num_computed + num_new)
    return computed - num_new * (num_new - 1) // 2, computed


def cells_in_halves(num_computed, num_new):
    computed = num_new * (num_computed + num_new)
    return computed, computed - num_new * (num_new - 1) / 2


def cells_in_tensors(num_computed, num_new):
    mask = torch.ones(num_new, num_computed + num_new, dtype=torch.bool).tril(num_computed)
    return mask.numel(), mask.sum()


def cells_computed_only(num_computed, num_new):
    return num_new * (num_computed + num_new)


def cells_without_brackets(num_computed, num_new):
    computed = num_new * num_computed + num_new
    return computed, computed - num_new * (num_new - 1) // 2


def cells_from_the_mask(num_computed, num_new):
    mask = torch.ones(num_new, num_computed + num_new, dtype=torch.bool).tril(num_computed)
    return mask.numel(), int(mask.sum())


def cells_row_by_row(num_computed, num_new):
    rows = range(num_computed + 1, num_computed + num_new + 1)
    return len(rows) * (num_computed + num_new), sum(rows)
