"""Ragged paged attention as one Triton kernel: chunks and decodes in the same launch, keys read where they lie.

    TritonAttention()      a back end for CUDA (and, under TRITON_INTERPRET=1, for the tests on a CPU)

How to read `attend_kernel`. The grid has two axes: blocks of queries, and KV heads. One program computes one tile:

1. *Whose block is it?* The step has T queries of N requests, end to end. Each request is cut into blocks of BLOCK_Q
   queries; its last block may be short. Nobody tells a program its request. But if request i is said to begin with
   block `q_start[i] // BLOCK_Q + i`, no two requests share a block, so a binary search over `q_start` finds it. The
   same formula bounds the grid by T // BLOCK_Q + N, which the host knows without asking the device.
2. *A tile's rows.* With grouped queries (GQA) the G heads of a group read the same keys. The tile packs them: row r is
   query r // G, head r % G. A decode of 9 heads over 3 KV heads then has 3 useful rows of 16 instead of 1 (16 is the
   least that the tensor cores take), and a key is read once for its whole group.
3. *A tile's columns.* The keys, BLOCK_N at a time, up to the last one that the block may see. Position p lies in page
   `page_table[i, p // page_size]` at offset p % page_size: pages may have any size. With a sliding window the walk
   begins where the first row's window begins.
4. *Softmax on the way* (Milakov & Gimelshein 2018; FlashAttention 2022). The row's largest score so far is subtracted
   before the exponential; when a larger one comes, what was summed is scaled down once. Sums are float32. exp2 is the
   machine's own exponential, so the scale carries a factor log2(e).

What lies beyond a request's context is not loaded: a slot that is not in use may hold a NaN, and its weight of 0 would
not help, as 0 times NaN is NaN. A row that sees nothing (kv_len 0) stores zeros.

Letters: T new tokens, N requests, H query heads, Hkv KV heads, G = H / Hkv, D head size, P pages of a request.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

import math
from functools import cache as once

import torch
import triton
import triton.language as tl
from torch import Tensor

from minicb.batch import Batch
from minicb.cache import KVCache
from minicb.model import Attend, Model

TYPES = (torch.float32, torch.float16, torch.bfloat16)
MAX_HEAD_DIM = 256
NO_WINDOW = 1 << 30  # wider than any context


def fits(model: Model) -> bool:
    """Can the kernels compute with this model's numbers?"""
    return model.dtype in TYPES and model.config.head_dim <= MAX_HEAD_DIM


