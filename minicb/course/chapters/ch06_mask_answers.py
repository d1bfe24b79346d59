"""Wrong and right answers to exercise 6.2 of chapter 06, written as a learner would.

The wrong ones (*twins*) are the well-known mistakes, named after what they do; `ch06.py` has the advice for
each. Two different right answers an exercise must pass, so that a check judges what a function does and not how.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False
# ruff: noqa: B905

from __future__ import annotations

import torch

# --- 6.2 ragged_mask


def ragged_from_zero(new, context):
    from minicb.masks import visible

    q_pos, q_seq, k_pos, k_seq = [], [], [], []
    for i, (count, total) in enumerate(zip(new, context)):
        q_pos += range(count)
        q_seq += [i] * count
        k_pos += range(total)
        k_seq += [i] * total
    return visible(*map(torch.tensor, (q_pos, q_seq, k_pos, k_seq)))


def ragged_along_the_row(new, context):
    from minicb.masks import visible

    q_pos, q_seq, k_pos, k_seq = [], [], [], []
    for i, (count, total) in enumerate(zip(new, context)):
        q_pos += range(len(q_pos), len(q_pos) + count)
        q_seq += [i] * count
        k_pos += range(total)
        k_seq += [i] * total
    return visible(*map(torch.tensor, (q_pos, q_seq, k_pos, k_seq)))


def ragged_keys_along_the_row(new, context):
    from minicb.masks import visible

    q_pos, q_seq, k_pos, k_seq = [], [], [], []
    for i, (count, total) in enumerate(zip(new, context)):
        q_pos += range(total - count, total)
        q_seq += [i] * count
        k_pos += range(len(k_pos), len(k_pos) + total)
        k_seq += [i] * total
    return visible(*map(torch.tensor, (q_pos, q_seq, k_pos, k_seq)))


def ragged_behind_the_context(new, context):
    from minicb.masks import visible

    q_pos, q_seq, k_pos, k_seq = [], [], [], []
    for i, (count, total) in enumerate(zip(new, context)):
        q_pos += range(total, total + count)
        q_seq += [i] * count
        k_pos += range(total)
        k_seq += [i] * total
    return visible(*map(torch.tensor, (q_pos, q_seq, k_pos, k_seq)))


def ragged_one_too_far(new, context):
    from minicb.masks import visible

    q_pos, q_seq, k_pos, k_seq = [], [], [], []
    for i, (count, total) in enumerate(zip(new, context)):
        q_pos += range(total - count + 1, total + 1)
        q_seq += [i] * count
        k_pos += range(total)
        k_seq += [i] * total
    return visible(*map(torch.tensor, (q_pos, q_seq, k_pos, k_seq)))


def ragged_all_at_the_first(new, context):
    from minicb.masks import visible

    q_pos, q_seq, k_pos, k_seq = [], [], [], []
    for i, (count, total) in enumerate(zip(new, context)):
        q_pos += [total - count] * count
        q_seq += [i] * count
        k_pos += range(total)
        k_seq += [i] * total
    return visible(*map(torch.tensor, (q_pos, q_seq, k_pos, k_seq)))


def ragged_from_the_count(new, context):
    from minicb.masks import visible

    q_pos, q_seq, k_pos, k_seq = [], [], [], []
    for i, (count, total) in enumerate(zip(new, context)):
        q_pos += range(count, total)
        q_seq += [i] * count
        k_pos += range(total)
        k_seq += [i] * total
    return visible(*map(torch.tensor, (q_pos, q_seq, k_pos, k_seq)))


def ragged_with_keys_in_every_request(new, context):
    from minicb.masks import visible

    q_pos, q_seq, k_pos, k_seq = [], [], [], []
    for i, (count, total) in enumerate(zip(new, context)):
        q_pos += range(total - count, total)
        q_seq += [i] * count
        k_pos += range(total)
        k_seq += range(total)
    return visible(*map(torch.tensor, (q_pos, q_seq, k_pos, k_seq)))


def ragged_with_all_keys_in_one_request(new, context):
    from minicb.masks import visible

    q_pos, q_seq, k_pos, k_seq = [], [], [], []
    for count, total in zip(new, context):
        q_pos += range(total - count, total)
        q_seq += [0] * count
        k_pos += range(total)
        k_seq += [0] * total
    return visible(*map(torch.tensor, (q_pos, q_seq, k_pos, k_seq)))


def ragged_with_new_keys_only(new, context):
    from minicb.masks import visible

    q_pos, q_seq, k_pos, k_seq = [], [], [], []
    for i, (count, total) in enumerate(zip(new, context)):
        q_pos += range(total - count, total)
        q_seq += [i] * count
        k_pos += range(total - count, total)
        k_seq += [i] * count
    return visible(*map(torch.tensor, (q_pos, q_seq, k_pos, k_seq)))


def ragged_with_as_many_keys_as_queries(new, context):
    from minicb.masks import visible

    q_pos, q_seq, k_pos, k_seq = [], [], [], []
    for i, (count, total) in enumerate(zip(new, context)):
        q_pos += range(total - count, total)
        q_seq += [i] * count
        k_pos += range(count)
        k_seq += [i] * count
    return visible(*map(torch.tensor, (q_pos, q_seq, k_pos, k_seq)))


def ragged_with_a_row_for_each_key(new, context):
    from minicb.masks import visible

    q_pos, q_seq, k_pos, k_seq = [], [], [], []
    for i, (_, total) in enumerate(zip(new, context)):
        q_pos += range(total)
        q_seq += [i] * total
        k_pos += range(total)
        k_seq += [i] * total
    return visible(*map(torch.tensor, (q_pos, q_seq, k_pos, k_seq)))


def ragged_with_a_row_for_each_request(new, context):
    from minicb.masks import visible

    q_pos, q_seq, k_pos, k_seq = [], [], [], []
    for i, (_, total) in enumerate(zip(new, context)):
        q_pos += [total - 1]
        q_seq += [i]
        k_pos += range(total)
        k_seq += [i] * total
    return visible(*map(torch.tensor, (q_pos, q_seq, k_pos, k_seq)))


def ragged_with_one_number_a_request(new, context):
    from minicb.masks import visible

    q_pos, q_seq, k_pos, k_seq = [], [], [], []
    for i, (count, total) in enumerate(zip(new, context)):
        q_pos += range(total - count, total)
        q_seq += [i] * count
        k_pos += range(total)
        k_seq += [i]
    return visible(*map(torch.tensor, (q_pos, q_seq, k_pos, k_seq)))


def ragged_with_rows_and_columns_swapped(new, context):
    from minicb.masks import visible

    q_pos, q_seq, k_pos, k_seq = [], [], [], []
    for i, (count, total) in enumerate(zip(new, context)):
        q_pos += range(total - count, total)
        q_seq += [i] * count
        k_pos += range(total)
        k_seq += [i] * total
    return visible(*map(torch.tensor, (k_pos, k_seq, q_pos, q_seq)))


def ragged_with_one_position_a_request(new, context):
    from minicb.masks import visible

    q_pos, q_seq, k_pos, k_seq = [], [], [], []
    for i, (count, total) in enumerate(zip(new, context)):
        q_pos += [total - count]
        q_seq += [i] * count
        k_pos += [total]
        k_seq += [i] * total
    return visible(*map(torch.tensor, (q_pos, q_seq, k_pos, k_seq)))


def ragged_adding_a_number(new, context):
    from minicb.masks import visible

    q_pos, q_seq, k_pos, k_seq = [], [], [], []
    for i, (count, total) in enumerate(zip(new, context)):
        q_pos += total - count
        q_seq += [i] * count
        k_pos += total
        k_seq += i
    return visible(*map(torch.tensor, (q_pos, q_seq, k_pos, k_seq)))


def ragged_with_the_new_ones_on_top(new, context):
    from minicb.masks import visible

    q_pos, q_seq, k_pos, k_seq = [], [], [], []
    for i, (count, total) in enumerate(zip(new, context)):
        q_pos += range(total, total + count)
        q_seq += [i] * count
        k_pos += range(total + count)
        k_seq += [i] * (total + count)
    return visible(*map(torch.tensor, (q_pos, q_seq, k_pos, k_seq)))


def ragged_appending_ranges(new, context):
    from minicb.masks import visible

    q_pos, q_seq, k_pos, k_seq = [], [], [], []
    for i, (count, total) in enumerate(zip(new, context)):
        q_pos.append(range(total - count, total))
        q_seq += [i] * count
        k_pos.append(range(total))
        k_seq += [i] * total
    return visible(*map(torch.tensor, (q_pos, q_seq, k_pos, k_seq)))


def ragged_by_pasting(new, context):
    mask = torch.zeros(sum(new), sum(context), dtype=torch.bool)
    row, column = 0, 0
    for count, total in zip(new, context):
        chunk = torch.ones(count, total, dtype=torch.bool).tril(total - count)
        mask[row : row + count, column : column + total] = chunk
        row, column = row + count, column + total
    return mask


def ragged_by_repeating(new, context):
    new, context = torch.tensor(new, dtype=torch.int64), torch.tensor(context, dtype=torch.int64)
    order = torch.arange(len(new))
    q_seq, k_seq = order.repeat_interleave(new), order.repeat_interleave(context)
    # Numbered along the row, then each request's own beginning taken away.
    q_pos = torch.arange(len(q_seq)) - (new.cumsum(0) - context)[q_seq]
    k_pos = torch.arange(len(k_seq)) - (context.cumsum(0) - context)[k_seq]
    return (q_seq[:, None] == k_seq[None, :]) & (k_pos[None, :] <= q_pos[:, None])
