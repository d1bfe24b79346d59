"""Ragged paged attention as one call of torch's own library: `torch.nn.attention.varlen`.

It is what the Triton kernel is compared with, and what takes its place on a GPU without Triton (Windows). Its
conditions: CUDA, float16 or bfloat16, a torch with `block_table` (2.13), pages of a multiple of 256 tokens. And
`num_splits=1` always: split along the keys, as it does by itself, paged calls returned wrong rows
(https://github.com/pytorch/pytorch/issues/194167). None of this is taken on trust: `objection` tries it out.
"""

from __future__ import annotations

import inspect
from functools import cache as once

import torch
import torch.nn.functional as F
from torch import Tensor

from minicb.batch import Batch
from minicb.cache import KVCache
from minicb.kernels.grouped import GroupedAttention
from minicb.model import Attend, ModelConfig, RopeConfig
from minicb.reference import ReferenceAttention

PAGE_MULTIPLE = 256
TOLERANCE = 0.03  # of numbers around 1 in bfloat16


class VarlenAttention:
    """Pages of a multiple of 256 tokens; where they are not, as `GroupedAttention`."""

    def bind(self, batch: Batch, cache: KVCache) -> Attend:
        if cache.page_size % PAGE_MULTIPLE:
            return GroupedAttention().bind(batch, cache)
        from torch.nn.attention.varlen import varlen_attn

        k_start = F.pad(batch.kv_len.cumsum(0, dtype=torch.int32), (1, 0))

        def attend_layer(layer: int, window: int | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            cache.write(layer, batch.slots, k, v)
            pages = (cache.num_pages, cache.page_size, *k.shape[1:])
            out = varlen_attn(
                q.contiguous(), cache.k[layer].view(pages), cache.v[layer].view(pages), batch.q_start, k_start,
                batch.max_new, batch.max_kv, window_size=(-1 if window is None else window - 1, 0), enable_gqa=True,
                seqused_k=batch.kv_len, block_table=batch.page_table, num_splits=1,
            )  # fmt: skip
            assert isinstance(out, Tensor)
            return out

        return attend_layer


@once
def objection(device: torch.device, dtype: torch.dtype) -> str:
    """Why `VarlenAttention` cannot be used here; empty if it can. A small step is compared with the reference."""
    if device.type != "cuda":
        return f"it runs on CUDA only, not on {device.type}"
    if dtype not in (torch.float16, torch.bfloat16):
        return f"it computes in float16 and bfloat16 only, not in {dtype}"
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return f"torch {torch.__version__} does not have it"
    if not {"block_table", "num_splits"} <= inspect.signature(varlen_attn).parameters.keys():
        return f"torch {torch.__version__} has it without pages"
    try:
        errors = [probe_error(device, dtype, window) for window in (None, 100)]
    except (RuntimeError, TypeError) as failure:
        return f"it failed: {str(failure).strip().splitlines()[0]}"
    wrong = [error for error in errors if not error < TOLERANCE]  # so asked, a NaN is wrong
    return f"its result is off by {wrong[0]:.2g}" if wrong else ""


def probe_error(device: torch.device, dtype: torch.dtype, window: int | None) -> float:
    """The largest difference to the reference: a decode, a later chunk and a whole prompt, 3 heads to a KV head."""
    config = ModelConfig(8, 8, 8, 1, 9, 3, 64, RopeConfig(1e4), 1024)
    new, context = [1, 40, 300], [700, 260, 300]
    tables = torch.tensor([[5, 2, 7], [1, 6, 0], [4, 3, 0]], dtype=torch.int32)  # 0: the dummy page
    starts = [0, 1, 41, 341]
    positions = torch.cat([torch.arange(s - n, s) for n, s in zip(new, context, strict=True)])
    owner = torch.arange(3).repeat_interleave(torch.tensor(new))
    slots = tables[owner, positions // PAGE_MULTIPLE].long() * PAGE_MULTIPLE + positions % PAGE_MULTIPLE
    batch = Batch(
        tokens=torch.zeros(341, dtype=torch.int64),
        positions=positions,
        slots=slots,
        q_start=torch.tensor(starts, dtype=torch.int32),
        kv_len=torch.tensor(context, dtype=torch.int32),
        page_table=tables,
        sample_at=torch.tensor(starts[1:]) - 1,
        max_new=max(new),
        max_kv=max(context),
    )
    dice = torch.Generator().manual_seed(0)
    old = torch.randn(2, 8 * PAGE_MULTIPLE, 3, 64, generator=dice).to(dtype)
    q, k, v = (torch.randn(341, heads, 64, generator=dice).to(dtype) for heads in (9, 3, 3))
    results = []
    for attention, where, kind in (
        (ReferenceAttention(), torch.device("cpu"), torch.float32),
        (VarlenAttention(), device, dtype),
    ):
        cache = KVCache(config, 8, PAGE_MULTIPLE, where, kind)
        cache.k[0], cache.v[0] = old[0].to(where, kind), old[1].to(where, kind)
        step = attention.bind(batch.to(where), cache)
        results.append(step(0, window, *(x.to(where, kind) for x in (q, k, v))).float().cpu())
    return float((results[0] - results[1]).abs().max())
