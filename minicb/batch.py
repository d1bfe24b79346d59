"""From a plan to one ragged row: the new tokens of all requests, end to end, without padding. (Chapter 6)

A `Plan` says who runs and how many tokens each; a `Batch` is the same in tensors, ready for the model. Beside
the tokens the batch says where each request begins, where its keys and values go and are found, and which
rows somebody will sample. It is an argument, never a global: two engines live happily in one process.

Letters: T new tokens in the step, N requests, P pages a request, M rows that are sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from minicb.cache import DUMMY_PAGE, Pool, in_one_copy
from minicb.request import Request, next_span, positions_of
from minicb.seams import seam


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next `num_new` uncomputed tokens of one request."""

    request: Request
    start: int  # position of the first of them
    num_new: int
    samples: bool  # does it end with the last token that the request holds, so that the next can be sampled?

    @property
    def end(self) -> int:
        return self.start + self.num_new

    @property
    def token_ids(self) -> list[int]:
        return self.request.tokens[self.start : self.end]


def next_tokens(request: Request, budget: int) -> Chunk:
    """The chunk to compute now: as many of the request's uncomputed tokens as the budget allows."""
    start, end, samples = next_span(len(request.tokens), request.num_computed_tokens, budget)
    return Chunk(request, start, end - start, samples)


@dataclass(frozen=True, slots=True)
class Plan:
    """Who runs in this step, in the order of the ragged row."""

    chunks: tuple[Chunk, ...] = ()

    def __len__(self) -> int:
        return len(self.chunks)

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self.chunks)

    @property
    def num_tokens(self) -> int:
        return sum(chunk.num_new for chunk in self.chunks)

    @property
    def sampled(self) -> list[Request]:
        """The requests whose logits are read, in the order of `Batch.sample_at`."""
        return [chunk.request for chunk in self.chunks if chunk.samples]


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's ragged row. Everything that attention needs to know about requests stands here."""

    tokens: Tensor  # [T]   int64  new tokens of all requests, packed
    positions: Tensor  # [T]   int64  index of each token in its own request
    slots: Tensor  # [T]   int64  where its K/V row is written
    q_start: Tensor  # [N+1] int32  where each request's new tokens begin
    kv_len: Tensor  # [N]   int32  context after this step = num_computed + num_new
    page_table: Tensor  # [N,P] int32  padded with the dummy page, never -1
    sample_at: Tensor  # [M]   int64  rows whose logits somebody will read
    max_new: int  # launch bounds only, never semantics
    max_kv: int

    def to(self, device: torch.device) -> Batch:
        """The same on another device."""
        if self.tokens.device == device:
            return self
        names = [f.name for f in fields(self) if isinstance(getattr(self, f.name), Tensor)]
        moved: list[Any] = in_one_copy([getattr(self, name) for name in names], device)
        return replace(self, **dict(zip(names, moved, strict=True)))


@seam("6.1")
def concatenate(chunks: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Lay the chunks of all requests end to end.

    chunks: a list of numbers for each request
    returns: the row, and where each chunk begins in it, with the total at the end
    """
    row, starts = list[int](), [0]
    for chunk in chunks:
        row += chunk
        starts.append(len(row))
    return row, starts


@seam("6.3")
def rows_to_sample(q_start: Sequence[int], samples: Sequence[bool]) -> list[int]:
    """The rows whose logits are read: the last one of each chunk that reaches its request's end.

    q_start: [N+1] where each chunk begins   samples: [N] does it end with its request's last token?
    """
    return [end - 1 for end, wanted in zip(q_start[1:], samples, strict=True) if wanted]


def slots_of(pages: Sequence[int], page_size: int, start: int, end: int) -> list[int]:
    """Cache slots of positions start..end of a request that owns these pages."""
    return [pages[i // page_size] * page_size + i % page_size for i in range(start, end)]


def pack(plan: Plan, pool: Pool, device: torch.device) -> Batch:
    """Make the plan's tensors. One copy to the device for all; no value comes back."""
    tables = [pool.pages(chunk.request.request_id) for chunk in plan]
    tokens, q_start = concatenate([chunk.token_ids for chunk in plan])
    positions, _ = concatenate([positions_of(chunk.start, chunk.num_new) for chunk in plan])
    parts = zip(tables, plan, strict=True)
    slots, _ = concatenate([slots_of(pages, pool.page_size, chunk.start, chunk.end) for pages, chunk in parts])
    width = max(map(len, tables))
    rows = [pages + [DUMMY_PAGE] * (width - len(pages)) for pages in tables]

    batch = Batch(
        tokens=torch.tensor(tokens),
        positions=torch.tensor(positions),
        slots=torch.tensor(slots),
        q_start=torch.tensor(q_start, dtype=torch.int32),
        kv_len=torch.tensor([chunk.end for chunk in plan], dtype=torch.int32),
        page_table=torch.tensor(rows, dtype=torch.int32),
        sample_at=torch.tensor(rows_to_sample(q_start, [chunk.samples for chunk in plan]), dtype=torch.int64),
        max_new=max(chunk.num_new for chunk in plan),
        max_kv=max(chunk.end for chunk in plan),
    )
    return batch.to(device)
