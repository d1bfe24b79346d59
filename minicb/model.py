"""A Llama-family decoder that knows only ragged tokens.

The model sees one row of T tokens and their positions. Which request a token belongs to, where its keys
are kept and whom it may look at is the business of the attention that it is handed. All other work
(norms, projections, the MLP) is done token by token, which is why requests of any length can share a step.

Covers Llama (SmolLM2), Qwen2, Qwen3 and Mistral: they differ in biases, q/k norms, rope scaling and
sliding windows, all of which are fields of `ModelConfig`.

Letters: T new tokens, H query heads, Hkv KV heads, D head size, E hidden size, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minicb.attention import merge_heads, split_heads

if TYPE_CHECKING:  # names for the reader; the model uses them only through what it is handed
    from minicb.batch import Batch
    from minicb.cache import KVCache
    from minicb.reference import Attention

# (layer, sliding window or None, q [T,H,D], k [T,Hkv,D], v [T,Hkv,D]) -> [T,H,D]
Attend = Callable[[int, int | None, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary position embedding: the base, and how its frequencies are stretched for long contexts."""

    theta: float
    kind: str = "default"  # default | linear | llama3
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 8192


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The numbers that define a decoder. Sizes are in elements, windows in tokens."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope: RopeConfig
    max_position_embeddings: int
    norm_eps: float = 1e-5
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    tied_head: bool = True
    windows: tuple[int | None, ...] = ()  # one a layer; empty = full attention everywhere
    end_ids: frozenset[int] = field(default_factory=frozenset)  # every id that ends an answer

    def window(self, layer: int) -> int | None:
        return self.windows[layer] if self.windows else None


def rope_frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """Angle per position for each pair of dimensions: float32 [D/2]. Source: RoFormer (2021), section 3.4.2;
    the `llama3` stretch: Llama 3.1, which slows low frequencies and blends in between."""
    freqs = 1.0 / rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    if rope.kind == "linear":
        return freqs / rope.factor
    if rope.kind == "llama3":
        wavelength = 2 * math.pi / freqs
        turns = rope.original_max_position / wavelength
        blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
        blend = blend.clamp(0, 1)  # 0: a slow pair, stretched whole; 1: a fast pair, left alone
        return (1 - blend) * freqs / rope.factor + blend * freqs
    return freqs


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (i, i + D/2) of every head by its token's angle.

    x: [T, heads, D]   cos, sin: [T, 1, D/2]   returns: [T, heads, D]
    """
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last dimension (Zhang & Sennrich 2019)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class SelfAttention(nn.Module):
    """Project, rotate, let the given attention look around, project back."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        c = config
        self.layer, self.window = layer, c.window(layer)
        self.num_heads, self.num_kv_heads = c.num_heads, c.num_kv_heads
        self.sizes = [c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim, c.num_kv_heads * c.head_dim]
        self.qkv = nn.Linear(c.hidden_size, sum(self.sizes), bias=c.qkv_bias)  # one product instead of three
        self.out = nn.Linear(self.sizes[0], c.hidden_size, bias=c.output_bias)
        self.q_norm = RMSNorm(c.head_dim, c.norm_eps) if c.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(c.head_dim, c.norm_eps) if c.qk_norm else nn.Identity()

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        q, k, v = self.qkv(x).split(self.sizes, dim=-1)  # [T, H*D], [T, Hkv*D], [T, Hkv*D]
        q = rotate(self.q_norm(split_heads(q, self.num_heads)), cos, sin)
        k = rotate(self.k_norm(split_heads(k, self.num_kv_heads)), cos, sin)
        mixed = attend(self.layer, self.window, q, k, split_heads(v, self.num_kv_heads))
        return self.out(merge_heads(mixed))  # type: ignore[no-any-return]


class MLP(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x)), with gate and up as one product."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        c = config
        self.gate_up = nn.Linear(c.hidden_size, 2 * c.intermediate_size, bias=c.mlp_bias)
        self.down = nn.Linear(c.intermediate_size, c.hidden_size, bias=c.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)  # type: ignore[no-any-return]


class Layer(nn.Module):
    """Look around, then think: each adds to the token's row."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.attention = SelfAttention(config, layer)
        self.mlp_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin, attend)
        return x + self.mlp(self.mlp_norm(x))  # type: ignore[no-any-return]


class Model(nn.Module):
    """Tokens in, hidden states out; logits only for the rows that somebody will read."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tied_head:
            self.head.weight = self.embed.weight
        self.frequencies: Tensor | None = None  # [D/2] float32 on the model's device, made at first use

    @property
    def device(self) -> torch.device:
        return self.embed.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embed.weight.dtype

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin of every token's angles. positions: int [T]; returns two [T, 1, D/2] of the model's type."""
        if self.frequencies is None or self.frequencies.device != positions.device:
            self.frequencies = rope_frequencies(self.config.rope, self.config.head_dim).to(positions.device)
        turns = positions.float()[:, None, None] * self.frequencies  # float32: half types lose far positions
        return turns.cos().to(self.dtype), turns.sin().to(self.dtype)

    def forward(self, batch: Batch, cache: KVCache, attention: Attention) -> Tensor:
        """Compute every new token of the step; writes their keys and values into the cache.

        returns: hidden states [T, E]
        """
        attend = attention.bind(batch, cache)  # what depends on the batch alone is worked out once a step
        cos, sin = self.angles(batch.positions)
        x = self.embed(batch.tokens)
        for layer in self.layers:
            x = layer(x, cos, sin, attend)
        return self.norm(x)  # type: ignore[no-any-return]

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden: [M, E] -> [M, V], in float32 at least: choosing is then exact, and on a CPU several times faster."""
        logits: Tensor = self.head(hidden)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))
