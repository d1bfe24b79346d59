"""Attention over a ragged batch, request by request, made of the functions of chapters 1 and 2. (Chapter 6)

The plainest back end: for each request take its new queries, gather its keys and values from the cache, and
attend under its part of the step's mask. Every faster back end is tested against this one, and a learner's own
`scores`, `weights`, `mix` and masks run here. It knows batches and caches; it does not know the scheduler.

Letters: T new tokens of the step, S keys of all its requests together, H query heads, Hkv KV heads, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from minicb.attention import attend
from minicb.batch import Batch
from minicb.cache import KVCache
from minicb.masks import block_mask, causal_mask, chunk_mask, visible, within_window
from minicb.model import Attend


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
        mask = step_mask(batch)
        q_pos, k_pos = batch.positions, key_positions(batch)

        def attend_layer(layer: int, window: int | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            cache.write(layer, batch.slots, k, v)
            out = torch.empty_like(q)
            for span in spans:
                seen = mask[span.rows, span.columns]
                if window is not None:
                    seen = seen & within_window(q_pos[span.rows], k_pos[span.columns], window)
                out[span.rows] = attend(q[span.rows], *cache.read(layer, span.slots), seen)
            return out

        return attend_layer


def step_mask(batch: Batch) -> Tensor:
    """Who may look at whom in this step: bool [T, S], the requests' keys end to end in the batch's order.

    The plainest of chapter 2's four masks that covers the batch; the last one covers all.
    """
    new, context = batch.q_start.diff().tolist(), batch.kv_len.tolist()
    fresh = new == context  # nothing comes from the cache
    if len(new) == 1:
        mask = causal_mask(new[0]) if fresh else chunk_mask(new[0], context[0])
    elif fresh:
        mask = block_mask(new)
    else:
        order = torch.arange(len(new), device=batch.tokens.device)
        q_seq = order.repeat_interleave(batch.q_start.diff())
        k_seq = order.repeat_interleave(batch.kv_len)
        mask = visible(batch.positions, q_seq, key_positions(batch), k_seq)
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
        num_pages = -(-kv_len // page_size)
        pages = batch.page_table[i, :num_pages].long()
        slots = (pages[:, None] * page_size + offsets).flatten()[:kv_len]
        spans.append(Span(slice(starts[i], starts[i + 1]), slice(first_key, first_key + kv_len), slots))
        first_key += kv_len
    return spans
