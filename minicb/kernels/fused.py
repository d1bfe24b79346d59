"""A layer for CPUs: weights packed once, and what surrounds each product folded into it.

    speed_up(model)      replaces the model's layers and its head, in place

oneDNN multiplies faster when a weight lies in memory in the order in which the product reads it. torch does this
for compiled models only, so `Packed` asks for it by name; where this torch or this CPU cannot, it is the plain
`F.linear`. The same products can add the residual, apply SiLU, or multiply by the other half of the MLP while
their result is still in the cache: a layer is then a dozen calls instead of thirty.

Everything here computes what `minicb/model.py` says, in another order of rounding.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minicb.model import Attend, Layer, Model, rotate


def speed_up(model: Model, kind: type[FusedLayer] | None = None) -> Model:
    """Replace the layers and the head of a model on a CPU by their packed forms; the old weights are let go."""
    if model.device.type != "cpu":
        return model
    for i, layer in enumerate(model.layers):
        if isinstance(layer, Layer):
            model.layers[i] = (kind or FusedLayer)(layer)
    if isinstance(model.head, nn.Linear):
        model.head = Packed(model.head.weight)  # type: ignore[assignment]
    return model


class Packed(nn.Module):
    """x W^T + b, and optionally what follows it. The weight is in oneDNN's own order where that is possible."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.bias = None if bias is None else bias.detach()
        self.packed = can_pack(weight.dtype)
        self.weight = pack_weight(weight.detach()) if self.packed else weight.detach().clone()

    def forward(self, x: Tensor) -> Tensor:
        """x: [T, in] -> [T, out]"""
        return product(x, self.weight, self.bias, "none") if self.packed else F.linear(x, self.weight, self.bias)

    def silu(self, x: Tensor) -> Tensor:
        """silu(x W^T + b)"""
        if self.packed:
            return product(x, self.weight, self.bias, "swish")
        return F.silu(F.linear(x, self.weight, self.bias))

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """other + x W^T + b.   other: [T, out]"""
        if self.packed:
            return product_with(x, other, self.weight, self.bias, "add")
        return other + F.linear(x, self.weight, self.bias)

    def times(self, x: Tensor, other: Tensor) -> Tensor:
        """other * (x W^T + b).   other: [T, out]"""
        if self.packed:
            return product_with(x, other, self.weight, self.bias, "mul")
        return other * F.linear(x, self.weight, self.bias)


class FusedLayer(nn.Module):
    """What `model.Layer` computes, in as few calls as plain torch allows."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        attention, mlp = layer.attention, layer.mlp
        self.layer, self.window = attention.layer, attention.window
        self.num_heads, self.num_kv_heads = attention.num_heads, attention.num_kv_heads
        self.attention_norm: nn.Module = layer.attention_norm
        self.mlp_norm: nn.Module = layer.mlp_norm
        self.q_norm, self.k_norm = attention.q_norm, attention.k_norm
        self.normed_heads = not isinstance(attention.q_norm, nn.Identity)
        self.qkv = Packed(attention.qkv.weight, attention.qkv.bias)
        self.out = Packed(attention.out.weight, attention.out.bias)
        gate, up = mlp.gate_up.weight.chunk(2)
        gate_bias, up_bias = (None, None) if mlp.gate_up.bias is None else mlp.gate_up.bias.chunk(2)
        self.gate, self.up = Packed(gate, gate_bias), Packed(up, up_bias)
        self.down = Packed(mlp.down.weight, mlp.down.bias)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """x: [T, E]   cos, sin: [T, 1, D/2]   returns: [T, E]"""
        q, k, v = self.heads(self.qkv(self.attention_norm(x)), cos, sin)
        x = self.out.plus(attend(self.layer, self.window, q, k, v).flatten(1), x)
        h = self.mlp_norm(x)
        return self.down.plus(self.up.times(h, self.gate.silu(h)), x)

    def heads(self, qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Cut the joint row into heads; queries and keys are turned together. qkv: [T, (H+2Hkv)*D]"""
        rows = qkv.view(len(qkv), self.num_heads + 2 * self.num_kv_heads, -1)
        if self.normed_heads:
            q, k, v = rows.split((self.num_heads, self.num_kv_heads, self.num_kv_heads), dim=1)
            rows = torch.cat((self.q_norm(q), self.k_norm(k), v), dim=1)
        return self.turn(rows, cos, sin)

    def turn(self, rows: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotate queries and keys. rows: [T, H+2Hkv, D]"""
        turning = self.num_heads + self.num_kv_heads
        q, k = rotate(rows[:, :turning], cos, sin).split((self.num_heads, self.num_kv_heads), dim=1)
        return q, k, rows[:, turning:]


def multiplies_bfloat16() -> bool:
    """Has this processor instructions for bfloat16 products, as far as this torch can tell?"""
    told = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(told.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16"))


# torch's private names for oneDNN's packed products stand below and nowhere else.


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Does this torch, on this CPU, have packed products for the type? Tried out, not looked up."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    try:
        weight, x = torch.ones(2, 2, dtype=dtype), torch.ones(1, 2, dtype=dtype)
        packed = pack_weight(weight)
        plain = product(x, packed, None, "none")
        return bool((plain == 2).all() and (product_with(x, plain, packed, None, "add") == 4).all())
    except (AttributeError, RuntimeError, NotImplementedError):
        return False


def pack_weight(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())  # type: ignore[no-any-return]


def product(x: Tensor, weight: Tensor, bias: Tensor | None, then: str) -> Tensor:
    ops: Any = torch.ops.mkldnn
    return ops._linear_pointwise(x, weight, bias, then, [], "")  # type: ignore[no-any-return]


def product_with(x: Tensor, other: Tensor, weight: Tensor, bias: Tensor | None, then: str) -> Tensor:
    ops: Any = torch.ops.mkldnn
    return ops._linear_pointwise.binary(x, other, weight, bias, then)  # type: ignore[no-any-return]
