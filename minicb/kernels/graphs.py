"""Decode steps that are recorded once and replayed: CUDA graphs.

    GraphedModel(model)      the same weights; a step in which everybody writes one token is a replay

A decode step of a small model is a few hundred kernels of a few microseconds each: Python takes longer to launch them
than the device to run them. A CUDA graph holds the launches of a whole step, and one call replays all of it. The price:
a replay repeats what was recorded, every address and every host number. So

- the step's tensors are fixed buffers, filled before each replay;
- there is a recording for each *bucket* of batch sizes (1, 2, 4, 8, ...); a batch is padded up to its bucket by rows
  that are requests of one token on the dummy page, which nobody reads;
- only steps of decodes are replayed, through a back end whose launches depend on nothing but the number of rows
  (`capturable`). Every other step takes the plain way, so nothing above knows that this file exists.

A recording is made when its bucket is first needed, and lives as long as the cache that it writes to.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from minicb.batch import Batch
from minicb.cache import DUMMY_PAGE, KVCache
from minicb.model import Model
from minicb.reference import Attention

MAX_ROWS = 512  # a larger batch keeps the device busy without help

Work = Callable[[], Tensor]
Recorder = Callable[[Work], Work]  # runs the work once and returns what repeats it; the result is always in one place


class GraphedModel(Model):
    """A model that replays its decode steps. It shares the parts of the model that it is made from."""

    def __init__(self, model: Model, record: Recorder | None = None) -> None:
        torch.nn.Module.__init__(self)
        vars(self).update(vars(model))
        self.record = record or Graphs(model.device).record
        self.recorded: WeakKeyDictionary[KVCache, dict[tuple[int, int, type], DecodeStep]] = WeakKeyDictionary()
        self.broken = False

    def forward(self, batch: Batch, cache: KVCache, attention: Attention) -> Tensor:
        if self.broken or not can_replay(batch, attention):
            return super().forward(batch, cache, attention)
        size, width = round_up(len(batch.tokens)), round_up(batch.page_table.shape[1])
        steps, key = self.recorded.setdefault(cache, {}), (size, width, type(attention))
        if key not in steps:
            plain, page_size = super().forward, cache.page_size
            step = DecodeStep(size, width, page_size, batch.tokens.device)
            step.fill(batch)
            try:
                step.replay = self.record(lambda: plain(step.batch, cache, attention))
            except RuntimeError as error:
                self.broken = True
                warnings.warn(f"decode steps go on without CUDA graphs: {error}", RuntimeWarning, stacklevel=2)
                return super().forward(batch, cache, attention)
            steps[key] = step
        return steps[key].run(batch)


def can_replay(batch: Batch, attention: Attention) -> bool:
    """Does everybody write one token, through a back end that can be recorded? And is no gradient asked for?"""
    decodes = batch.max_new == 1 and len(batch.tokens) <= MAX_ROWS
    return decodes and getattr(attention, "capturable", False) and torch.is_inference_mode_enabled()


def round_up(n: int) -> int:
    """The next power of two: 1, 2, 4, 8, ..."""
    return 1 << (n - 1).bit_length()


class DecodeStep:
    """One recording: its fixed buffers, how to fill them, how to run it."""

    replay: Work

    def __init__(self, size: int, width: int, page_size: int, device: torch.device) -> None:
        self.filled = 0  # rows that hold requests
        self.batch = Batch(
            tokens=torch.zeros(size, dtype=torch.int64, device=device),
            positions=torch.zeros(size, dtype=torch.int64, device=device),
            slots=torch.full((size,), DUMMY_PAGE * page_size, dtype=torch.int64, device=device),
            q_start=torch.arange(size + 1, dtype=torch.int32, device=device),
            kv_len=torch.ones(size, dtype=torch.int32, device=device),
            page_table=torch.full((size, width), DUMMY_PAGE, dtype=torch.int32, device=device),
            sample_at=torch.arange(size, device=device),
            max_new=1,
            max_kv=width * page_size,  # the longest that these tables can hold, whatever was there at recording
        )
        self.padding = replace(self.batch, **{name: getattr(self.batch, name).clone() for name in FILLED})

    def fill(self, batch: Batch) -> None:
        """Put the requests into the first rows, and padding over those that the last batch had more."""
        rows, width = batch.page_table.shape
        for name in FILLED:
            buffer = getattr(self.batch, name)
            if rows < self.filled:
                buffer[rows : self.filled] = getattr(self.padding, name)[rows : self.filled]
            (buffer[:rows, :width] if name == "page_table" else buffer[:rows]).copy_(getattr(batch, name))
        self.filled = rows

    def run(self, batch: Batch) -> Tensor:
        """returns: hidden states [N, E], a copy: the next replay overwrites its own"""
        self.fill(batch)
        return self.replay()[: self.filled].clone()


FILLED = ("tokens", "positions", "slots", "kv_len", "page_table")  # q_start is always 0, 1, 2 ...


class Graphs:
    """Records on a CUDA device. All recordings of a model share one pool of memory: only one runs at a time."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.pool: Any = None

    def record(self, work: Work) -> Work:
        with torch.cuda.device(self.device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                work()  # compiles kernels and allocates workspaces, which may not happen during a recording
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
                out = work()
            self.pool = self.pool or graph.pool()

        def replay() -> Tensor:
            graph.replay()
            return out

        return replay
