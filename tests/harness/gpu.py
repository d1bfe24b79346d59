"""Everything that waits for a GPU, in one go: `make gpu`, or `python -m tests.harness.gpu [--json FILE]`.

Tests on the device, probes of the facts that minicb relies on, the attention kernels side by side, decode steps by
batch beside the roofline, and the race against transformers. Writes one JSON file. It stops by itself after eight
minutes: a part that no longer fits is named as left out. Without a GPU it says so, and that is no failure.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from minicb.batch import Batch
from minicb.bench.growth import BATCHES, Machine, Point, measure_machine, measure_step
from minicb.cache import KVCache
from minicb.kernels import faster
from minicb.kernels.graphs import Graphs
from minicb.kernels.grouped import GroupedAttention
from minicb.kernels.varlen import VarlenAttention, objection
from minicb.model import Model, ModelConfig, RopeConfig
from minicb.reference import Attention
from minicb.weights import load

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 480.0
NO_GPU = "no CUDA GPU here: nothing to check (`make kernels` tests the kernels in Triton's interpreter)"
TESTS = ("test_gpu", "test_triton", "test_triton_layer", "test_graphs", "test_varlen")
SMOLLM2 = ModelConfig(49152, 576, 1536, 30, 9, 3, 64, RopeConfig(1e5), 8192)
QWEN3_06B = ModelConfig(151936, 1024, 3072, 28, 16, 8, 128, RopeConfig(1e6), 40960, norm_eps=1e-6, qk_norm=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, default=Path("gpu-check.json"), metavar="FILE")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print(NO_GPU)
        return 0
    device = torch.device("cuda", torch.cuda.current_device())
    report = check(device, args.limit)
    args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"saved {args.json}")
    return 0 if report["parts"]["tests"].get("exit code") == 0 else 1


def check(device: torch.device, limit: float) -> dict[str, Any]:
    """Every part, as long as there is time."""
    ends = time.monotonic() + limit
    parts: dict[str, Callable[[float], dict[str, Any]]] = {
        "tests": run_tests,
        "probes": lambda _: probe(device),
        "attention": lambda left: compare_attention(device, left),
        "decode smollm2-135m": lambda left: decode(smollm2(device), left),
        "decode qwen3-0.6b shape": lambda left: decode(random_weights(QWEN3_06B, device), left),
        "race": race,
    }
    report: dict[str, Any] = {"date": datetime.now().astimezone().date().isoformat(), **about(device), "parts": {}}
    for name, part in parts.items():
        began, left = time.monotonic(), ends - time.monotonic()
        if left < 20:
            report["parts"][name] = {"left out": f"only {left:.0f} s of {limit:.0f} were left"}
            continue
        try:
            report["parts"][name] = part(left)
        except Exception as error:  # a part that fails must not cost the others
            report["parts"][name] = {"failed": f"{type(error).__name__}: {error}"}
        torch.cuda.empty_cache()
        print(f"-- {name}: {time.monotonic() - began:.0f} s", flush=True)
    return report


def about(device: torch.device) -> dict[str, Any]:
    """Device and versions."""
    card = torch.cuda.get_device_properties(device)
    versions = {"python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda}
    for name in ("triton", "transformers", "minicb"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    facts = {"name": card.name, "capability": f"{card.major}.{card.minor}", "memory bytes": card.total_memory}
    return {"device": {**facts, "processors": card.multi_processor_count}, "versions": versions}


def run_tests(left: float) -> dict[str, Any]:
    files = [str(ROOT / "tests" / f"{name}.py") for name in TESTS]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *files], cwd=ROOT, timeout=min(left, 240), check=False,
        capture_output=True, encoding="utf-8",
    )  # fmt: skip
    lines = run.stdout.strip().splitlines()
    print("\n".join(lines[-15:]))
    return {"exit code": run.returncode, "result": lines[-1] if lines else run.stderr.strip()[-300:]}


def probe(device: torch.device) -> dict[str, Any]:
    """The facts about this torch on this device that decide which way minicb takes."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def works(*backends: SDPBackend, **options: Any) -> bool:
        q, kv = (torch.randn(1, heads, 8, 64, device=device, dtype=torch.bfloat16) for heads in (9, 3))
        try:
            with sdpa_kernel(list(backends)):
                F.scaled_dot_product_attention(q, kv, kv, enable_gqa=True, **options)
        except RuntimeError:
            return False
        return True

    fast = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION)
    mask = torch.ones(8, 8, dtype=torch.bool, device=device).tril()
    one, many = torch.randn(1, 1, 1, 64, device=device), torch.randn(1, 1, 5, 64, device=device)
    corner = F.scaled_dot_product_attention(one, many, many, is_causal=True)
    return {
        "varlen_attn": objection(device, torch.bfloat16) or "paged, equals the reference",
        "sdpa with groups, without a mask, has a fast kernel": works(*fast),
        "sdpa with groups and a mask has a fast kernel": works(*fast, attn_mask=mask),
        "sdpa's is_causal starts at the first key": bool(torch.allclose(corner, many[:, :, :1], atol=1e-5)),
    }


