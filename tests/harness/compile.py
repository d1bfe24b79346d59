"""Compile the Triton kernels for GPUs that are not here: `python -m tests.harness.compile [--targets 75,80,90,100]`.

Needs Triton and no GPU. Prints a JSON line for each: shared memory in bytes, and how many instructions of the tensor
cores it holds. A kernel that a card cannot take is found here and not by its owner.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from minicb.kernels import triton_attention as attention
from minicb.kernels import triton_layer as layer

NAMES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
SHAPES = ((9, 3, 64), (16, 8, 128))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--targets", default="75,80,90,100", help="compute capabilities without the dot")
    parser.add_argument("--types", default="fp16,bf16,fp32")
    args = parser.parse_args()
    for target in map(int, args.targets.split(",")):
        for dtype, name in NAMES.items():
            if name in args.types.split(",") and not (name == "bf16" and target < 80):
                compile_all(target, dtype)
    return 0


def compile_all(target: int, dtype: torch.dtype) -> None:
    """Every kernel in every size that `minicb` launches for these shapes."""
    attention.has_half_tensor_cores = lambda _: target >= 80  # type: ignore[assignment]
    kind = "*" + NAMES[dtype]
    for heads, kv_heads, size in SHAPES:
        group = heads // kv_heads
        for max_new in (1, 64):
            rows, keys, stages = attention.tile_size(torch.device("cuda"), dtype, max_new)
            report(
                attention.attend_kernel, target,
                {**dict.fromkeys(("q", "k_cache", "v_cache", "out"), kind), "scale": "fp32",
                 **dict.fromkeys(("q_start", "kv_len", "page_table"), "*i32")},
                {"HEADS": heads, "KV_HEADS": kv_heads, "GROUP": group, "HEAD": size, "BLOCK_D": size,
                 "BLOCK_M": rows, "BLOCK_Q": rows // group, "BLOCK_N": keys},
                stages,
            )  # fmt: skip
        row = kv_heads * size
        report(
            attention.write_kernel, target,
            {**dict.fromkeys(("k", "v", "k_cache", "v_cache"), kind), "slots": "*i64"},
            {"HEAD": size, "ROW": row, "BLOCK": triton.next_power_of_2(row)},
        )  # fmt: skip
        for normed in (False, True):
            report(
                layer.turn_kernel, target,
                {**dict.fromkeys(("rows", "cos", "sin", "q_weight", "k_weight"), kind), "eps": "fp32"},
                {"NUM_Q": heads, "HEAD": size, "WIDTH": size // 2, "NORMED": normed},
            )  # fmt: skip
    pointers = {**dict.fromkeys(("x", "weight", "out"), kind), "eps": "fp32"}
    report(layer.norm_kernel, target, pointers, {"SIZE": 576, "WIDTH": 1024})
    pointers = dict.fromkeys(("gate_up", "out"), kind)
    report(layer.swiglu_kernel, target, pointers, {"SIZE": 1536, "WIDTH": layer.BLOCK})


def report(kernel: Any, target: int, types: dict[str, str], constants: dict[str, Any], stages: int = 1) -> None:
    names = kernel.arg_names
    signature = {name: types.get(name, "constexpr" if name in constants else "i32") for name in names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if types.get(name, "").startswith("*")}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    options = {"num_warps": 4, "num_stages": stages}
    built = triton.compile(source, target=GPUTarget("cuda", target, 32), options=options)
    products = len(re.findall(r"mma\.sync|wgmma\.mma|tcgen05\.mma", built.asm["ptx"]))
    line = {"kernel": kernel.__name__, "target": target, "type": next(iter(types.values()))[1:], **constants}
    print(json.dumps({**line, "shared": built.metadata.shared, "products": products}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
