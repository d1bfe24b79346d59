"""Wrong and right answers to exercises 5.1 and 5.2, written as a learner would.

The wrong ones (*twins*) are the well-known mistakes, named after what they do; `ch05.py` has the advice for
each. Two different right answers an exercise must pass, so that a check judges what a function does and not how.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False
# ruff: noqa: ARG001

from __future__ import annotations

import torch

# --- 5.1 left_pad


def pad_on_the_right(rows, pad_id):
    width = max(len(row) for row in rows)
    ids = torch.tensor([list(row) + [pad_id] * (width - len(row)) for row in rows])
    real = torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in rows])
    return ids, real


def pad_marked_as_real(rows, pad_id):
    width = max(len(row) for row in rows)
    ids = torch.tensor([[pad_id] * (width - len(row)) + list(row) for row in rows])
    padding = torch.tensor([[True] * (width - len(row)) + [False] * len(row) for row in rows])
    return ids, padding


def pad_told_by_its_id(rows, pad_id):
    width = max(len(row) for row in rows)
    ids = torch.tensor([[pad_id] * (width - len(row)) + list(row) for row in rows])
    return ids, ids != pad_id


def pad_cut_to_the_shortest(rows, pad_id):
    width = min(len(row) for row in rows)
    ids = torch.tensor([list(row)[len(row) - width :] for row in rows], dtype=torch.int64)
    return ids, torch.ones_like(ids, dtype=torch.bool)


def pad_real_in_ints(rows, pad_id):
    width = max(len(row) for row in rows)
    ids = torch.tensor([[pad_id] * (width - len(row)) + list(row) for row in rows])
    real = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return ids, real


def pad_ids_in_floats(rows, pad_id):
    width = max(len(row) for row in rows)
    ids = torch.ones(len(rows), width) * pad_id
    real = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids[i, width - len(row) :] = torch.tensor(row)
        real[i, width - len(row) :] = True
    return ids, real


def pad_ids_only(rows, pad_id):
    width = max(len(row) for row in rows)
    return torch.tensor([[pad_id] * (width - len(row)) + list(row) for row in rows])


def pad_in_lists(rows, pad_id):
    width = max(len(row) for row in rows)
    ids = [[pad_id] * (width - len(row)) + list(row) for row in rows]
    real = [[False] * (width - len(row)) + [True] * len(row) for row in rows]
    return ids, real


def pad_real_first(rows, pad_id):
    width = max(len(row) for row in rows)
    ids = torch.tensor([[pad_id] * (width - len(row)) + list(row) for row in rows])
    real = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])
    return real, ids


def pad_always_with_zero(rows, pad_id):
    width = max(len(row) for row in rows)
    ids = torch.tensor([[0] * (width - len(row)) + list(row) for row in rows])
    real = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])
    return ids, real


def pad_changing_the_rows(rows, pad_id):
    width = max(len(row) for row in rows)
    real = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])
    for row in rows:
        while len(row) < width:
            row.insert(0, pad_id)
    return torch.tensor(rows), real


def pad_writing_from_the_end(rows, pad_id):
    width = max(len(row) for row in rows)
    ids = torch.full((len(rows), width), pad_id)
    real = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        for j, token in enumerate(row):
            ids[i, width - len(row) + j] = token
        real[i, -len(row) :] = True
    return ids, real


def pad_filling_from_the_end(rows, pad_id):
    width = max(len(row) for row in rows)
    ids = torch.full((len(rows), width), pad_id)
    real = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids[i, -len(row) :] = torch.tensor(row)
        real[i, -len(row) :] = True
    return ids, real


def pad_to_the_first_row(rows, pad_id):
    width = len(rows[0])
    ids = torch.tensor([[pad_id] * (width - len(row)) + list(row) for row in rows])
    real = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])
    return ids, real


def pad_by_pad_sequence(rows, pad_id):
    pad, tensors = torch.nn.utils.rnn.pad_sequence, [torch.tensor(row) for row in rows]
    ids = pad(tensors, batch_first=True, padding_value=pad_id, padding_side="left")
    ones = [torch.ones(len(row), dtype=torch.bool) for row in rows]
    return ids, pad(ones, batch_first=True, padding_value=False, padding_side="left")


def pad_into_a_full_tensor(rows, pad_id):
    width = max(len(row) for row in rows)
    ids = torch.full((len(rows), width), pad_id, dtype=torch.int64)
    real = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids[i, width - len(row) :] = torch.tensor(row, dtype=torch.int64)
        real[i, width - len(row) :] = True
    return ids, real


def pad_by_comparing(rows, pad_id):
    lengths = torch.tensor([len(row) for row in rows])
    width = int(lengths.max())
    real = torch.arange(width)[None, :] >= width - lengths[:, None]
    ids = torch.full(real.shape, pad_id)
    ids[real] = torch.tensor([token for row in rows for token in row])
    return ids, real


# --- 5.2 padded_positions


def positions_of_the_columns(real, start):
    positions = start[:, None] + torch.arange(real.shape[1])
    return positions.masked_fill(~real, 0)


def positions_of_the_columns_everywhere(real, start):
    return start[:, None] + torch.arange(real.shape[1])


def positions_from_one(real, start):
    count = real.cumsum(dim=1)
    positions = start[:, None] + count
    return positions.masked_fill(~real, 0)


def positions_without_the_cache(real, start):
    count = real.cumsum(dim=1)
    return (count - 1).masked_fill(~real, 0)


def positions_of_padding_too(real, start):
    count = real.cumsum(dim=1)
    return start[:, None] + count - 1


def positions_clamped(real, start):
    count = real.cumsum(dim=1)
    return (start[:, None] + count - 1).clamp(min=0)


def positions_down_the_columns(real, start):
    count = real.cumsum(dim=0)
    positions = start[:, None] + count - 1
    return positions.masked_fill(~real, 0)


def positions_minus_one_for_padding(real, start):
    count = real.cumsum(dim=1)
    positions = start[:, None] + count - 1
    return positions.masked_fill(~real, -1)


def positions_start_along_the_columns(real, start):
    count = real.cumsum(dim=1)
    positions = start + count - 1
    return positions.masked_fill(~real, 0)


def positions_counting_padding(real, start):
    count = (~real).cumsum(dim=1)
    positions = start[:, None] + count - 1
    return positions.masked_fill(~real, 0)


def positions_if_padded_on_the_left(real, start):
    padding = (~real).sum(dim=1)
    positions = start[:, None] + torch.arange(real.shape[1]) - padding[:, None]
    return positions.masked_fill(~real, 0)


def positions_by_the_sum(real, start):
    count = real.sum(dim=1)
    positions = start[:, None] + count - 1
    return positions.masked_fill(~real, 0)


def positions_by_the_sum_of_each_row(real, start):
    count = real.sum(dim=1, keepdim=True)
    positions = start[:, None] + count - 1
    return positions.masked_fill(~real, 0)


def positions_by_where(real, start):
    count = torch.cumsum(real.long(), dim=1)
    return torch.where(real, count + start.unsqueeze(1) - 1, torch.zeros_like(count))


def positions_row_by_row(real, start):
    positions = torch.zeros(real.shape, dtype=torch.int64)
    for i in range(real.shape[0]):
        following = int(start[i])
        for j in range(real.shape[1]):
            if real[i, j]:
                positions[i, j] = following
                following += 1
    return positions