def compare_attention(device: torch.device, left: float) -> dict[str, Any]:
    """One layer's attention by each back end, in microseconds, and the rate at which keys and values are read."""
    ends, found = time.monotonic() + left / 3, dict[str, Any]()
    backends: dict[str, Attention] = {"grouped": GroupedAttention()}
    if not objection(device, torch.bfloat16):
        backends["varlen"] = VarlenAttention()
    try:
        from minicb.kernels.triton_attention import TritonAttention

        backends["triton"] = TritonAttention()
    except ImportError as error:
        found["triton"] = str(error)
    cases = {
        "1 decode at 2048": ([1], [2048]), "32 decodes at 256": ([1] * 32, [256] * 32),
        "32 decodes at 2048": ([1] * 32, [2048] * 32), "128 decodes at 1024": ([1] * 128, [1024] * 128),
        "a prompt of 512": ([512], [512]), "31 decodes and a chunk of 481": ([1] * 31 + [481], [1024] * 31 + [1505]),
    }  # fmt: skip
    for shape, config in (("9/3 heads of 64", SMOLLM2), ("16/8 heads of 128", QWEN3_06B)):
        for case, (new, context) in cases.items():
            for name, attention in backends.items():
                if time.monotonic() < ends:
                    micros = time_attention(device, config, attention, new, context)
                    read = 4 * config.num_kv_heads * config.head_dim * sum(context)
                    rate = {"us": round(micros, 2), "GB/s": round(read / micros / 1e3, 1)}
                    found.setdefault(f"{shape}: {case}", {})[name] = rate
    return found


def make_step(new: list[int], context: list[int], page: int) -> Batch:
    """Requests of one page each, in random order in the cache."""
    order = random.Random(0).sample(range(1, len(new) + 1), len(new))
    positions = [range(total - n, total) for n, total in zip(new, context, strict=True)]
    starts = [sum(new[:i]) for i in range(len(new) + 1)]
    return Batch(
        tokens=torch.zeros(sum(new), dtype=torch.int64),
        positions=torch.tensor([at for own in positions for at in own]),
        slots=torch.tensor([order[i] * page + at for i, own in enumerate(positions) for at in own]),
        q_start=torch.tensor(starts, dtype=torch.int32),
        kv_len=torch.tensor(context, dtype=torch.int32),
        page_table=torch.tensor(order, dtype=torch.int32)[:, None],
        sample_at=torch.tensor(starts[1:]) - 1,
        max_new=max(new),
        max_kv=max(context),
    )


def time_attention(
    device: torch.device, config: ModelConfig, attention: Attention, new: list[int], context: list[int]
) -> float:
    """Microseconds of one layer on the device: the best of several replays of 20, so that no launch is waited for."""
    page, repeats = 2048, 20
    batch = make_step(new, context, page).to(device)
    cache = KVCache(replace(config, num_layers=1), len(new) + 1, page, device, torch.bfloat16)
    cache.k.normal_()
    cache.v.normal_()

    def rows(heads: int) -> Tensor:
        return torch.randn(sum(new), heads, config.head_dim, device=device, dtype=torch.bfloat16)

    q, k, v = rows(config.num_heads), rows(config.num_kv_heads), rows(config.num_kv_heads)
    with torch.inference_mode():
        step = attention.bind(batch, cache)
        replay = Graphs(device).record(lambda: [step(0, None, q, k, v) for _ in range(repeats)][-1])
        best = float("inf")
        for _ in range(5):
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            marks[0].record()
            replay()
            marks[1].record()
            torch.cuda.synchronize(device)
            best = min(best, 1e3 * marks[0].elapsed_time(marks[1]) / repeats)
    return best


def smollm2(device: torch.device) -> Model:
    return load(None, str(device), "bfloat16")[0]


def random_weights(config: ModelConfig, device: torch.device) -> Model:
    """A model of this shape; what it says means nothing, what it costs is the same."""
    with torch.device("meta"):
        model = Model(config)
    model.to_empty(device=device).to(torch.bfloat16)
    if config.tied_head:
        model.head.weight = model.embed.weight
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if "norm" in name else 0.0, std=0.02)
    return model.requires_grad_(False).eval()


def decode(model: Model, left: float, batches: tuple[int, ...] = BATCHES, context: int = 256) -> dict[str, Any]:
    """Decode steps by batch, of the plain model and of the faster one (fused, replayed), each with its
    share of what the memory allows."""
    ends = time.monotonic() + left / 2
    limits, fast = measure_machine(model), faster(copy.deepcopy(model))
    found: dict[str, Any] = {"context": context, "limits": asdict(limits), "plain": [], "faster": []}
    for batch in batches:
        for name, one in (("plain", model), ("faster", fast)):
            if time.monotonic() < ends:
                found[name].append(share(measure_step(one, batch, context), limits, model))
                print(f"{name:<10} batch {batch:>4} {found[name][-1]['tokens/s']:>10.0f} tokens/s", flush=True)
    return found


def share(point: Point, limits: Machine, model: Model) -> dict[str, Any]:
    """A point, and how near it is to reading every weight and every key once in a step."""
    c = model.config
    cache = 2 * c.num_layers * c.num_kv_heads * c.head_dim * model.dtype.itemsize * point.context * point.batch
    least = (limits.weight_bytes + cache) / limits.read_bytes_per_s
    return {
        "batch": point.batch, "step ms": round(1e3 * point.step_s, 4), "fastest ms": round(1e3 * point.fastest_s, 4),
        "tokens/s": round(point.tokens_per_s, 1), "share of the memory's speed": round(least / point.step_s, 4),
    }  # fmt: skip


def race(left: float) -> dict[str, Any]:
    """minicb against transformers, each in a process of its own: what `minicb bench` says."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench.json"
        run = subprocess.run(
            [sys.executable, "-m", "minicb", "bench", "--device", "cuda", "--dtype", "bfloat16", "--peers",
             "minicb,minicb-reference,transformers-static,transformers-cb", "--rounds", "2", "--json", str(file)],
            cwd=ROOT, timeout=left, check=False, capture_output=True, encoding="utf-8",
        )  # fmt: skip
        print(run.stdout)
        if run.returncode:
            return {"failed": (run.stderr or run.stdout).strip()[-500:]}
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return result


if __name__ == "__main__":
    sys.exit(main())
