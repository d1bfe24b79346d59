"""Attention over a ragged batch, request by request, made of the functions of chapters 1 and 2. (Chapter 6)

The plainest back end: for each request take its new queries, gather its keys and values from the cache, and
attend under its part of the step's mask. Every faster back end is tested against this one, and a learner's own
`scores`, `weights`, `mix` and masks run here. It knows batches and caches; it does not know the scheduler.

Letters: T new tokens of the step, S keys of all its requests together, H query heads, Hkv KV heads, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from minicb.batch import Batch
from minicb.cache import KVCache, attend_with_cache
from minicb.masks import block_mask, causal_mask, chunk_mask, visible, within_window
from minicb.model import Attend
from minicb.seams import seam


class Attention(Protocol):
    """A back end. `bind` works out once a step what depends on the batch alone and returns the step's function."""

    def bind(self, batch: Batch, cache: KVCache) -> Attend:
        """The returned function writes a layer's new K/V into the cache and attends over all of it:
        (layer, window, q [T,H,D], k [T,Hkv,D], v [T,Hkv,D]) -> [T,H,D]."""
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """One request's part of the step: its rows, its columns in the step's mask, its slots in the cache."""

    rows: slice
    columns: slice
    slots: Tensor  # int64 [kv_len]


class ReferenceAttention:
    """Request by request, in plain torch."""

    def bind(self, batch: Batch, cache: KVCache) -> Attend:
        spans = find_spans(batch, cache.page_size)
        masks: dict[int | None, Tensor] = {None: step_mask(batch)}

        def attend_layer(layer: int, window: int | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            if window is not None and window not in masks:
                masks[window] = masks[None] & within_window(batch.positions, key_positions(batch), window)
            return attend_ragged(q, k, v, masks[window], cache.k[layer], cache.v[layer], spans)

        return attend_layer


@seam("6.4")
def attend_ragged(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, k_cache: Tensor, v_cache: Tensor, spans: Sequence[Span]
) -> Tensor:
    """Attention of a whole step in one layer, request by request: nothing between two is ever computed.

    q: [T, H, D]   k, v: [T, Hkv, D], of the new tokens of all   mask: bool [T, S], the whole step's
    k_cache, v_cache: [num_slots, Hkv, D], changed in place
    spans: for each request its `rows` of the T, `columns` of the S, and its `slots` of the cache
    returns: [T, H, D]
    """
    out = torch.empty_like(q)
    for span in spans:
        own, seen = span.rows, mask[span.rows, span.columns]
        out[own] = attend_with_cache(q[own], k[own], v[own], seen, k_cache, v_cache, span.slots)
    return out


@seam("4.3")
def mask_of_chunk(num_computed: int, num_new: int) -> Tensor:
    """Who may look at whom in one request's chunk: bool [num_new, num_computed + num_new].

    num_computed: tokens before the chunk, their keys in the cache   num_new: tokens of the chunk
    """
    if num_computed == 0:
        return causal_mask(num_new)
    num_keys = num_computed + num_new
    return chunk_mask(num_new, num_keys)


@seam("6.2")
def ragged_mask(new: Sequence[int], context: Sequence[int]) -> Tensor:
    """Who may look at whom in one ragged row; the keys of its requests lie end to end in the same order.

    new: new tokens of each request   context: keys of each after this step, the new ones included
    returns: bool [T, S]; T = sum(new), S = sum(context)
    """
    q_pos, q_seq, k_pos, k_seq = (list[int]() for _ in range(4))
    for i, (count, total) in enumerate(zip(new, context, strict=True)):
        q_pos += range(total - count, total)
        q_seq += [i] * count
        k_pos += range(total)
        k_seq += [i] * total
    return visible(*map(torch.tensor, (q_pos, q_seq, k_pos, k_seq)))


def step_mask(batch: Batch) -> Tensor:
    """Who may look at whom in this step: bool [T, S], the requests' keys end to end in the batch's order.

    The plainest of chapter 2's four masks that covers the batch; the last one covers all.
    """
    new, context = batch.q_start.diff().tolist(), batch.kv_len.tolist()
    if len(new) == 1:
        mask = mask_of_chunk(context[0] - new[0], new[0])
    elif new == context:  # nothing comes from the cache
        mask = block_mask(new)
    else:
        mask = ragged_mask(new, context)
    return mask.to(batch.tokens.device)


def key_positions(batch: Batch) -> Tensor:
    """Position of each column of the step's mask in its own request: int64 [S]."""
    return torch.cat([torch.arange(n, device=batch.tokens.device) for n in batch.kv_len.tolist()])


def find_spans(batch: Batch, page_size: int) -> list[Span]:
    """Each request's rows, columns and cache slots."""
    spans, first_key = [], 0
    starts, context = batch.q_start.tolist(), batch.kv_len.tolist()
    offsets = torch.arange(page_size, device=batch.tokens.device)
    for i, kv_len in enumerate(context):
        pages = batch.page_table[i, : -(-kv_len // page_size)].long()
        slots = (pages[:, None] * page_size + offsets).flatten()[:kv_len]
        spans.append(Span(slice(starts[i], starts[i + 1]), slice(first_key, first_key + kv_len), slots))
        first_key += kv_len
    return spans
