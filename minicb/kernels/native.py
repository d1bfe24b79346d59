"""A compiled extra for CPUs: `native.cpp`, built at first use and kept in the cache. Nobody needs it.

    LLM(native=True)      or --native on the command line

It wants a C++ compiler and nothing else: a few seconds once. A layer is then three calls, before attention, attention,
after it, and its products read weights that lie as they are read (`panels`). On two cores that is faster than
oneDNN's products alone, which is why it has products of its own; the README has the measurements.

One exception: where the processor multiplies bfloat16 itself (AMX, AVX-512 BF16), long chunks of prompts go to oneDNN,
which uses that. Such a model keeps its layers' weights twice.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from ctypes import c_double, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minicb.batch import Batch
from minicb.cache import KVCache
from minicb.checkpoint import packaged_model_folder
from minicb.kernels.fused import FusedLayer
from minicb.model import Attend, Layer, Model

COMPILERS = ("c++", "g++", "clang++")
# Sums may be reordered, as vectors need it. Not -ffast-math, which makes the whole process flush small numbers to zero.
FLAGS = "-O3 -march=native -std=c++17 -shared -fPIC -fopenmp -fno-math-errno -fno-trapping-math -fno-signed-zeros"
FLAGS += " -fassociative-math -freciprocal-math"
TYPES = (torch.float32, torch.bfloat16)
MANY_ROWS = 64  # from here on oneDNN is faster, where the processor multiplies bfloat16 itself


# ---- building it


@cache
def library() -> ctypes.CDLL:
    """The compiled functions. Raises ValueError, with what to do, where they cannot be built."""
    source = Path(__file__).with_name("native.cpp")
    compiler = find_compiler()
    made_from = (source.read_bytes(), FLAGS, compiler, torch.__version__, processor())
    name = hashlib.sha256(repr(made_from).encode()).hexdigest()[:16]
    folder = packaged_model_folder().parent / "native"
    target = folder / f"{name}.so"
    if not target.is_file():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                built = Path(scratch, target.name)
                run = subprocess.run(
                    [*compiler, *FLAGS.split(), str(source), "-o", str(built)],
                    check=False, capture_output=True, encoding="utf-8", errors="replace",
                )  # fmt: skip
                if run.returncode:
                    raise ValueError(cannot(first_error(run.stderr)))
                built.replace(target)  # in one move: another process may be building it too
        except OSError as error:
            raise ValueError(cannot(str(error))) from error
    try:
        return ctypes.CDLL(str(target))
    except OSError as error:
        raise ValueError(cannot(str(error))) from error


def find_compiler() -> list[str]:
    """$CXX, or the first compiler there is, as the words of a command."""
    asked = os.environ.get("CXX")
    found = shlex.split(asked) if asked else [name for name in COMPILERS if shutil.which(name)][:1]
    if not found:
        raise ValueError(cannot("there is no C++ compiler"))
    return found


def processor() -> str:
    """What this processor can do: the compiled file is for no other, though a home may be shared by many."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return f"{platform.machine()} {platform.processor()}"


def first_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "the compiler said nothing")


def cannot(why: str) -> str:
    return f"the compiled extra cannot be built ({why}): install g++, or name a compiler in CXX, or go without it"


# ---- the model


def speed_up_natively(model: Model) -> Model:
    """Replace the layers and the head of a model on a CPU by compiled ones, in place.

    Raises ValueError for a model elsewhere or of another type, or where nothing can be compiled.
    """
    if model.device.type != "cpu" or model.dtype not in TYPES:
        raise ValueError(
            f"the compiled extra is for float32 and bfloat16 on a CPU, not {model.dtype} on {model.device}"
        )
    library()
    for i, layer in enumerate(model.layers):
        if isinstance(layer, Layer):
            model.layers[i] = NativeLayer(layer, model.dtype)
    if isinstance(model.head, nn.Linear):
        model.head = NativeHead(model.head.weight)  # type: ignore[assignment]
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
            attention.out.weight.shape[1] // self.num_heads, layer.attention_norm.eps,
            **{name: t.data_ptr() for name, t in self.tensors.items()},
        )  # fmt: skip

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """x: [T, E]   cos, sin: [T, 1, D/2]   returns: [T, E]"""
        if self.many_rows is not None and len(x) >= MANY_ROWS:
            return self.many_rows(x, cos, sin, attend)  # type: ignore[no-any-return]
        heads = x.new_empty((len(x), self.num_heads + 2 * self.num_kv_heads, self.pointers.dim))
        call("before", x, self.pointers, x, len(x), cos, sin, heads)
        q, k, v = heads.split((self.num_heads, self.num_kv_heads, self.num_kv_heads), dim=1)
        mixed, out = attend(self.layer, self.window, q, k, v).contiguous(), torch.empty_like(x)
        call("after", x, self.pointers, x, mixed, len(x), out)
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
        def attend_layer(layer: int, window: int | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out = torch.empty(q.shape, dtype=q.dtype)
            if {t.stride() for t in (q, k, v)} != {(q.stride(0), q.shape[2], 1)}:  # not parts of the same rows
                joint = torch.cat((q, k, v), dim=1)
                q, k, v = joint.split((q.shape[1], k.shape[1], v.shape[1]), dim=1)
            about = CachePointers(
                q.shape[1], k.shape[1], q.shape[2], cache.page_size, batch.page_table.shape[1], window or 0,
                len(batch.kv_len), q.stride(0), batch.q_start.data_ptr(), batch.kv_len.data_ptr(),
                batch.page_table.data_ptr(), batch.slots.data_ptr(),
            )  # fmt: skip
            call("attend", q, about, q, k, v, cache.k[layer], cache.v[layer], out)
            return out

        return attend_layer


def call(name: str, like: Tensor, *arguments: Any) -> None:
    """The function for this type of tensor. Tensors go as the addresses of their first elements."""
    function = getattr(library(), f"{name}_{str(like.dtype).removeprefix('torch.')}")
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
    whole = F.pad(weight.detach(), (0, 0, 0, -len(weight) % (lanes * vectors)))
    if weight.dtype is torch.bfloat16:
        parts = whole.view(-1, vectors // 2, 2, lanes, weight.shape[1]).permute(0, 4, 1, 3, 2)
        return parts.flatten(2).contiguous()
    return whole.view(-1, lanes * vectors, weight.shape[1]).transpose(1, 2).contiguous()


@cache
def multiplies_bfloat16() -> bool:
    """Has this processor instructions for bfloat16 products, as far as this torch can tell?"""
    tests = (getattr(torch.cpu, name, None) for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"))
    return any(test() for test in tests if test is not None)
