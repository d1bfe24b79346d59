"""Random ragged steps on paged caches, to hold any attention back end against the reference."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from oracle import poison
from torch import Tensor

from minicb.batch import Batch
from minicb.cache import KVCache
from minicb.engine import Engine
from minicb.model import ModelConfig, RopeConfig
from minicb.reference import Attention, ReferenceAttention
from minicb.sampling import SamplingParams


def make_batch(rng: random.Random, page_size: int, kv_len: list[int], new: list[int]) -> tuple[Batch, int]:
    """A step of requests of these contexts, on pages in random order. Returns it and the number of pages."""
    counts = [-(-n // page_size) for n in kv_len]
    pages = list(range(1, sum(counts) + 3))
    rng.shuffle(pages)
    tables = [[pages.pop() for _ in range(n)] for n in counts]
    positions = [range(context - n, context) for context, n in zip(kv_len, new, strict=True)]
    slots = [
        t[i // page_size] * page_size + i % page_size for t, own in zip(tables, positions, strict=True) for i in own
    ]
    starts = [sum(new[:i]) for i in range(len(new) + 1)]
    return Batch(
        tokens=torch.zeros(starts[-1], dtype=torch.int64),
        positions=torch.tensor([i for own in positions for i in own]),
        slots=torch.tensor(slots),
        q_start=torch.tensor(starts, dtype=torch.int32),
        kv_len=torch.tensor(kv_len, dtype=torch.int32),
        page_table=torch.tensor([t + [0] * (max(counts) - len(t)) for t in tables], dtype=torch.int32),
        sample_at=torch.tensor(starts[1:]) - 1,
        max_new=max(new),
        max_kv=max(kv_len),
    ), sum(counts) + 3


def random_batch(rng: random.Random) -> tuple[Batch, int, int]:
    """One to eight requests that decode, read a chunk or start. Returns batch, pages, page size."""
    page_size = rng.choice([1, 3, 16, 150])
    longest = rng.choice([3, 20, 70, 150])
    kv_len = [rng.randint(1, longest) for _ in range(rng.randint(1, 8))]
    new = [rng.choice([1, 1, context, rng.randint(1, context)]) for context in kv_len]
    batch, pages = make_batch(rng, page_size, kv_len, new)
    return batch, pages, page_size


def owned_slots(batch: Batch, page_size: int) -> Iterator[Tensor]:
    """The slots of each request's context."""
    for table, n in zip(batch.page_table.long(), batch.kv_len.tolist(), strict=True):
        steps = torch.arange(n)
        yield table[steps // page_size] * page_size + steps % page_size


def attend_both(
    attention: Attention,
    seed: int,
    group: int,
    head_dim: int,
    window: int | None,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> tuple[Tensor, Tensor]:
    """One random step by the reference in float32 on the CPU, and by another back end in `dtype` on `device`, from the
    same numbers."""
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    batch, num_pages, page_size = random_batch(rng)
    kv_heads = rng.choice([1, 2, 3])
    config = ModelConfig(8, 8, 8, 1, kv_heads * group, kv_heads, head_dim, RopeConfig(1e4), 512)
    num_tokens = len(batch.positions)

    def noise(*shape: int) -> Tensor:
        return (1.5 * torch.randn(shape, generator=generator)).to(dtype)

    q, k, v = noise(num_tokens, kv_heads * group, head_dim), *noise(2, num_tokens, kv_heads, head_dim)
    old = [noise(2, len(slots), kv_heads, head_dim) for slots in owned_slots(batch, page_size)]

    def attend_with(attention: Attention, own: torch.dtype, device: str) -> Tensor:
        cache = KVCache(config, num_pages, page_size, torch.device(device), own)
        poison(cache)
        for slots, (keys, values) in zip(owned_slots(batch, page_size), old, strict=True):
            cache.write(0, slots.to(device), keys.to(device, own), values.to(device, own))
        new = (x.to(device, own) for x in (q, k, v))
        return attention.bind(batch.to(torch.device(device)), cache)(0, window, *new).float().cpu()

    return attend_with(ReferenceAttention(), torch.float32, "cpu"), attend_with(attention, dtype, device)


def answers_of(
    model: Any, attention: Attention | str, jobs: Sequence[tuple[list[int], int, float]], **limits: int
) -> dict[str, list[int]]:
    """The tokens that an engine with these limits gives to jobs of (prompt, length, temperature), seeded by place."""
    engine = Engine(model, attention=attention, **limits)
    found: dict[str, list[int]] = {}
    for n, (ids, count, temperature) in enumerate(jobs):
        params = SamplingParams(max_tokens=count, temperature=temperature, ignore_eos=True, seed=n)
        found[engine.add_request(ids, params)] = []
    while engine.has_unfinished_requests:
        for event in engine.step():
            if event.token_id is not None:
                found[event.request_id].append(event.token_id)
    return found
