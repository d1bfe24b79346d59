"""A layer for CUDA in ten launches: what stands between its products, in one Triton kernel each.

    speed_up(model)      replaces the model's layers and its last norm, in place; the weights are shared

Norm, turning and SwiGLU are two dozen small calls in plain torch. Each reads its rows from memory and writes them back,
and for a small model even a replayed launch costs more than the work. Here: norm, product, heads, write, attend,
product, norm, product, SwiGLU, product. The two products that end a residual branch add to the residual themselves.

Everything here computes what `minicb/model.py` says, in float32 between reading and writing.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from minicb.kernels.triton_attention import fits
from minicb.model import Attend, Layer, Model, RMSNorm, SelfAttention

BLOCK = 1024  # numbers of an MLP row to a program


def speed_up(model: Model) -> Model:
    """Replace layers and norm by their fused forms, where the kernels can compute with the model's numbers."""
    if fits(model):
        for i, layer in enumerate(model.layers):
            if isinstance(layer, Layer):
                model.layers[i] = TritonLayer(layer)
        if isinstance(model.norm, RMSNorm):
            model.norm = TritonNorm(model.norm)  # type: ignore[assignment]
    return model


class TritonNorm(nn.Module):
    """`model.RMSNorm` in one launch."""

    def __init__(self, norm: RMSNorm) -> None:
        super().__init__()
        self.weight, self.eps = norm.weight, norm.eps

    def forward(self, x: Tensor) -> Tensor:
        """x: [T, E] -> [T, E]"""
        x, size = x.contiguous(), x.shape[-1]
        out = torch.empty_like(x)
        norm_kernel[(len(x),)](x, self.weight, out, self.eps, SIZE=size, WIDTH=triton.next_power_of_2(size))
        return out


class TritonLayer(nn.Module):
    """What `model.Layer` computes. It changes the rows that it is given in place."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.attention, self.mlp = layer.attention, layer.mlp
        self.attention_norm, self.mlp_norm = TritonNorm(layer.attention_norm), TritonNorm(layer.mlp_norm)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """x: [T, E]   cos, sin: [T, 1, D/2]   returns: [T, E]"""
        own = self.attention
        q, k, v = turned_heads(own, own.qkv(self.attention_norm(x)), cos, sin)
        x = add_product(x, attend(own.layer, own.window, q, k, v).flatten(1), own.out)
        return add_product(x, swiglu(self.mlp.gate_up(self.mlp_norm(x))), self.mlp.down)


def add_product(x: Tensor, y: Tensor, linear: nn.Linear) -> Tensor:
    """x + y W^T + b, in place: the product adds to what is there. x: [T, E]   y: [T, in]"""
    if linear.bias is not None:
        x += linear.bias
    return x.addmm_(y, linear.weight.t())


def turned_heads(own: SelfAttention, qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Norm and turn queries and keys where they lie. qkv: [T, (H+2Hkv)*D]   returns: views of it, [T, heads, D]"""
    rows = qkv.view(len(qkv), own.num_heads + 2 * own.num_kv_heads, -1)
    head_dim, turning = rows.shape[-1], own.num_heads + own.num_kv_heads
    normed = isinstance(own.q_norm, RMSNorm)
    weights = (own.q_norm.weight, own.k_norm.weight) if normed else (qkv, qkv)  # unused without norms
    turn_kernel[(len(rows), turning)](
        rows, cos, sin, *weights, own.q_norm.eps if normed else 0.0, qkv.stride(0),
        NUM_Q=own.num_heads, HEAD=head_dim, WIDTH=triton.next_power_of_2(head_dim // 2), NORMED=normed, num_warps=1,
    )  # fmt: skip
    q, k, v = rows.split((own.num_heads, own.num_kv_heads, own.num_kv_heads), dim=1)
    return q, k, v


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(gate) * up.   gate_up: [T, 2I] -> [T, I]"""
    num_rows, size = len(gate_up), gate_up.shape[1] // 2
    out = torch.empty(num_rows, size, dtype=gate_up.dtype, device=gate_up.device)
    swiglu_kernel[(num_rows, triton.cdiv(size, BLOCK))](gate_up, out, SIZE=size, WIDTH=BLOCK)
    return out


@triton.jit
def norm_kernel(x, weight, out, eps, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    """One program: one row."""
    row, cell = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    inside = cell < SIZE
    number = tl.load(x + row * SIZE + cell, mask=inside, other=0.0).to(tl.float32)
    number *= tl.rsqrt(tl.sum(number * number) / SIZE + eps)
    number *= tl.load(weight + cell, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * SIZE + cell, number.to(out.dtype.element_ty), mask=inside)


@triton.jit
def turn_kernel(
    rows, cos, sin, q_weight, k_weight, eps, row_size,
    NUM_Q: tl.constexpr, HEAD: tl.constexpr, WIDTH: tl.constexpr, NORMED: tl.constexpr,
):  # fmt: skip
    """One program: one head of one token, both halves of it. Queries come first in the row, then keys."""
    token, head, dim = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, WIDTH)
    half: tl.constexpr = HEAD // 2
    inside = dim < half
    place = rows + token * row_size + head * HEAD + dim
    a = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(place + half, mask=inside, other=0.0).to(tl.float32)
    if NORMED:
        scale = tl.rsqrt((tl.sum(a * a) + tl.sum(b * b)) / HEAD + eps)
        weight = k_weight
        if head < NUM_Q:
            weight = q_weight
        a *= scale * tl.load(weight + dim, mask=inside, other=0.0).to(tl.float32)
        b *= scale * tl.load(weight + half + dim, mask=inside, other=0.0).to(tl.float32)
    c = tl.load(cos + token * half + dim, mask=inside, other=0.0).to(tl.float32)
    s = tl.load(sin + token * half + dim, mask=inside, other=0.0).to(tl.float32)
    tl.store(place, (a * c - b * s).to(rows.dtype.element_ty), mask=inside)
    tl.store(place + half, (b * c + a * s).to(rows.dtype.element_ty), mask=inside)


@triton.jit
def swiglu_kernel(gate_up, out, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    """One program: WIDTH numbers of one row."""
    row, cell = tl.program_id(0).to(tl.int64), tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = cell < SIZE
    gate = tl.load(gate_up + row * 2 * SIZE + cell, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * SIZE + SIZE + cell, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * SIZE + cell, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=inside)