class TritonAttention:
    """One launch writes the new keys and values of all requests, one attends. `bind` asks the device for nothing."""

    capturable = True  # no number of the batch decides a launch but T and N: a CUDA graph may replay it

    def bind(self, batch: Batch, cache: KVCache) -> Attend:
        def attend_layer(layer: int, window: int | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            k_cache, v_cache = cache.k[layer], cache.v[layer]
            write(k_cache, v_cache, batch.slots, k, v)
            return attend(q, k_cache, v_cache, batch, cache.page_size, window)

        return attend_layer


def write(k_cache: Tensor, v_cache: Tensor, slots: Tensor, k: Tensor, v: Tensor) -> None:
    """Put new keys and values into their slots. k_cache, v_cache: [num_slots, Hkv, D]   k, v: [T, Hkv, D]"""
    k, v = dense_rows(k), dense_rows(v)
    num_tokens, kv_heads, head_dim = k.shape
    row = kv_heads * head_dim
    write_kernel[(num_tokens,)](
        k, v, k_cache, v_cache, slots, k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        HEAD=head_dim, ROW=row, BLOCK=triton.next_power_of_2(row),
    )  # fmt: skip


def attend(q: Tensor, k_cache: Tensor, v_cache: Tensor, batch: Batch, page_size: int, window: int | None) -> Tensor:
    """q: [T, H, D]   k_cache, v_cache: [num_slots, Hkv, D]   returns: [T, H, D]"""
    q = dense_rows(q)
    (num_tokens, num_heads, head_dim), kv_heads = q.shape, k_cache.shape[1]
    num_requests, group = len(batch.kv_len), num_heads // kv_heads
    rows, keys, stages = tile_size(q.device, q.dtype, batch.max_new)
    rows = max(rows, triton.next_power_of_2(group))
    block_q = rows // group
    out = torch.empty((num_tokens, num_heads, head_dim), dtype=q.dtype, device=q.device)
    attend_kernel[(num_tokens // block_q + num_requests, kv_heads)](
        q, k_cache, v_cache, out, batch.q_start, batch.kv_len, batch.page_table,
        num_requests, batch.page_table.shape[1], page_size, NO_WINDOW if window is None else window,
        head_dim**-0.5 * math.log2(math.e), q.stride(0), q.stride(1),
        HEADS=num_heads, KV_HEADS=kv_heads, GROUP=group, HEAD=head_dim,
        BLOCK_D=max(16, triton.next_power_of_2(head_dim)), BLOCK_M=rows, BLOCK_Q=block_q,
        BLOCK_N=keys, num_warps=4, num_stages=stages,
    )  # fmt: skip
    return out


@once
def has_half_tensor_cores(device: torch.device) -> bool:
    """Triton multiplies half types on tensor cores from compute capability 8.0 on."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)


def tile_size(device: torch.device, dtype: torch.dtype, max_new: int) -> tuple[int, int, int]:
    """Rows and keys of a tile, and how many tiles are on their way at once.

    A step of decodes has few rows to a request; one with chunks is better off with large tiles. Without tensor
    cores a product is unrolled number by number, so tiles stay small.
    """
    fast = dtype != torch.float32 and has_half_tensor_cores(device)
    rows = 16 if max_new == 1 else 64 if fast else 32
    return rows, 64 if fast else 32, 2 if fast else 1


def dense_rows(x: Tensor) -> Tensor:
    """The kernels step through a head's numbers one by one; tokens and heads may lie anywhere."""
    return x if x.stride(-1) == 1 else x.contiguous()


# Counts that change from step to step: a special version for each multiple of 16 would be compiled while users wait.
CHANGING = ["num_requests", "table_width", "page_size", "window"]


@triton.jit
def write_kernel(
    k, v, k_cache, v_cache, slots, k_token, k_head, v_token, v_head,
    HEAD: tl.constexpr, ROW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program copies one token's key and value, all KV heads of it."""
    token = tl.program_id(0).to(tl.int64)
    to = tl.load(slots + token) * ROW  # int64: a cache has more than 2^31 numbers
    cell = tl.arange(0, BLOCK)
    inside = cell < ROW
    head, dim = cell // HEAD, cell % HEAD
    tl.store(k_cache + to + cell, tl.load(k + token * k_token + head * k_head + dim, mask=inside), mask=inside)
    tl.store(v_cache + to + cell, tl.load(v + token * v_token + head * v_head + dim, mask=inside), mask=inside)


@triton.jit(do_not_specialize=CHANGING)
def attend_kernel(
    q, k_cache, v_cache, out, q_start, kv_len, page_table, num_requests, table_width, page_size, window, scale,
    q_token, q_head, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_Q queries of one request, all heads of one KV head. See the top of this file."""
    block, kv_head = tl.program_id(0), tl.program_id(1)

    # 1. Whose block is it? The last request that begins at this block or before.
    low = 0
    high = num_requests
    while low < high:
        middle = (low + high) // 2
        if tl.load(q_start + middle) // BLOCK_Q + middle <= block:
            low = middle + 1
        else:
            high = middle
    request = low - 1
    start = tl.load(q_start + request)
    num_new = tl.load(q_start + request + 1) - start
    first = (block - start // BLOCK_Q - request) * BLOCK_Q  # of the request's new tokens
    if first >= num_new:
        return  # the grid's bound was generous

    # 2. The rows: queries times heads of the group.
    context = tl.load(kv_len + request)
    row, dim = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    new = first + row // GROUP
    used = (row < BLOCK_Q * GROUP) & (new < num_new)
    position = context - num_new + new
    token, head = (start + new).to(tl.int64), kv_head * GROUP + row % GROUP
    inside = used[:, None] & (dim < HEAD)[None, :]
    queries = tl.load(q + (token * q_token + head * q_head)[:, None] + dim[None, :], mask=inside, other=0.0)

    # 3. The keys, from the first that anybody here may see to the last.
    best = tl.full([BLOCK_M], -1e30, tl.float32)  # finite: -inf minus -inf would be NaN
    total = tl.zeros([BLOCK_M], tl.float32)
    mixed = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    oldest = context - num_new + first
    end = tl.minimum(oldest + BLOCK_Q, context)
    for at in range(tl.maximum(oldest - window + 1, 0), end, BLOCK_N):
        key = at + tl.arange(0, BLOCK_N)
        real = key < end
        page = tl.load(page_table + request * table_width + key // page_size, mask=real, other=0).to(tl.int64)
        cell = ((page * page_size + key % page_size) * KV_HEADS + kv_head) * HEAD
        there = real[:, None] & (dim < HEAD)[None, :]
        keys = tl.load(k_cache + cell[:, None] + dim[None, :], mask=there, other=0.0)
        values = tl.load(v_cache + cell[:, None] + dim[None, :], mask=there, other=0.0)
        score = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
        seen = real[None, :] & (key[None, :] <= position[:, None]) & (key[None, :] > position[:, None] - window)
        score = tl.where(seen, score, float("-inf"))

        # 4. Softmax on the way.
        better = tl.maximum(best, tl.max(score, 1))
        shrink, weight = tl.exp2(best - better), tl.exp2(score - better[:, None])
        total = total * shrink + tl.sum(weight, 1)
        mixed = mixed * shrink[:, None]
        mixed += tl.dot(weight.to(values.dtype), values, input_precision="ieee")
        best = better

    mixed = mixed / tl.where(total > 0, total, 1.0)[:, None]
    place = (token * HEADS + head) * HEAD
    tl.store(out + place[:, None] + dim[None, :], mixed.to(out.dtype.element_ty), mask=inside)
