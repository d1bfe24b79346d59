"""The decoder once more, plainly: dense, one head at a time, in float64 and numpy, without a cache or a batch.

It shares nothing with the core but the names of the weights. Rotary positions are complex numbers here.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Sequence

import numpy as np

from minicb.model import Model

LogitsOf = Callable[[Sequence[int]], np.ndarray]  # ids -> what the model says after each prefix, [len(ids), V]


def dense_logits(model: Model) -> LogitsOf:
    """What `model` says after each prefix."""
    c = model.config
    w = {name: p.detach().double().numpy() for name, p in model.named_parameters(remove_duplicate=False)}

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + c.norm_eps) * w[name + ".weight"]

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[name + ".weight"].T + w.get(name + ".bias", 0.0)

    def attention(x: np.ndarray, layer: int) -> np.ndarray:
        own, d, n = f"layers.{layer}.attention", c.head_dim, len(x)
        heads = linear(x, own + ".qkv").reshape(n, -1, d)
        turns = np.array([[cmath.exp(1j * place * f) for f in frequencies(model)] for place in range(n)])
        distance = np.arange(n)[:, None] - np.arange(n)[None, :]
        window = c.windows[layer] if c.windows else None
        seen = (distance >= 0) & (distance < (window or n + 1))
        mixed = []
        for h in range(c.num_heads):
            kv = c.num_heads + h // (c.num_heads // c.num_kv_heads)
            q, k, v = heads[:, h], heads[:, kv], heads[:, kv + c.num_kv_heads]
            if c.qk_norm:
                q, k = norm(q, own + ".q_norm"), norm(k, own + ".k_norm")
            scores = np.where(seen, turned(q, turns) @ turned(k, turns).T / math.sqrt(d), -np.inf)
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            # Who sees a NaN key has NaN shares; for the others its NaN value does not count, not even times 0.
            mixed.append(shares / shares.sum(-1, keepdims=True) @ np.nan_to_num(v))
        return linear(np.concatenate(mixed, -1), own + ".out")

    def logits_of(ids: Sequence[int]) -> np.ndarray:
        with np.errstate(invalid="ignore", over="ignore"):  # a request may have NaN of its own
            x = w["embed.weight"][list(ids)]
            for i in range(c.num_layers):
                x = x + attention(norm(x, f"layers.{i}.attention_norm"), i)
                gate, up = np.split(linear(norm(x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp.gate_up"), 2, -1)
                x = x + linear(gate / (1 + np.exp(-gate)) * up, f"layers.{i}.mlp.down")
            return np.asarray(norm(x, "norm") @ w["head.weight"].T)

    return logits_of


def turned(x: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Dimensions i and i + D/2 are one complex number, turned by its token's angle."""
    half = x.shape[-1] // 2
    z = (x[:, :half] + 1j * x[:, half:]) * turns
    return np.concatenate([z.real, z.imag], -1)


def frequencies(model: Model) -> list[float]:
    """Angle a position for each pair, with the two stretches that checkpoints ask for."""
    rope, d = model.config.rope, model.config.head_dim
    plain = [rope.theta ** (-2 * i / d) for i in range(d // 2)]
    if rope.kind == "linear":
        return [f / rope.factor for f in plain]
    if rope.kind == "default":
        return plain
    low, high = rope.low_freq_factor, rope.high_freq_factor
    turns = [rope.original_max_position * f / (2 * math.pi) for f in plain]
    fast = [min(1.0, max(0.0, (t - low) / (high - low))) for t in turns]
    return [b * f + (1 - b) * f / rope.factor for f, b in zip(plain, fast, strict=True)]
