"""Wrong and right answers to the exercises of chapter 01, written as a learner would.

The wrong ones (*twins*) are the well-known mistakes, named after what they do; `ch01.py` has the advice for
each. Two different right answers an exercise must pass, so that a check judges what a function does and not how.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False
# ruff: noqa: ARG001, F821, PERF401

from __future__ import annotations

import math

import torch

# --- 1.1 scores


def scores_without_scaling(q, k):
    return torch.einsum("thd,shd->hts", q, k)


def scores_divided_by_the_size(q, k):
    return torch.einsum("thd,shd->hts", q, k) / q.shape[-1]


def scores_multiplied_by_the_root(q, k):
    return torch.einsum("thd,shd->hts", q, k) * math.sqrt(q.shape[-1])


def scores_scaled_by_the_heads(q, k):
    return torch.einsum("thd,shd->hts", q, k) / math.sqrt(q.shape[1])


def scores_scaled_by_the_tokens(q, k):
    return torch.einsum("thd,shd->hts", q, k) / math.sqrt(q.shape[0] or 1)


def scores_with_a_letter_for_the_size(q, k):
    return torch.einsum("thd,shd->hts", q, k) / math.sqrt(D)


def scores_with_rows_and_columns_swapped(q, k):
    return torch.einsum("thd,shd->hst", q, k) / math.sqrt(q.shape[-1])


def scores_with_heads_in_the_middle(q, k):
    return torch.einsum("thd,shd->ths", q, k) / math.sqrt(q.shape[-1])


def scores_summed_over_heads(q, k):
    return torch.einsum("thd,shd->ts", q, k) / math.sqrt(q.shape[-1])


def scores_in_float32(q, k):
    return torch.einsum("thd,shd->hts", q.float(), k.float()) / math.sqrt(q.shape[-1])


def scores_by_matmul(q, k):
    q, k = q.transpose(0, 1), k.transpose(0, 1)
    return q @ k.transpose(1, 2) / q.shape[-1] ** 0.5


def scores_head_by_head(q, k):
    heads = []
    for h in range(q.shape[1]):
        heads.append(q[:, h] @ k[:, h].T * q.shape[2] ** -0.5)
    return torch.stack(heads)


# --- 1.2 weights


def weights_over_the_wrong_axis(scores, mask):
    shares = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-2)
    return shares.nan_to_num(0.0)


def weights_with_the_mask_multiplied(scores, mask):
    shares = torch.softmax(scores * mask, dim=-1)
    return shares.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)


def weights_masked_after_softmax(scores, mask):
    return torch.softmax(scores, dim=-1) * mask


def weights_with_nan_for_empty_rows(scores, mask):
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)


def weights_with_a_large_negative_number(scores, mask):
    return torch.softmax(scores.masked_fill(~mask, -1e9), dim=-1)


def weights_with_the_mask_turned_round(scores, mask):
    shares = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
    return shares.nan_to_num(0.0)


def weights_with_the_first_fill_turned_round(scores, mask):
    shares = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
    return shares.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)


def weights_with_the_last_fill_turned_round(scores, mask):
    shares = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    return shares.masked_fill(mask.any(dim=-1, keepdim=True), 0.0)


def weights_over_the_heads(scores, mask):
    shares = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=0)
    return shares.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)


def weights_with_both_fills_turned_round(scores, mask):
    shares = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
    return shares.masked_fill(mask.any(dim=-1, keepdim=True), 0.0)


def weights_with_the_mask_added_as_ones(scores, mask):
    return torch.softmax(scores + mask, dim=-1)


def weights_without_mask(scores, mask):
    return torch.softmax(scores, dim=-1)


def weights_without_exp(scores, mask):
    kept = scores * mask
    return (kept / kept.sum(dim=-1, keepdim=True)).nan_to_num(0.0)


def weights_exp_without_dividing(scores, mask):
    return torch.exp(scores) * mask


def weights_written_into_the_scores(scores, mask):
    scores.masked_fill_(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1).nan_to_num(0.0)


def weights_always_float32(scores, mask):
    shares = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1, dtype=torch.float32)
    return shares.nan_to_num(0.0)


def weights_by_hand(scores, mask):
    kept = torch.where(mask, scores, torch.full_like(scores, float("-inf")))
    highest = kept.amax(dim=-1, keepdim=True) if scores.shape[-1] else kept.new_zeros(1)
    shares = torch.exp(kept - highest.clamp(min=-1e30))
    total = shares.sum(dim=-1, keepdim=True)
    return shares / total.clamp(min=1e-300 if scores.dtype == torch.float64 else 1e-30)


def weights_with_nan_replaced(scores, mask):
    bias = torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(mask.logical_not(), -math.inf)
    return torch.nan_to_num(torch.softmax(scores + bias, dim=-1))


# --- 1.3 mix


def mix_with_heads_first(weights, v):
    return torch.einsum("hts,shd->htd", weights, v)


def mix_averaged(weights, v):
    return torch.einsum("hts,shd->thd", weights, v) / v.shape[0]


def mix_without_weights(weights, v):
    return v.sum(dim=0).expand(weights.shape[1], *v.shape[1:])


def mix_summed_over_heads(weights, v):
    return torch.einsum("hts,shd->td", weights, v)


def mix_with_all_heads_alike(weights, v):
    return torch.einsum("hts,sd->thd", weights, v[:, 0])


def mix_taking_the_best_only(weights, v):
    best = weights.argmax(dim=-1)  # [H, T]
    return torch.stack([v[best[h], h] for h in range(v.shape[1])], dim=1)


def mix_reshaped_instead_of_swapped(weights, v):
    out = weights @ v.transpose(0, 1)
    return out.reshape(weights.shape[1], weights.shape[0], v.shape[2])


def mix_by_matmul(weights, v):
    return (weights @ v.permute(1, 0, 2)).permute(1, 0, 2)


def mix_by_adding_up(weights, v):
    heads, queries, keys = weights.shape
    out = torch.zeros(queries, heads, v.shape[2], dtype=v.dtype)
    for s in range(keys):
        out = out + weights[:, :, s].T[:, :, None] * v[s][None]
    return out


# --- 1.4 split_heads


def split_with_heads_interleaved(x, num_heads):
    return x.reshape(x.shape[0], -1, num_heads).transpose(1, 2)


def split_with_the_two_sizes_swapped(x, num_heads):
    return x.reshape(x.shape[0], -1, num_heads)


def split_across_the_tokens(x, num_heads):
    return x.reshape(num_heads, x.shape[0], -1).transpose(0, 1)


def split_with_heads_first(x, num_heads):
    return x.reshape(x.shape[0], num_heads, -1).transpose(0, 1)


def split_into_tokens_by_reshape(x, num_heads):
    return x.reshape(num_heads, x.shape[0], -1)


def split_by_stacking(x, num_heads):
    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)


def split_by_view(x, num_heads):
    size = x.shape[1] // num_heads
    return x.contiguous().view(len(x), num_heads, size)


# --- 1.5 repeat_kv


def repeat_as_tiles(x, num_repeats):
    return x.repeat(1, num_repeats, 1)


def repeat_without_a_dimension(x, num_repeats):
    return x.repeat_interleave(num_repeats)


def repeat_the_tokens(x, num_repeats):
    return x.repeat_interleave(num_repeats, dim=0)


def repeat_the_numbers(x, num_repeats):
    return x.repeat_interleave(num_repeats, dim=2)


def repeat_up_to_so_many_heads(x, num_repeats):
    return x.repeat_interleave(max(1, num_repeats // x.shape[1]), dim=1)


def repeat_in_a_dimension_of_its_own(x, num_repeats):
    return x[:, :, None, :].expand(-1, -1, num_repeats, -1)


def repeat_averaging_the_heads(x, num_repeats):
    return x.mean(dim=1, keepdim=True).expand(-1, x.shape[1] * num_repeats, -1)


def repeat_by_expanding(x, num_repeats):
    keys, heads, size = x.shape
    return x[:, :, None, :].expand(keys, heads, num_repeats, size).reshape(keys, heads * num_repeats, size)


def repeat_by_index(x, num_repeats):
    return x[:, [head // num_repeats for head in range(x.shape[1] * num_repeats)]]
