"""A compiled extra for CPUs: `native.cpp`, built by torch at first use and kept in the cache. Nobody needs it.

    LLM(native=True)      or --native on the command line

It wants a C++ compiler and ninja. What it adds to `fused.py`: norms and rotations in one pass each, and decode
attention that reads keys where they lie, while torch's own calls first copy them out of the cache.
"""

from __future__ import annotations

import subprocess
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from minicb.batch import Batch
from minicb.cache import KVCache
from minicb.checkpoint import packaged_model_folder
from minicb.kernels.fused import FusedLayer, speed_up
from minicb.kernels.grouped import attend_group, chunk_groups
from minicb.model import Attend, Layer, Model, RMSNorm

FLAGS = ["-O3", "-march=native", "-ffast-math", "-fopenmp"]
TYPES = (torch.float32, torch.bfloat16)


@cache
def extension() -> Any:
    """The compiled functions. Raises ValueError, with what to do, where they cannot be built."""
    from torch.utils import cpp_extension

    folder = packaged_model_folder().parent / "native" / torch.__version__
    folder.mkdir(parents=True, exist_ok=True)
    source = str(Path(__file__).with_name("native.cpp"))
    try:
        return cpp_extension.load(
            "minicb_native", [source], extra_cflags=FLAGS, extra_ldflags=["-fopenmp"], build_directory=str(folder)
        )
    except (RuntimeError, OSError, ImportError, subprocess.SubprocessError) as error:
        first = str(error).strip().splitlines()[0]
        raise ValueError(
            f"the compiled extra cannot be built ({first}): install g++ and ninja, or go without"
        ) from error


def speed_up_natively(model: Model) -> Model:
    """Replace the layers of a model on a CPU by fused ones with compiled norms and rotations, in place.

    Raises ValueError for a model elsewhere or of another type, or where nothing can be compiled.
    """
    if model.device.type != "cpu" or model.dtype not in TYPES:
        raise ValueError(
            f"the compiled extra is for float32 and bfloat16 on a CPU, not {model.dtype} on {model.device}"
        )
    extension()
    speed_up(model, NativeLayer)
    if isinstance(model.norm, RMSNorm):
        model.norm = NativeNorm(model.norm)  # type: ignore[assignment]
    return model


class NativeNorm(nn.Module):
    """`model.RMSNorm` in one pass over the row."""

    def __init__(self, norm: RMSNorm) -> None:
        super().__init__()
        self.weight, self.eps = norm.weight.detach(), norm.eps

    def forward(self, x: Tensor) -> Tensor:
        return extension().rms_norm(x.contiguous(), self.weight, self.eps)  # type: ignore[no-any-return]


class NativeLayer(FusedLayer):
    """The fused layer with compiled norms and rotations."""

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)
        self.attention_norm, self.mlp_norm = NativeNorm(layer.attention_norm), NativeNorm(layer.mlp_norm)

    def turn(self, rows: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        extension().rotate_(rows, cos, sin, self.num_heads + self.num_kv_heads)
        q, k, v = rows.split((self.num_heads, self.num_kv_heads, self.num_kv_heads), dim=1)
        return q, k, v


class NativeAttention:
    """Chunks as in `GroupedAttention`; decodes read the cache in place, request by request and head by head."""

    def bind(self, batch: Batch, cache: KVCache) -> Attend:
        new = [end - start for start, end in pairwise(batch.q_start.tolist())]
        groups = chunk_groups(batch, cache.page_size)
        request = torch.arange(len(new)).repeat_interleave(torch.tensor(new))
        decodes = torch.tensor(new)[request] == 1  # [T]
        rows = slice(None) if not groups else decodes.nonzero()[:, 0]
        owner, ends = request[rows].contiguous(), (batch.positions[rows] + 1).contiguous()

        def attend_layer(layer: int, window: int | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            cache.write(layer, batch.slots, k, v)
            out = torch.empty(q.shape, dtype=q.dtype)
            for group in groups:
                keys, values = cache.read(layer, group.slots)
                out[group.rows] = attend_group(q[group.rows], keys, values, group, window)
            if len(owner):
                found = out if not groups else torch.empty((len(owner), *q.shape[1:]), dtype=q.dtype)
                extension().attend(
                    q[rows], cache.k[layer], cache.v[layer], batch.page_table, owner, ends, found, cache.page_size,
                    window or 0,
                )  # fmt: skip
                out[rows] = found
            return out

        return attend_layer
