"""Batching by padding, and what it wastes: the baseline that ragged batching removes. (Chapter 5)

A rectangle needs rows of equal length, so short rows are filled with padding on the left. *Static* batching keeps
a group until its longest answer is done; *dynamic* batching lets finished rows leave and new prompts join, and then
pads everybody who is decoding to the newcomer's prompt. Both run here on the same model, cache and sampler as
the engine, so that only the padding differs, and every slot is counted as useful or wasted.

Letters: B rows, W width of the rectangle, K longest context, H query heads, Hkv KV heads, D head size.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from minicb.batch import Batch
from minicb.cache import DUMMY_PAGE, KVCache, SlotPool
from minicb.metrics import StepRecord, count_cells, make_entry
from minicb.model import Attend, Model
from minicb.outputs import RequestOutput, make_output
from minicb.request import Request
from minicb.sampling import sample
from minicb.seams import seam

PAD_ID = 0  # any id will do: nobody may look at it


@seam("5.1")
def left_pad(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Fill short rows on the left, so that every row ends with its newest token.

    returns: ids int64 [B, W], and bool [B, W]: True where a token is real
    """
    width = max(map(len, rows))
    ids = torch.tensor([[pad_id] * (width - len(row)) + list(row) for row in rows])
    real = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])
    return ids, real


@seam("5.2")
def padded_positions(real: Tensor, start: Tensor) -> Tensor:
    """Position of each token in its own sequence; padding does not count, and gets 0.

    real: bool [B, W]   start: int64 [B], tokens of each row that are in the cache already
    returns: int64 [B, W]
    """
    count = real.cumsum(dim=1)  # real tokens of the row up to here, this one included
    positions = start[:, None] + count - 1
    return positions.masked_fill(~real, 0)


@seam("5.4")
def newest_rows(real: Tensor) -> Tensor:
    """Where each sequence's newest token stands in the flattened rectangle: the rows whose logits are read.

    real: bool [B, W], True where a token is real, wherever the padding is
    returns: int64 [M], one for each sequence that has a real token, in order
    """
    rows, width = real.shape
    places = torch.where(real, torch.arange(width), -1).amax(dim=1)  # -1: nothing but padding
    return (torch.arange(rows) * width + places)[places >= 0]


class PaddedAttention:
    """Attention over a rectangle: every row computes W x K scores, its padding included."""

    def bind(self, batch: Batch, cache: KVCache) -> Attend:
        rows, width = len(batch.kv_len), batch.max_new
        places = torch.arange(batch.max_kv, device=batch.tokens.device)
        # Beyond its own context a row repeats its newest key: a hidden NaN times a weight of 0 is still NaN.
        own = torch.minimum(places, batch.kv_len[:, None] - 1)  # [B, K]
        slots = (batch.page_table[:, :1].long() * cache.page_size + own).flatten()  # [B*K]
        positions = batch.positions.view(rows, width)

        def attend_layer(layer: int, window: int | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            cache.write(layer, batch.slots, k, v)
            return rectangle_attention(q, *cache.read(layer, slots), rows, self.mask(positions, places, window))

        return attend_layer

    def mask(self, positions: Tensor, places: Tensor, window: int | None) -> Tensor:
        """Who may look at whom in each row. Padding stands at position 0 and sees key 0: no query is left with none.

        positions: int64 [B, W]   places: int64 [K], where the keys stand   returns: bool [B, W, K]
        """
        seen = places <= positions[..., None]
        return seen if window is None else seen & (places > positions[..., None] - window)


def rectangle_attention(q: Tensor, k: Tensor, v: Tensor, rows: int, seen: Tensor | None) -> Tensor:
    """Torch's fused attention over `rows` rows of equal width and context.

    The query heads that share a KV head become more queries of it, [B, Hkv, group*W, D]: on a CPU several times
    faster than SDPA's own `enable_gqa`.

    q: [B*W, H, D]   k, v: [B*K, Hkv, D]   seen: bool [B, W, K], None where all is visible   returns: [B*W, H, D]
    """
    heads, kv_heads, size = q.shape[1], k.shape[1], q.shape[2]
    group = heads // kv_heads
    folded = q.view(rows, -1, kv_heads, group, size).permute(0, 2, 3, 1, 4).reshape(rows, kv_heads, -1, size)
    keys = k.view(rows, -1, kv_heads, size).transpose(1, 2)
    values = v.view(rows, -1, kv_heads, size).transpose(1, 2)
    mask = None if seen is None else seen.repeat(1, group, 1)[:, None]
    out = F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask)
    return out.view(rows, kv_heads, group, -1, size).permute(0, 3, 1, 2, 4).reshape(-1, heads, size)


