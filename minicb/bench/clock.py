"""A clock that counts tokens instead of seconds, so that latencies are the same on every machine."""

from __future__ import annotations

from minicb.batch import Batch
from minicb.cache import KVCache
from minicb.model import Attend
from minicb.reference import ReferenceAttention


class TokenClock:
    """The time on a machine that needs one tick for a token, and `per_step` ticks more for each step.

    It is an attention back end too, as that is where a step's tokens can be seen:
    `clock = TokenClock(); Engine(model, attention=clock, clock=clock.now)`.
    """

    def __init__(self, per_step: int = 0) -> None:
        self.per_step, self.ticks = per_step, 0

    def now(self) -> float:
        return float(self.ticks)

    def bind(self, batch: Batch, cache: KVCache) -> Attend:
        self.ticks += self.per_step + len(batch.tokens)
        return ReferenceAttention().bind(batch, cache)
