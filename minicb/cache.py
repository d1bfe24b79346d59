"""The KV cache: one tensor for keys, one for values, and a pool that says who owns which slots. (Chapter 3)

A slot holds the key and value of one token in every layer. Slots come in pages of equal size; a page table
lists a request's pages in order. Here a page is the whole room of one request (`SlotPool`); a pool of small
pages can take its place behind the same four methods, and nobody above notices.

Page 0 is a dummy that no request ever owns: padded rows write there, padded tables point there, never to -1,
which in Python is the last page and somebody's answer.

Letters: T new tokens, S visible tokens, L layers, Hkv KV heads, D head size.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from minicb.attention import attend
from minicb.model import ModelConfig
from minicb.seams import seam

DUMMY_PAGE = 0


@seam("3.4")
def bytes_per_token(num_layers: int, num_kv_heads: int, head_dim: int, element_bytes: int) -> int:
    """Cache bytes for one token: a key and a value, for each KV head, in *every* layer."""
    return 2 * num_layers * num_kv_heads * head_dim * element_bytes


@seam("3.2")
def write_kv(k_cache: Tensor, v_cache: Tensor, slots: Tensor, k: Tensor, v: Tensor) -> None:
    """Put the new keys and values into their slots, in place. What was there before is replaced.

    k_cache, v_cache: [num_slots, Hkv, D]   slots: int64 [T]   k, v: [T, Hkv, D]
    """
    k_cache.index_copy_(0, slots, k)
    v_cache.index_copy_(0, slots, v)


@seam("3.3")
def attend_with_cache(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor
) -> Tensor:
    """One request's new tokens in one layer: keep their keys and values, then look at everything that is kept.

    q: [T, H, D]   k, v: [T, Hkv, D], of the new tokens only   mask: bool [T, S]
    k_cache, v_cache: [num_slots, Hkv, D], changed in place
    slots: int64 [S], where the request's tokens are kept, in order; the last T are the new ones'
    returns: [T, H, D]
    """
    new = slots[len(slots) - len(q) :]
    write_kv(k_cache, v_cache, new, k, v)
    return attend(q, k_cache.index_select(0, slots), v_cache.index_select(0, slots), mask)


class KVCache:
    """Keys and values of all layers: two tensors [L, num_slots, Hkv, D], allocated once."""

    def __init__(
        self, config: ModelConfig, num_pages: int, page_size: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.num_pages, self.page_size = num_pages, page_size
        shape = (config.num_layers, num_pages * page_size, config.num_kv_heads, config.head_dim)
        self.k, self.v = (zeros(shape, device, dtype) for _ in range(2))

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """slots: int64 [T]   k, v: [T, Hkv, D]"""
        write_kv(self.k[layer], self.v[layer], slots, k, v)

    def read(self, layer: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """slots: int64 [S]   returns: keys and values, each [S, Hkv, D]"""
        return self.k[layer].index_select(0, slots), self.v[layer].index_select(0, slots)

    @property
    def nbytes(self) -> int:
        return self.k.nbytes + self.v.nbytes


def zeros(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Zeros, not `empty`: a hidden NaN times a weight of 0 is still NaN.

    On a CPU they come from the system, which backs them with real memory only where something is written; `torch.zeros`
    would write all of it. On Linux in small pages: a huge one would be backed whole for a single token.
    """
    if device.type != "cpu":
        return torch.zeros(shape, device=device, dtype=dtype)
    size = math.prod(shape) * dtype.itemsize
    if not hasattr(mmap, "MADV_NOHUGEPAGE"):
        return torch.from_numpy(np.zeros(size, dtype=np.uint8)).view(dtype).view(shape)
    raw = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a system that has no huge pages
        raw.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(raw, dtype=dtype).view(shape)


def in_one_copy(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Small tensors of whole numbers, brought to the device together: a copy costs the same for one as for all."""
    sizes = [-(-t.nbytes // 16) * 4 for t in tensors]  # in int32 cells; each begins at a multiple of 16 bytes
    row = torch.empty(sum(sizes), dtype=torch.int32, pin_memory=device.type == "cuda")
    for part, t in zip(row.split(sizes), tensors, strict=True):
        part[: t.nbytes // 4] = t.flatten().view(torch.int32)
    parts = zip(row.to(device, non_blocking=True).split(sizes), tensors, strict=True)
    return [part[: t.nbytes // 4].view(t.dtype).view(t.shape) for part, t in parts]


class Pool(Protocol):
    """Who owns which pages. The scheduler sees only this; it never learns what kind of pool it has."""

    page_size: int
    num_pages: int  # pages that requests can own; the dummy page is not counted

    @property
    def max_request_tokens(self) -> int:
        """The longest request that could ever be held, alone."""
        ...

    @property
    def free_pages(self) -> int: ...

    def reserve(self, request_id: str, num_tokens: int) -> bool:
        """Make room for `num_tokens` of this request in all; False, and nothing changed, if there is none."""
        ...

    def release(self, request_id: str) -> None:
        """Give back all its pages. Releasing twice is harmless."""
        ...

    def pages(self, request_id: str) -> list[int]:
        """Its pages, in the order of its tokens."""
        ...

    def owners(self) -> dict[str, list[int]]:
        """Every owner with its pages, for audits and pictures."""
        ...


class SlotPool:
    """A contiguous cache is a paged cache whose page is the whole room of one request."""

    def __init__(self, num_slots: int, slot_tokens: int) -> None:
        self.num_pages, self.page_size = num_slots, slot_tokens
        self.free = list(range(num_slots, DUMMY_PAGE, -1))  # taken from the end: the lowest first
        self.owned: dict[str, int] = {}

    @property
    def max_request_tokens(self) -> int:
        return self.page_size

    @property
    def free_pages(self) -> int:
        return len(self.free)

    def reserve(self, request_id: str, num_tokens: int) -> bool:
        if num_tokens > self.page_size:
            return False
        if request_id not in self.owned:
            if not self.free:
                return False
            self.owned[request_id] = self.free.pop()
        return True

    def release(self, request_id: str) -> None:
        page = self.owned.pop(request_id, None)
        if page is not None:
            self.free.append(page)

    def pages(self, request_id: str) -> list[int]:
        return [self.owned[request_id]]

    def owners(self) -> dict[str, list[int]]:
        return {request_id: [page] for request_id, page in self.owned.items()}


def free_memory(device: torch.device) -> int:
    """Bytes that are free on this device now."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    import psutil

    return int(psutil.virtual_memory().available)


def plan_slots(
    config: ModelConfig, dtype: torch.dtype, max_model_len: int, max_num_seqs: int, budget_bytes: int
) -> int:
    """How many slots of `max_model_len` tokens fit into the budget, at most `max_num_seqs`.

    Raises ValueError with the numbers when not even one request fits beside the dummy slot.
    """
    token = bytes_per_token(config.num_layers, config.num_kv_heads, config.head_dim, dtype.itemsize)
    slot = token * max_model_len
    fitting = budget_bytes // slot - 1  # one slot's worth is the dummy page
    if fitting < 1:
        raise ValueError(
            f"the KV cache needs {2 * slot:,} bytes for one request of max_model_len {max_model_len} "
            f"(and the dummy page), {token:,} a token; {budget_bytes:,} are allowed: lower max_model_len, "
            "or raise kv_cache_memory_bytes"
        )
    return int(min(max_num_seqs, fitting))
