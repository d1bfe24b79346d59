"""A fake model whose next token is a hash of the history as it is read back from the cache.

It stores each id with its position in a key row, and their negatives in the value row; then it reads the history
of every request through the step's own slots, tables, lengths and row borders. A fault in any of them changes the
hash, and with it the next token. Everything is integer arithmetic in float64, so nothing is ever rounded.

The same hash without a cache is `history_hashes`: the whole oracle of a scripted request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from minicb.batch import Batch
from minicb.cache import KVCache
from minicb.model import ModelConfig, RopeConfig

Words = np.ndarray  # uint64: sums wrap around, which is what a hash wants
ID, POSITION, PLACE, ROW, LOGIT = (
    np.uint64(n)
    for n in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F)
)


class PoisonRead(AssertionError):  # noqa: N818 - reads as what happened
    """The step reads a cache slot that nobody has written for this request."""


@dataclass(frozen=True, slots=True)
class Script:
    """How the hash becomes logits."""

    peak: float = 0.0  # added to one token's logit: 10 makes it nearly certain, 0 leaves a flat choice
    nan_one_in: int = 0  # one history in so many has no finite logits: a fault of that request alone; 0 = never


def scripted_config(vocab_size: int, max_positions: int, end_ids: frozenset[int] = frozenset()) -> ModelConfig:
    """One layer, one head, room for an id and a position."""
    return ModelConfig(
        vocab_size=vocab_size, hidden_size=1, intermediate_size=1, num_layers=1, num_heads=1, num_kv_heads=1,
        head_dim=2, rope=RopeConfig(theta=1.0), max_position_embeddings=max_positions, end_ids=end_ids,
    )  # fmt: skip


class ScriptedModel:
    """Behaves like `minicb.model.Model` as far as an engine can tell."""

    def __init__(self, config: ModelConfig, script: Script | None = None) -> None:
        self.config, self.script = config, script or Script()
        self.device, self.dtype = torch.device("cpu"), torch.float64

    def __call__(self, batch: Batch, cache: KVCache, attention: object) -> Tensor:  # noqa: ARG002 - it needs none
        """Write the new tokens, read everything back. returns: [T, 1], each row's hash"""
        keys = torch.stack([batch.tokens, batch.positions], dim=-1).double()[:, None]
        cache.write(0, batch.slots, keys, -keys)
        prefix, first = self.read_back(batch, cache)
        starts, kv_len = batch.q_start.numpy().astype(np.int64), batch.kv_len.numpy().astype(np.int64)
        counts = np.diff(starts)
        owner = np.repeat(np.arange(len(counts)), counts)
        position = batch.positions.numpy()
        expected = kv_len[owner] - (starts[1:][owner] - np.arange(len(owner)))  # if the row borders are right
        if (position < 0).any() or (position >= kv_len[owner]).any():
            raise PoisonRead("a position lies outside its request's context")
        hashes = row_hash(prefix[first[owner] + position + 1] - prefix[first[owner]], expected)
        return torch.from_numpy((hashes >> np.uint64(11)).astype(np.float64))[:, None]

    def read_back(self, batch: Batch, cache: KVCache) -> tuple[Words, np.ndarray]:
        """Running sums of every request's history, end to end, and where each request begins."""
        kv_len = batch.kv_len.numpy().astype(np.int64)
        first = np.concatenate([[0], np.cumsum(kv_len)])
        owner = np.repeat(np.arange(len(kv_len)), kv_len)
        place = np.arange(first[-1]) - first[owner]
        pages = batch.page_table.numpy()[owner, place // cache.page_size]
        slots = torch.from_numpy(pages.astype(np.int64) * cache.page_size + place % cache.page_size)
        keys, values = (rows.numpy()[:, 0] for rows in cache.read(0, slots))
        if np.isnan(keys).any() or not (values == -keys).all():
            raise PoisonRead("a request reads a slot that it has not written")
        terms = token_hash(keys[:, 0].astype(np.uint64), keys[:, 1].astype(np.uint64), place)
        return np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)]), first

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden: [M, 1] -> [M, V]"""
        return torch.from_numpy(script_logits(hidden.numpy()[:, 0], self.config.vocab_size, self.script))


def token_hash(ids: Words, positions: Words, places: np.ndarray) -> Words:
    """One term a token: what it is, what its position was said to be, where it lies in the history."""
    return scramble(ids * ID + positions * POSITION + places.astype(np.uint64) * PLACE + LOGIT)


def row_hash(prefix: Words, position: np.ndarray) -> Words:
    return scramble(prefix + position.astype(np.uint64) * ROW)


def scramble(x: Words) -> Words:
    """The SplitMix64 finaliser (Steele, Lea & Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def script_logits(hashes: np.ndarray, vocab_size: int, script: Script) -> np.ndarray:
    """float32 [M, V] from M hashes: quarters from 0 to 3.75, so that softmax has something to choose from."""
    words = hashes.astype(np.uint64)
    noise = scramble(words[:, None] * LOGIT + np.arange(vocab_size, dtype=np.uint64) * ID) >> np.uint64(60)
    logits = noise.astype(np.float32) / 4
    logits[np.arange(len(words)), (words % np.uint64(vocab_size)).astype(np.int64)] += script.peak
    if script.nan_one_in:
        logits[(words >> np.uint64(8)) % np.uint64(script.nan_one_in) == 0] = np.nan
    return logits


def history_logits(ids: Sequence[int], vocab_size: int, script: Script) -> np.ndarray:
    """What the scripted model must say after each prefix of this history: float32 [len(ids), V]. No cache."""
    places = np.arange(len(ids))
    terms = token_hash(np.array(ids, np.uint64), places.astype(np.uint64), places)
    hashes = row_hash(np.cumsum(terms, dtype=np.uint64), places) >> np.uint64(11)
    return script_logits(hashes.astype(np.float64), vocab_size, script)
