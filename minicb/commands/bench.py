"""`minicb bench`: every engine that is here, one after the other and over again, on the same token ids."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from minicb.commands import add_model_arguments, add_scheduling_arguments, scheduling

if TYPE_CHECKING:
    from minicb.bench.race import Result
    from minicb.bench.workers.protocol import Job
    from minicb.course.draw.picture import Picture

OWN = ("minicb", "minicb-native", "minicb-reference", "transformers-static", "transformers-cb", "gemm-floor")
FOREIGN = ("vllm", "llama.cpp")
DEFAULT = ("minicb", "transformers-static", "transformers-cb", "gemm-floor")

ABOUT = """\
Serve one workload with several engines, each in a process of its own, in turns:

  minicb               as `LLM` runs it            minicb-native     with the compiled extra
  minicb-reference     the plain attention         gemm-floor        torch's products and nothing else
  transformers-static  left-padded batches         transformers-cb   its own continuous batching
  vllm, llama.cpp      from another environment: --vllm-python, --llama-python

The first turn warms up. An engine that is not here is named as skipped. Every
answer has exactly the length that the workload asks for, so all do the same work.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ABOUT
    add_model_arguments(parser)
    parser.add_argument(
        "--workload", default="ragged-32", metavar="NAME|FILE",
        help="ragged-32, chat, long-prompts, uniform-256, or a CSV of lengths (default: ragged-32)",
    )  # fmt: skip
    parser.add_argument(
        "--peers", metavar="LIST", help=f"engines, by commas (default: {','.join(DEFAULT)} and what has a path)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="turns that count (default: 3)")
    parser.add_argument("--batch-size", type=int, default=16, help="rows of transformers-static (default: 16)")
    parser.add_argument("--vllm-python", metavar="PATH", help="the Python of an environment that has vLLM")
    parser.add_argument("--llama-python", metavar="PATH", help="the Python of an environment that has llama-cpp-python")
    parser.add_argument("--llama-model", metavar="FILE", help="the GGUF file for llama.cpp")
    parser.add_argument(
        "--growth",
        action="store_true",
        help="decode steps by batch and by context as well, beside the roofline; with --native, of the compiled extra",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="draw the results into this folder")
    add_scheduling_arguments(parser)


def run(args: argparse.Namespace) -> int:
    names = chosen(args)
    if args.rounds < 1:
        raise ValueError(f"--rounds must be at least 1, not {args.rounds}")
    from minicb.bench.race import own_command, race, ratios
    from minicb.bench.workers.protocol import Job
    from minicb.bench.workloads import find_workload
    from minicb.checkpoint import Tokenizer, find_checkpoint, read_config
    from minicb.weights import pick_device, pick_dtype

    folder = find_checkpoint(args.model)
    device = pick_device(args.device)
    dtype = str(pick_dtype(args.dtype, device)).removeprefix("torch.")
    work = find_workload(args.workload, read_config(folder).vocab_size, Tokenizer.load(folder))
    options = {
        **scheduling(args),
        "batch_size": args.batch_size,
        "max_model_len": work.longest,
        "gguf": args.llama_model,
    }
    job = Job(str(folder), dtype, str(device), work.prompts, work.max_tokens, {**options, "threads": os.cpu_count()})
    print(f"{work}; {dtype} on {device}")
    commands = {name: foreign(name, args) or own_command(name) for name in names}
    results, skipped = race(commands, job, args.rounds, lambda line: print(line, flush=True))
    if not results:
        raise ValueError("no engine could take part: " + "; ".join(f"{one['name']}: {one['why']}" for one in skipped))
    report: dict[str, Any] = {
        "workload": {"name": work.name, "requests": len(work.prompts), "prompt_tokens": sum(map(len, work.prompts)),
                     "output_tokens": sum(work.max_tokens)},
        "date": datetime.now().astimezone().date().isoformat(), "machine": machine(),
        "dtype": dtype, "device": str(device),
        "engines": [asdict(one) for one in results], "ratios": ratios(results), "skipped": skipped,
    }  # fmt: skip
    print("\n".join(table(results)))
    for name, ratio in report["ratios"].items():
        print(f"{name}: {ratio:.2f}")
    if args.growth:
        report["growth"] = growth(job, native=args.native)
    save(args, report)
    return 0


def chosen(args: argparse.Namespace) -> list[str]:
    """The engines to run. ValueError for a name that is none, or a foreign one without its path."""
    given = {"vllm": args.vllm_python, "llama.cpp": args.llama_python}
    names = args.peers.split(",") if args.peers else [*DEFAULT, *(name for name, path in given.items() if path)]
    for name in names:
        if name not in (*OWN, *FOREIGN):
            raise ValueError(f"{name!r} is no engine: choose of {', '.join((*OWN, *FOREIGN))}")
        if name in FOREIGN and not given[name]:
            raise ValueError(
                f"{name} needs --{name.partition('.')[0]}-python: the Python of an environment that has it"
            )
    if "llama.cpp" in names and not args.llama_model:
        raise ValueError("llama.cpp needs --llama-model: a GGUF file")
    return names


def foreign(name: str, args: argparse.Namespace) -> list[str] | None:
    """The command of an engine from another environment; None for our own."""
    from minicb.bench.race import foreign_command

    scripts = {"vllm": (args.vllm_python, "vllm_worker.py"), "llama.cpp": (args.llama_python, "llama_worker.py")}
    return foreign_command(*scripts[name]) if name in scripts else None


def machine() -> dict[str, Any]:
    """What ran this, in a few words."""
    import torch

    from minicb.kernels.compiler import cpuinfo
    from minicb.kernels.fused import multiplies_bfloat16

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "cpu": cpuinfo("model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "multiplies_bfloat16": multiplies_bfloat16(),
        "gpu": gpu,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def table(results: Sequence[Result]) -> list[str]:
    """A line an engine: median and spread."""
    head = "".join(f"{word:>10}" for word in ("tokens/s", "slowest", "fastest", "ready s", "peak MB"))
    lines = [f"\n{'engine':<22}{head}  same answers"]
    for one in results:
        tokens = one.output_tokens_per_s * median(one.runs_s)
        slow, fast = tokens / max(one.runs_s), tokens / min(one.runs_s)
        memory = f"{one.peak_rss_bytes / 1e6:,.0f}" if one.peak_rss_bytes else "?"
        lines.append(
            f"{one.name:<22}{one.output_tokens_per_s:>10.1f}{slow:>10.1f}{fast:>10.1f}{one.ready_s:>10.1f}{memory:>10}"
            f"  {one.same_answers}"
        )
    return lines


def growth(job: Job, *, native: bool) -> dict[str, Any]:
    """Decode steps of minicb by batch and by context."""
    from minicb.bench.growth import grow_batch, grow_context, measure_machine
    from minicb.kernels import faster
    from minicb.weights import load

    model = faster(load(job.model, job.device, job.dtype)[0], native=native)
    limits = measure_machine(model)
    by_batch, by_context = grow_batch(model), grow_context(model)
    print(f"\nread {limits.read_bytes_per_s / 1e9:.1f} GB/s, multiply {limits.flops_per_s / 1e9:,.0f} GFLOP/s")
    for point in (*by_batch, *by_context):
        print(
            f"batch {point.batch:>4}  context {point.context:>5}  step {1e3 * point.step_s:8.2f} ms"
            f"{point.tokens_per_s:9.1f} tokens/s"
        )
    alone = by_batch[0].step_s / limits.alone_s
    print(f"one request alone: {alone:.2f} times the time of reading the weights once")
    return {
        "machine": asdict(limits), "batch": [asdict(p) for p in by_batch], "context": [asdict(p) for p in by_context],
        "alone_over_weights": alone, "native": native,
    }  # fmt: skip


def save(args: argparse.Namespace, report: dict[str, Any]) -> None:
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        print(f"saved {args.json}")
    if args.out:
        from minicb.bench.charts import draw_growth, draw_race

        pictures: dict[str, Picture] = {"bench": draw_race(report)}
        if "growth" in report:
            pictures["bench-growth"] = draw_growth(report)
        for name, picture in pictures.items():
            for path in picture.save(args.out, name):
                print(f"saved {path}")
