"""A compiled extra for CPUs: layers, attention and head in C++ (`native.cpp`). Nobody needs it.

    LLM(native=True)      or --native on the command line

It wants a C++ compiler and nothing else (`compiler.py`). A layer is then three calls, before attention, attention,
after it, and its products read weights that lie as they are read (`panels`). On two cores that is faster than oneDNN's
products alone, which is why it has products of its own; the README has the measurements.

One exception: where the processor multiplies bfloat16 itself (AMX, AVX-512 BF16), long chunks of prompts go to oneDNN,
which uses that. Such a model keeps its layers' weights twice.
"""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_int, c_int64, c_void_p
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minicb.batch import Batch
from minicb.cache import KVCache
from minicb.kernels.compiler import library
from minicb.kernels.fused import FusedLayer, multiplies_bfloat16
from minicb.model import Attend, Layer, Model

NAMES = {torch.float32: "%s_float32", torch.bfloat16: "%s_bfloat16"}
MANY_ROWS = 64  # from here on oneDNN is faster, where the processor multiplies bfloat16 itself


def speed_up_natively(model: Model) -> Model:
    """Replace the layers and the head of a model on a CPU by compiled ones, in place.

    Raises ValueError for a model elsewhere or of another type, or where nothing can be compiled.
    """
    if model.device.type != "cpu" or model.dtype not in NAMES:
        raise ValueError(
            f"the compiled extra is for float32 and bfloat16 on a CPU, not {model.dtype} on {model.device}"
        )
    library()
    if isinstance(model.head, nn.Linear):
        head = NativeHead(model.head.weight)
        if model.head.weight is model.embed.weight:
            model.embed = NativeEmbedding(head)  # type: ignore[assignment]
        model.head = head  # type: ignore[assignment]
    for i, layer in enumerate(model.layers):
        if isinstance(layer, Layer):
            model.layers[i] = NativeLayer(layer, model.dtype)
    return model


class LayerPointers(ctypes.Structure):
    """`Layer` of native.cpp."""

    _fields_ = [
        *((name, c_int64) for name in ("hidden", "inner", "heads", "kv_heads", "dim")),
        ("eps", c_double),
        *((name, c_void_p) for name in ("attention_norm", "q_norm", "k_norm", "mlp_norm")),
        *((name, c_void_p) for name in ("qkv_bias", "out_bias", "gate_bias", "up_bias", "down_bias")),
        *((name, c_void_p) for name in ("qkv", "out", "gate_up", "down")),
    ]


class NativeLayer(nn.Module):
    """What `model.Layer` computes, in two calls around attention."""

    def __init__(self, layer: Layer, dtype: torch.dtype) -> None:
        super().__init__()
        attention, mlp = layer.attention, layer.mlp
        self.layer, self.window = attention.layer, attention.window
        self.num_heads, self.num_kv_heads = attention.num_heads, attention.num_kv_heads
        self.head_dim = attention.out.weight.shape[1] // self.num_heads
        self.many_rows = FusedLayer(layer) if dtype is torch.bfloat16 and multiplies_bfloat16() else None
        gate_up = torch.stack([panels(half) for half in mlp.gate_up.weight.chunk(2)], dim=1)  # side by side, in pairs
        gate_bias, up_bias = (None, None) if mlp.gate_up.bias is None else mlp.gate_up.bias.chunk(2)
        weights = {
            "qkv": panels(attention.qkv.weight), "out": panels(attention.out.weight), "gate_up": gate_up,
            "down": panels(mlp.down.weight),
        }  # fmt: skip
        small = {
            "attention_norm": layer.attention_norm.weight, "mlp_norm": layer.mlp_norm.weight,
            "q_norm": getattr(attention.q_norm, "weight", None), "k_norm": getattr(attention.k_norm, "weight", None),
            "qkv_bias": attention.qkv.bias, "out_bias": attention.out.bias, "gate_bias": gate_bias,
            "up_bias": up_bias, "down_bias": mlp.down.bias,
        }  # fmt: skip
        self.tensors = weights | {
            name: t.detach().float().contiguous() for name, t in small.items() if t is not None
        }  # kept here because C++ knows their addresses only
        self.pointers = LayerPointers(
            layer.attention_norm.weight.numel(), mlp.down.weight.shape[1], self.num_heads, self.num_kv_heads,
            self.head_dim, layer.attention_norm.eps,
            **{name: t.data_ptr() for name, t in self.tensors.items()},
        )  # fmt: skip

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """x: [T, E]   cos, sin: [T, 1, D/2]   returns: [T, E]"""
        x, rows = x.contiguous(), x.shape[0]
        if self.many_rows is not None and rows >= MANY_ROWS:
            return self.many_rows(x, cos, sin, attend)  # type: ignore[no-any-return]
        heads = torch.empty((rows, self.num_heads + 2 * self.num_kv_heads, self.head_dim), dtype=x.dtype)
        call("before", x, self.pointers, x, rows, cos, sin, heads)
        q, k, v = heads.split((self.num_heads, self.num_kv_heads, self.num_kv_heads), dim=1)
        mixed, out = attend(self.layer, self.window, q, k, v).contiguous(), torch.empty_like(x)
        call("after", x, self.pointers, x, mixed, rows, out)
        return out


