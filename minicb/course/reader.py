"""One text and its cache, by hand: the model as a function from new tokens to the next one. (Chapter 3)

    reader = Reader()
    first = reader.read([3, 1, 4, 1, 5])     reads five tokens, keeps their keys and values
    second = reader.read([first])            reads one token, looks at all six

An engine does the same for many texts at once (chapters 06 and 07). Here there is one, so that the loop around it can
stand in a notebook. Its attention is the plain one, made of the parts that are installed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from minicb.batch import Batch
from minicb.cache import KVCache
from minicb.course.tiny import model as tiny_model
from minicb.model import Model
from minicb.reference import ReferenceAttention
from minicb.request import positions_of
from minicb.sampling import greedy_pick

PAGE = 1  # the reader's own; page 0 is the dummy


class Reader:
    """Reads one text, in pieces of any size.

    model: default the tiny random one of the checks   room: tokens that fit   shift: added to every position
    passes: a list that gets (tokens in the cache, new tokens) at each reading, if you want to count
    """

    def __init__(
        self,
        model: Model | None = None,
        *,
        room: int = 64,
        shift: int = 0,
        passes: list[tuple[int, int]] | None = None,
    ) -> None:
        self.model = model or tiny_model()
        self.cache = KVCache(self.model.config, PAGE + 1, room, self.model.device, self.model.dtype)
        self.room, self.shift, self.length = room, shift, 0
        self.passes: list[tuple[int, int]] = [] if passes is None else passes

    @torch.inference_mode()
    def read(self, ids: Sequence[int]) -> int:
        """Compute these tokens, and nothing else; returns the token that comes next, by the greedy choice."""
        start, end = self.length, self.length + len(ids)
        if not ids or end > self.room:
            raise ValueError(f"cannot read {len(ids)} tokens after {start}: at least 1, and room is {self.room} in all")
        positions = [self.shift + place for place in positions_of(start, len(ids))]
        batch = Batch(
            tokens=torch.tensor(ids),
            positions=torch.tensor(positions),
            slots=torch.arange(start, end) + PAGE * self.room,
            q_start=torch.tensor([0, len(ids)], dtype=torch.int32),
            kv_len=torch.tensor([end], dtype=torch.int32),
            page_table=torch.tensor([[PAGE]], dtype=torch.int32),
            sample_at=torch.tensor([len(ids) - 1]),
            max_new=len(ids),
            max_kv=end,
        )
        hidden = self.model(batch, self.cache, ReferenceAttention())
        self.passes.append((start, len(ids)))
        self.length = end
        return int(greedy_pick(self.model.logits(hidden[-1:]))[0])