class PaddedRunner:
    """Runs requests in left-padded rectangles of at most `batch_size` rows, prompts whole."""

    def __init__(
        self,
        model: Model,
        *,
        kind: Literal["static", "dynamic"] = "static",
        batch_size: int = 8,
        max_model_len: int = 2048,
        clock: Callable[[], float] = time.perf_counter,
        on_step: Callable[[StepRecord], None] | None = None,
    ) -> None:
        self.model, self.kind, self.batch_size, self.clock, self.on_step = model, kind, batch_size, clock, on_step
        self.pool = SlotPool(batch_size, max_model_len)
        self.cache = KVCache(model.config, batch_size + 1, max_model_len, model.device, model.dtype)
        self.attention = PaddedAttention()
        self.records: list[StepRecord] = []

    @torch.inference_mode()
    def run(self, requests: Sequence[Request]) -> list[RequestOutput]:
        """Run them all to their ends, in order. Returns one output for each.

        Raises ValueError if one is longer than max_model_len, or if two share an id.
        """
        for request in requests:
            if request.max_total_tokens > self.pool.page_size:
                need = f"request {request.request_id!r} may grow to {request.max_total_tokens} tokens"
                raise ValueError(f"{need}: max_model_len is {self.pool.page_size}")
        if len({request.request_id for request in requests}) < len(requests):
            raise ValueError("two requests have the same request_id")
        queue, rows = deque(requests), list[Request]()
        try:
            while queue or not all(row.finished for row in rows):
                rows = self.refill(rows, queue)
                self.step(rows, queue)
        finally:  # also after a fault or an interrupt, so that the next run finds its slots free
            for request in requests:
                self.pool.release(request.request_id)
        return [make_output(request) for request in requests]

    def refill(self, rows: list[Request], queue: deque[Request]) -> list[Request]:
        """Static: a new group when all of the old one are done. Dynamic: a new row for each one that is done."""
        if self.kind == "static" and not all(row.finished for row in rows):
            return rows
        for row in rows:
            if row.finished:
                self.pool.release(row.request_id)
        rows = [row for row in rows if not row.finished]
        while queue and len(rows) < self.batch_size:
            request = queue.popleft()
            self.pool.reserve(request.request_id, request.max_total_tokens)
            request.first_scheduled_s = self.clock()
            rows.append(request)
        return rows

    def step(self, rows: list[Request], queue: deque[Request]) -> None:
        """Feed every unfinished row its uncomputed tokens, in one rectangle."""
        began = self.clock()
        starts = [row.num_computed_tokens for row in rows]
        chunks = [[] if row.finished else row.tokens[start:] for row, start in zip(rows, starts, strict=True)]
        batch = self.make_rectangle(rows, chunks)
        hidden = self.model(batch, self.cache, self.attention)
        live = [row for row in rows if not row.finished]
        sampled = sample(self.model.logits(hidden[batch.sample_at]), live)
        now = self.clock()
        for row, result in zip(live, sampled, strict=True):
            row.num_computed_tokens = len(row.tokens)
            if isinstance(result, Exception):
                row.fail(result, now)
                row.last_words()  # so that the text ends as it does in the engine
            else:
                row.take(result, now)
        self.record(rows, starts, [len(chunk) for chunk in chunks], batch, queue, (began, now))

    def pad(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """ids and real, both [B, W]: the one place that decides on which side the padding is."""
        return left_pad(rows, PAD_ID)

    def make_rectangle(self, rows: list[Request], chunks: list[list[int]]) -> Batch:
        """A `Batch` whose rows are all equally long. Padding writes to the dummy page."""
        ids, real = self.pad(chunks)
        positions = padded_positions(real, torch.tensor([row.num_computed_tokens for row in rows]))
        pages = torch.tensor([self.pool.pages(row.request_id) for row in rows])
        slots = (pages * self.pool.page_size + positions).masked_fill(~real, DUMMY_PAGE)
        width, kv_len = ids.shape[1], [max(1, len(row.tokens)) for row in rows]
        device = self.model.device
        return Batch(
            tokens=ids.flatten().to(device),
            positions=positions.flatten().to(device),
            slots=slots.flatten().to(device),
            q_start=(torch.arange(len(rows) + 1) * width).to(device, torch.int32),
            kv_len=torch.tensor(kv_len, dtype=torch.int32, device=device),
            page_table=pages.to(device, torch.int32),
            sample_at=newest_rows(real).to(device),
            max_new=width,
            max_kv=max(kv_len),
        )

    def record(
        self, rows: list[Request], starts: list[int], new: list[int], batch: Batch, queue: deque[Request],
        times: tuple[float, float],
    ) -> None:  # fmt: skip
        width = batch.max_new
        arrived = [] if self.records else [*rows, *queue]
        record = StepRecord(
            step=len(self.records),
            entries=tuple(
                make_entry(row, start, n, padding=width - n, sampled=n > 0)
                for row, start, n in zip(rows, starts, new, strict=True)
            ),
            arrived=tuple(r.request_id for r in arrived),
            finished=tuple(
                (r.request_id, r.finish_reason or "") for r, n in zip(rows, new, strict=True) if n and r.finished
            ),
            num_waiting=len(queue),
            token_slots=len(rows) * width,
            useful_slots=sum(new),
            score_cells=len(rows) * width * batch.max_kv,
            useful_cells=sum(count_cells(start, n)[1] for start, n in zip(starts, new, strict=True)),
            cache_tokens=sum(row.num_computed_tokens for row in rows),
            cache_capacity=self.pool.num_pages * self.pool.page_size,
            start_s=times[0],
            duration_s=times[1] - times[0],
        )
        self.records.append(record)
        if self.on_step is not None:
            self.on_step(record)