class NativeHead(nn.Module):
    """Hidden states to logits in float32. [M, E] -> [M, V]"""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.outputs, self.weight = len(weight), panels(weight)

    def forward(self, hidden: Tensor) -> Tensor:
        logits = hidden.new_empty((len(hidden), self.outputs), dtype=torch.float32)
        hidden = hidden.contiguous()
        call("head", hidden, hidden, len(hidden), hidden.shape[1], self.weight, self.outputs, logits)
        return logits


class NativeEmbedding(nn.Module):
    """The rows of a head that is also the embedding, read out of its panels: they are kept once."""

    def __init__(self, head: NativeHead) -> None:
        super().__init__()
        self.weight = head.weight  # [panels, in, width]
        width = self.weight.shape[2]
        column = torch.arange(width, dtype=head.weight.dtype).expand(1, width)  # small whole numbers, exact in any type
        self.place = panels(column.t()).flatten().argsort()  # where a panel keeps its columns: int64 [width]

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: int64 [...] -> [..., E]"""
        width = self.weight.shape[2]
        return self.weight[tokens // width, :, self.place[tokens % width]]


class CachePointers(ctypes.Structure):
    """`Cache` of native.cpp."""

    _fields_ = [
        *((name, c_int64) for name in ("heads", "kv_heads", "dim", "page_size", "table_width", "window")),
        *((name, c_int64) for name in ("requests", "row_stride")),
        *((name, c_void_p) for name in ("q_start", "kv_len", "page_table", "slots")),
    ]


class NativeAttention:
    """Attention over the paged cache, chunks and decodes alike; the new keys and values are kept in the same call."""

    def bind(self, batch: Batch, cache: KVCache) -> Attend:
        kv_heads, dim = cache.k.shape[2:]
        about = CachePointers(
            0, kv_heads, dim, cache.page_size, batch.page_table.shape[1], 0, batch.kv_len.shape[0], 0,
            batch.q_start.data_ptr(), batch.kv_len.data_ptr(), batch.page_table.data_ptr(), 0,
        )  # fmt: skip

        def attend_layer(layer: int, window: int | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out = torch.empty(q.shape, dtype=q.dtype)
            if not q.stride() == k.stride() == v.stride() == (q.stride(0), dim, 1):  # not parts of the same rows
                joint = torch.cat((q, k, v), dim=1)
                q, k, v = joint.split((q.shape[1], kv_heads, kv_heads), dim=1)
            about.heads, about.window, about.row_stride = q.shape[1], window or 0, q.stride(0)
            about.slots = batch.slots.data_ptr()  # here, so that the batch lives as long as this function
            call("attend", q, about, q, k, v, cache.k[layer], cache.v[layer], out)
            return out

        return attend_layer


def call(name: str, like: Tensor, *arguments: Any) -> None:
    """The function for this type of tensor. Tensors go as the addresses of their first elements."""
    function = getattr(library(), NAMES[like.dtype] % name)
    function(*map(as_c, arguments), c_int(torch.get_num_threads()))


def as_c(value: Any) -> Any:
    if isinstance(value, Tensor):
        return c_void_p(value.data_ptr())
    return c_int64(value) if isinstance(value, int) else ctypes.byref(value)


def panels(weight: Tensor) -> Tensor:
    """[out, in] -> [panels, in, width]: what a product reads together lies together. Missing outputs are zeros.

    In bfloat16 the same lane of two vectors shares a word, the first in its lower half: a shift and a mask take them
    apart.
    """
    lanes, vectors = library().lanes(), library().vecs()
    missing = -len(weight) % (lanes * vectors)
    whole = F.pad(weight.detach(), (0, 0, 0, missing)) if missing else weight.detach().contiguous()
    if weight.dtype is torch.bfloat16:
        parts = whole.view(-1, vectors // 2, 2, lanes, weight.shape[1]).permute(0, 4, 1, 3, 2)
        return parts.flatten(2).contiguous()
    return whole.view(-1, lanes * vectors, weight.shape[1]).transpose(1, 2).contiguous()
