"""Ragged attention with torch's own SDPA: a call for each chunk, and one for all decodes of like length.

A decode has one query; calling SDPA for each of 32 requests in each of 30 layers is mostly overhead. Requests
that decode are sorted by context length and cut into groups; each group is one padded call in which no row is
padded by more than a quarter. One group for all would lose as soon as a single request is long.

Each group is a small rectangle, computed as the padded baseline computes its large one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from minicb.batch import Batch
from minicb.cache import KVCache
from minicb.model import Attend
from minicb.padding import rectangle_attention

SLACK = 1.25  # longest context in a group over its shortest
SMALL = 64  # contexts up to here may share a group whatever their ratio


@dataclass(frozen=True, slots=True)
class Group:
    """Requests that are computed by one SDPA call. n requests, each with m queries and up to K keys."""

    rows: Tensor | slice  # of the step's ragged row: n*m
    slots: Tensor  # int64 [n*K], the tail of a shorter row repeats its own newest key
    q_pos: Tensor  # int64 [n, m]
    num_keys: int
    mask: Tensor | None  # bool [n, m, K]; None where every query sees every key


class GroupedAttention:
    """The fast back end for CPUs, and the portable one elsewhere."""

    def bind(self, batch: Batch, cache: KVCache) -> Attend:
        groups = find_groups(batch, cache.page_size)

        def attend_layer(layer: int, window: int | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            cache.write(layer, batch.slots, k, v)
            out = torch.empty_like(q)
            for group in groups:
                keys, values = cache.read(layer, group.slots)
                out[group.rows] = attend_group(q[group.rows], keys, values, group, window)
            return out

        return attend_layer


def attend_group(q: Tensor, k: Tensor, v: Tensor, group: Group, window: int | None) -> Tensor:
    """q: [n*m, H, D]   k, v: [n*K, Hkv, D]   returns: [n*m, H, D]"""
    mask = group.mask
    if window is not None:
        steps = torch.arange(group.num_keys, device=q.device)
        near = steps > group.q_pos[..., None] - window  # [n, m, K]
        mask = near if mask is None else mask & near
    return rectangle_attention(q, k, v, len(group.q_pos), mask)


def find_groups(batch: Batch, page_size: int) -> list[Group]:
    """One group for each chunk of several tokens, and groups of like length for the decodes."""
    starts, context = batch.q_start.tolist(), batch.kv_len.tolist()
    new = [b - a for a, b in pairwise(starts)]
    groups = chunk_groups(batch, page_size)
    decodes = sorted((i for i, n in enumerate(new) if n == 1), key=lambda i: context[i])
    first = 0
    for at in range(1, len(decodes) + 1):
        shortest = context[decodes[first]]
        if at == len(decodes) or context[decodes[at]] > max(SMALL, SLACK * shortest):
            groups.append(make_group(batch, decodes[first:at], page_size, starts, context))
            first = at
    return groups


def chunk_groups(batch: Batch, page_size: int) -> list[Group]:
    """One group for each chunk of several tokens."""
    starts, context = batch.q_start.tolist(), batch.kv_len.tolist()
    chunks = [i for i, (start, end) in enumerate(pairwise(starts)) if end - start > 1]
    return [make_group(batch, [i], page_size, starts, context) for i in chunks]


def make_group(batch: Batch, members: list[int], page_size: int, starts: list[int], context: list[int]) -> Group:
    device = batch.tokens.device
    num_keys = max(context[i] for i in members)
    lengths = [context[i] for i in members]
    steps = torch.arange(num_keys, device=device)
    # A shorter row's tail must not reach beyond its context: a hidden slot may hold a NaN that somebody left there,
    # and 0 times NaN is NaN.
    own = torch.minimum(steps, batch.kv_len[members, None] - 1)  # [n, K]
    slots = batch.page_table[members].long().gather(1, own // page_size) * page_size + own % page_size
    first, end = starts[members[0]], starts[members[0] + 1]
    if end - first > 1:  # one request with a chunk
        rows: Tensor | slice = slice(first, end)
        q_pos = batch.positions[first:end][None]
        mask: Tensor | None = steps <= q_pos[..., None]
    else:
        rows = torch.tensor([starts[i] for i in members], device=device)
        q_pos = batch.positions[rows][:, None]
        same = min(lengths) == num_keys
        mask = None if same else steps <= q_pos[..., None]
    return Group(rows, slots.flatten(), q_pos, num_keys, mask)
