"""Attention in three small functions: scores, weights, mix. (Chapter 1)

A token asks a question (its query), every token offers a label (its key) and a content (its value).
*Scores* compare questions with labels, *weights* turn the comparisons into shares, *mix* adds up the
contents by their shares. Several heads do this side by side; in grouped-query attention (GQA) a few
key/value heads serve many query heads.

These functions know one group of queries and one group of keys. They do not know about requests,
batches or caches: who may look at whom is decided by the mask (`masks.py`).

Letters: T new tokens (queries), S visible tokens (keys), H query heads, Hkv KV heads, D head size.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minicb.seams import seam


@seam("1.1")
def scores(q: Tensor, k: Tensor) -> Tensor:
    """How well does each query match each key?

    q: [T, H, D]   k: [S, H, D]
    returns: [H, T, S], the dot products divided by sqrt(D), so that their spread does not grow with D
    (Vaswani et al. 2017, section 3.2.1).
    """
    return torch.einsum("thd,shd->hts", q, k) / math.sqrt(q.shape[-1])


@seam("1.2")
def weights(scores: Tensor, mask: Tensor) -> Tensor:
    """Turn each row of scores into shares that add up to 1, over the visible keys only.

    scores: [H, T, S]   mask: bool [T, S], True = may look
    returns: [H, T, S]; a query that may see nothing gets zeros, not NaN.
    """
    hidden = scores.masked_fill(~mask, float("-inf"))
    # Half precision is too coarse to add many small shares; the result goes back to the scores' type.
    wide = torch.promote_types(scores.dtype, torch.float32)
    shares = torch.softmax(hidden, dim=-1, dtype=wide).to(scores.dtype)
    return shares.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)


@seam("1.3")
def mix(weights: Tensor, v: Tensor) -> Tensor:
    """Add up the values by their shares.

    weights: [H, T, S]   v: [S, H, D]
    returns: [T, H, D]
    """
    return torch.einsum("hts,shd->thd", weights, v)


@seam("1.4")
def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Cut each token's row into heads: [T, num_heads * D] -> [T, num_heads, D]. The inverse of `merge_heads`."""
    return x.reshape(x.shape[0], num_heads, x.shape[1] // num_heads)


def merge_heads(x: Tensor) -> Tensor:
    """Lay the heads of each token side by side again: [T, H, D] -> [T, H * D]."""
    return x.flatten(1)


@seam("1.5")
def repeat_kv(x: Tensor, num_repeats: int) -> Tensor:
    """Let each KV head serve `num_repeats` neighbouring query heads (GQA).

    x: [S, Hkv, D]
    returns: [S, Hkv * num_repeats, D], in the order 0,0,0,1,1,1 and not 0,1,0,1,0,1.
    """
    return x.repeat_interleave(num_repeats, dim=1)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """The whole of attention: scores, weights, mix.

    q: [T, H, D]   k, v: [S, Hkv, D]   mask: bool [T, S], True = may look
    returns: [T, H, D]
    """
    num_repeats = q.shape[1] // k.shape[1]
    shares = weights(scores(q, repeat_kv(k, num_repeats)), mask)
    return mix(shares, repeat_kv(v, num_repeats))
