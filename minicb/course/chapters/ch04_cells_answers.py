"""Wrong and right answers to exercises 4.3 and 4.4, written as a learner would.

The wrong ones (*twins*) are the well-known mistakes, named after what they do; `ch04_cells.py` has the advice for
each. Two different right answers an exercise must pass, so that a check judges what a function does and not how.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False
# ruff: noqa: ARG001

from __future__ import annotations

import torch

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


def mask_of_chunk_with_both_swapped(num_computed, num_new):
    from minicb.masks import causal_mask, chunk_mask

    if num_computed == 0:
        return causal_mask(num_new)
    return chunk_mask(num_computed + num_new, num_new)


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


def cells_hiding_the_first_ones_future(num_computed, num_new):
    computed = num_new * (num_computed + num_new)
    return computed, computed - (num_new - 1)


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
