"""Wrong and right answers to the exercises of chapter 02, written as a learner would.

The wrong ones (*twins*) are the well-known mistakes, named after what they do; `ch02.py` has the advice for
each. Two different right answers an exercise must pass, so that a check judges what a function does and not how.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False
# ruff: noqa: ARG001

from __future__ import annotations

import torch

# --- 2.1 causal_mask


def causal_seeing_the_future(num_tokens):
    return torch.ones(num_tokens, num_tokens, dtype=torch.bool).triu()


def causal_without_itself(num_tokens):
    return torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril(-1)


def causal_one_too_far(num_tokens):
    return torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril(1)


def causal_all_visible(num_tokens):
    return torch.ones(num_tokens, num_tokens, dtype=torch.bool)


def causal_itself_only(num_tokens):
    return torch.eye(num_tokens, dtype=torch.bool)


def causal_turned_round(num_tokens):
    return torch.ones(num_tokens, num_tokens, dtype=torch.bool).triu(1)


def causal_in_floats(num_tokens):
    return torch.ones(num_tokens, num_tokens).tril()


def causal_in_ints(num_tokens):
    return torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril().int()


def causal_as_a_bias(num_tokens):
    return torch.full((num_tokens, num_tokens), float("-inf")).triu(1)


def causal_by_positions(num_tokens):
    position = torch.arange(num_tokens)
    return position[None, :] <= position[:, None]


def causal_row_by_row(num_tokens):
    mask = torch.zeros(num_tokens, num_tokens, dtype=torch.bool)
    for row in range(num_tokens):
        mask[row, : row + 1] = True
    return mask


# --- 2.2 chunk_mask


def chunk_from_the_top_left(num_queries, num_keys):
    return torch.ones(num_queries, num_keys, dtype=torch.bool).tril()


def chunk_without_itself(num_queries, num_keys):
    query_pos = torch.arange(num_keys - num_queries, num_keys)
    key_pos = torch.arange(num_keys)
    return key_pos[None, :] < query_pos[:, None]


def chunk_one_too_far(num_queries, num_keys):
    query_pos = torch.arange(num_queries) + num_keys - num_queries + 1
    key_pos = torch.arange(num_keys)
    return key_pos[None, :] <= query_pos[:, None]


def chunk_skipping_the_queries(num_queries, num_keys):
    query_pos = torch.arange(num_queries, num_keys)
    key_pos = torch.arange(num_keys)
    return key_pos[None, :] <= query_pos[:, None]


def chunk_of_itself_only(num_queries, num_keys):
    query_pos = torch.arange(num_keys - num_queries, num_keys)
    key_pos = torch.arange(num_keys)
    return key_pos[None, :] == query_pos[:, None]


def chunk_one_by_one(num_queries, num_keys):
    query_pos = torch.arange(num_keys - num_queries, num_keys)
    key_pos = torch.arange(num_keys)
    return key_pos <= query_pos


def chunk_looking_ahead(num_queries, num_keys):
    query_pos = torch.arange(num_keys - num_queries, num_keys)
    key_pos = torch.arange(num_keys)
    return key_pos[None, :] >= query_pos[:, None]


def chunk_all_visible(num_queries, num_keys):
    return torch.ones(num_queries, num_keys, dtype=torch.bool)


def chunk_of_old_keys_only(num_queries, num_keys):
    key_pos = torch.arange(num_keys)
    return (key_pos < num_keys - num_queries).expand(num_queries, num_keys)


def chunk_of_new_keys_only(num_queries, num_keys):
    old = torch.zeros(num_queries, num_keys - num_queries, dtype=torch.bool)
    return torch.cat([old, torch.ones(num_queries, num_queries, dtype=torch.bool).tril()], dim=1)


def chunk_without_the_cache(num_queries, num_keys):
    return torch.ones(num_queries, num_queries, dtype=torch.bool).tril()


def chunk_with_keys_as_rows(num_queries, num_keys):
    query_pos = torch.arange(num_keys - num_queries, num_keys)
    key_pos = torch.arange(num_keys)
    return key_pos[:, None] <= query_pos[None, :]


def chunk_counted_from_the_end(num_queries, num_keys):
    query_pos = torch.arange(num_keys)[-num_queries:]
    key_pos = torch.arange(num_keys)
    return key_pos[None, :] <= query_pos[:, None]


def chunk_by_tril(num_queries, num_keys):
    return torch.ones(num_queries, num_keys, dtype=torch.bool).tril(num_keys - num_queries)


def chunk_cut_from_the_square(num_queries, num_keys):
    square = torch.ones(num_keys, num_keys, dtype=torch.bool).tril()
    return square[num_keys - num_queries :]


# --- 2.3 block_mask


def block_as_one_sequence(lengths):
    total = sum(lengths)
    return torch.ones(total, total, dtype=torch.bool).tril()


def block_without_triangles(lengths):
    sequence = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths, dtype=torch.int64))
    return sequence[:, None] == sequence[None, :]


def block_padded_to_the_longest(lengths):
    longest = max(lengths, default=0)
    return torch.block_diag(*[torch.ones(longest, longest, dtype=torch.bool).tril() for _ in lengths]).bool()


def block_of_the_first_only(lengths):
    total, first = sum(lengths), (lengths[0] if lengths else 0)
    mask = torch.zeros(total, total, dtype=torch.bool)
    mask[:first, :first] = torch.ones(first, first, dtype=torch.bool).tril()
    return mask


def block_without_itself(lengths):
    total, start = sum(lengths), 0
    mask = torch.zeros(total, total, dtype=torch.bool)
    for n in lengths:
        mask[start : start + n, start : start + n] = torch.ones(n, n, dtype=torch.bool).tril(-1)
        start += n
    return mask


def block_seeing_the_future(lengths):
    total, start = sum(lengths), 0
    mask = torch.zeros(total, total, dtype=torch.bool)
    for n in lengths:
        mask[start : start + n, start : start + n] = torch.ones(n, n, dtype=torch.bool).triu()
        start += n
    return mask


def block_always_at_the_start(lengths):
    total = sum(lengths)
    mask = torch.zeros(total, total, dtype=torch.bool)
    for n in lengths:
        mask[:n, :n] |= torch.ones(n, n, dtype=torch.bool).tril()
    return mask


def block_one_mask_a_sequence(lengths):
    return [torch.ones(n, n, dtype=torch.bool).tril() for n in lengths]


def block_in_floats(lengths):
    total, start = sum(lengths), 0
    mask = torch.zeros(total, total)
    for n in lengths:
        mask[start : start + n, start : start + n] = torch.ones(n, n).tril()
        start += n
    return mask


def block_by_pasting(lengths):
    total, start = sum(lengths), 0
    mask = torch.zeros(total, total, dtype=torch.bool)
    for n in lengths:
        mask[start : start + n, start : start + n] = torch.ones(n, n, dtype=torch.bool).tril()
        start += n
    return mask


def block_by_rule(lengths):
    sequence = torch.tensor([i for i, n in enumerate(lengths) for _ in range(n)], dtype=torch.int64)
    same = sequence[:, None] == sequence[None, :]
    return same & torch.ones(len(sequence), len(sequence), dtype=torch.bool).tril()


# --- 2.4 visible


def visible_across_sequences(q_pos, q_seq, k_pos, k_seq):
    return k_pos[None, :] <= q_pos[:, None]


def visible_with_the_future(q_pos, q_seq, k_pos, k_seq):
    return q_seq[:, None] == k_seq[None, :]


def visible_without_itself(q_pos, q_seq, k_pos, k_seq):
    return (q_seq[:, None] == k_seq[None, :]) & (k_pos[None, :] < q_pos[:, None])


def visible_looking_ahead(q_pos, q_seq, k_pos, k_seq):
    return (q_seq[:, None] == k_seq[None, :]) & (k_pos[None, :] >= q_pos[:, None])


def visible_by_either_rule(q_pos, q_seq, k_pos, k_seq):
    return (q_seq[:, None] == k_seq[None, :]) | (k_pos[None, :] <= q_pos[:, None])


def visible_with_keys_as_rows(q_pos, q_seq, k_pos, k_seq):
    return (k_seq[:, None] == q_seq[None, :]) & (k_pos[:, None] <= q_pos[None, :])


def visible_by_row_and_column(q_pos, q_seq, k_pos, k_seq):
    row, column = torch.arange(len(q_pos)), torch.arange(len(k_pos))
    return (q_seq[:, None] == k_seq[None, :]) & (column[None, :] <= row[:, None])


def visible_from_earlier_sequences_too(q_pos, q_seq, k_pos, k_seq):
    return (k_seq[None, :] <= q_seq[:, None]) & (k_pos[None, :] <= q_pos[:, None])


def visible_joined_by_and(q_pos, q_seq, k_pos, k_seq):
    return (q_seq[:, None] == k_seq[None, :]) and (k_pos[None, :] <= q_pos[:, None])


def visible_one_by_one(q_pos, q_seq, k_pos, k_seq):
    return (q_seq == k_seq) & (k_pos <= q_pos)


def visible_by_minus(q_pos, q_seq, k_pos, k_seq):
    same = (q_seq.unsqueeze(1) - k_seq.unsqueeze(0)) == 0
    return torch.logical_and(same, q_pos.unsqueeze(1) - k_pos.unsqueeze(0) >= 0)


def visible_cell_by_cell(q_pos, q_seq, k_pos, k_seq):
    mask = torch.zeros(len(q_pos), len(k_pos), dtype=torch.bool)
    for t in range(len(q_pos)):
        for s in range(len(k_pos)):
            mask[t, s] = bool(q_seq[t] == k_seq[s]) and bool(k_pos[s] <= q_pos[t])
    return mask
