"""`minicb demo`: the main job. Real prompts, real model, three ways to batch them, and a table that compares.

The same 24 token sequences go through transformers' `generate` in left-padded batches, through minicb's padded
baseline, and through continuous batching. Then transformers, given each prompt alone, is asked whether it agrees
with every single token.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minicb.bench.chat import ChatPrompt, chat_workload
from minicb.checkpoint import find_checkpoint
from minicb.commands import add_model_arguments, add_scheduling_arguments, scheduling
from minicb.commands.screen import Screen

if TYPE_CHECKING:
    from minicb.checkpoint import Tokenizer
    from minicb.metrics import StepRecord
    from minicb.model import Model
    from minicb.outputs import RequestOutput

ABOUT = """\
Answer 24 chat prompts of very different lengths with a real model, three ways:

  transformers-static   transformers' generate in left-padded batches
  padded                minicb's own left-padded batches (same model code as the next)
  continuous            minicb's engine: one ragged row a step, no padding

The engine is shown live as a timeline: a row a request, a column for some steps;
  . waits   # reads its prompt   = writes a token   x computes nothing useful

Afterwards: the answers, a table, whether transformers run alone on each prompt
gives exactly the same tokens, and the files that were saved. Takes one to two
minutes on two CPU cores.
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One way to batch, measured. The fields of the JSON file."""

    name: str
    seconds: float
    output_tokens_per_s: float
    token_slots: int
    useful_slots: int
    padding_fraction: float
    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p95_s: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ABOUT
    add_model_arguments(parser)
    parser.add_argument("--batch-size", type=int, default=8, help="rows of the padded batches (default: 8)")
    parser.add_argument("--prompts", type=int, metavar="N", help="only the first N prompts")
    parser.add_argument("--out", type=Path, default=Path("minicb-demo"), help="folder for pictures and trace")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    add_scheduling_arguments(parser)


def run(args: argparse.Namespace) -> int:
    prompts = chat_workload()[: args.prompts]
    if not prompts or args.batch_size < 1:
        raise ValueError("--prompts and --batch-size must be at least 1")
    scheduling(args)
    args.out.mkdir(parents=True, exist_ok=True)  # before the work: a folder that cannot be made is said at once
    screen = Screen()
    screen.say("loading the model")
    from minicb.bench.peers import Transformers
    from minicb.kernels import faster
    from minicb.weights import load

    model, tokenizer = load(args.model, args.device, args.dtype)
    model = faster(model, native=args.native)
    folder = find_checkpoint(args.model)
    peer = Transformers(folder, model.device, model.dtype, model.config.end_ids)
    ids = [tokenizer.chat(prompt.messages) for prompt in prompts]

    limits = [prompt.max_tokens for prompt in prompts]
    warm_up(model, peer, ids)
    static = run_static(screen, peer, ids, limits, args.batch_size)
    padded, padded_records, _ = run_padded(screen, model, tokenizer, prompts, ids, args.batch_size)
    ours, records, outputs = run_continuous(screen, model, tokenizer, prompts, ids, args)

    screen.say("asking transformers about each prompt alone")
    agreed = [
        peer.agrees(prompt, output.token_ids, limit) for prompt, output, limit in zip(ids, outputs, limits, strict=True)
    ]
    show_answers(screen, prompts, outputs)
    runs = [static, padded, ours]
    show_table(screen, runs, sum(len(output.token_ids) for output in outputs))
    speedup = ours.output_tokens_per_s / static.output_tokens_per_s
    screen.say(f"\n{speedup:.1f} times the useful tokens per second of padded batches in transformers")
    screen.say(verdict(prompts, agreed))
    if args.json:
        report = {
            "model": args.model or folder.name,
            "device": str(model.device),
            "dtype": str(model.dtype).removeprefix("torch."),
            "requests": len(prompts),
            "output_tokens": sum(len(output.token_ids) for output in outputs),
            "identical_to_transformers": all(agreed),
            "runs": [asdict(one) for one in runs],
            "speedup_over_static": speedup,
        }
        args.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        screen.say(f"saved {args.json}")
    for line in save(args.out, padded_records, records):
        screen.say(line)
    return 0


def verdict(prompts: Sequence[ChatPrompt], agreed: Sequence[bool]) -> str:
    """Whether the greedy answers are transformers' own, and which are not."""
    if all(agreed):
        return f"identical: all {len(agreed)} answers are, token for token, what transformers gives each prompt alone"
    other = ", ".join(prompt.name for prompt, same in zip(prompts, agreed, strict=True) if not same)
    return f"NOT identical: {other} (in half precision two nearly equal tokens may swap; in float32 this is a bug)"


def warm_up(model: Model, peer: Any, ids: Sequence[list[int]]) -> None:
    """First calls build caches and pick kernels; nobody's time should hold that."""
    from minicb.engine import Engine
    from minicb.sampling import SamplingParams

    peer.static([row[:16] for row in ids[:2]], [2, 2], 2)
    engine = Engine(model, max_num_seqs=2, max_model_len=32)
    engine.add_request(ids[0][:16], SamplingParams(max_tokens=2, ignore_eos=True))
    while engine.has_unfinished_requests:
        engine.step()


def run_static(screen: Screen, peer: Any, ids: list[list[int]], limits: list[int], batch_size: int) -> Run:
    """transformers, as its users batch."""
    with screen.progress("transformers-static", len(ids)) as move:

        def show(members: list[int], step: int) -> None:
            move(members[0] + sum(limits[i] <= step for i in members))

        result = peer.static(ids, limits, batch_size, on_step=show)
    tokens = sum(map(len, result.answers))
    return make_run(
        "transformers-static", result.seconds, tokens, result.token_slots, result.useful_slots, result.ttft_s
    )


def run_padded(
    screen: Screen,
    model: Model,
    tokenizer: Tokenizer,
    prompts: Sequence[ChatPrompt],
    ids: list[list[int]],
    batch_size: int,
) -> tuple[Run, list[StepRecord], list[RequestOutput]]:
    """minicb's own model in left-padded batches."""
    from minicb.padding import PaddedRunner
    from minicb.request import Limits, open_request
    from minicb.sampling import SamplingParams

    room = max(len(row) + prompt.max_tokens for row, prompt in zip(ids, prompts, strict=True))
    limits = Limits(model.config.vocab_size, room, model.config.end_ids)
    with screen.progress("padded", len(ids)) as move:
        done: list[str] = []

        def show(record: StepRecord) -> None:
            done.extend(name for name, _ in record.finished)
            move(len(done))

        runner = PaddedRunner(model, batch_size=batch_size, max_model_len=room, on_step=show)
        began = time.perf_counter()
        requests = [
            open_request(
                p.name, row, SamplingParams(max_tokens=p.max_tokens), limits, tokenizer.decode, seed=0, now=began
            )
            for p, row in zip(prompts, ids, strict=True)
        ]
        outputs = runner.run(requests)
        seconds = time.perf_counter() - began
    return summed_up("padded", outputs, runner.records, seconds), runner.records, outputs


def run_continuous(
    screen: Screen,
    model: Model,
    tokenizer: Tokenizer,
    prompts: Sequence[ChatPrompt],
    ids: list[list[int]],
    args: argparse.Namespace,
) -> tuple[Run, list[StepRecord], list[RequestOutput]]:
    """The engine, with its timeline drawn as it runs."""
    from minicb.engine import Engine
    from minicb.sampling import SamplingParams

    records: list[StepRecord] = []
    outputs: dict[str, RequestOutput] = {}
    with screen.timeline("continuous", records) as show:

        def watch(record: StepRecord) -> None:
            records.append(record)
            show(record)

        engine = Engine(
            model,
            tokenizer.decode,
            **scheduling(args),
            max_model_len=max(len(row) + prompt.max_tokens for row, prompt in zip(ids, prompts, strict=True)),
            on_step=watch,
        )
        began = time.perf_counter()
        for prompt, row in zip(prompts, ids, strict=True):
            engine.add_request(row, SamplingParams(max_tokens=prompt.max_tokens), prompt.name)
        while engine.has_unfinished_requests:
            outputs.update({event.request_id: event.output for event in engine.step() if event.output})
        seconds = time.perf_counter() - began
    ordered = [outputs[prompt.name] for prompt in prompts]
    return summed_up("continuous", ordered, records, seconds), records, ordered


def summed_up(name: str, outputs: Sequence[RequestOutput], records: Sequence[StepRecord], seconds: float) -> Run:
    from minicb.metrics import summarise

    s = summarise(outputs, records, seconds)
    ttft = [output.metrics.ttft_s for output in outputs if output.metrics.ttft_s is not None]
    return make_run(name, seconds, s.output_tokens, s.token_slots, s.useful_slots, ttft)


def make_run(name: str, seconds: float, tokens: int, slots: int, useful: int, ttft_s: Sequence[float]) -> Run:
    from minicb.metrics import percentile, wasted_fraction

    return Run(
        name=name,
        seconds=seconds,
        output_tokens_per_s=tokens / seconds,
        token_slots=slots,
        useful_slots=useful,
        padding_fraction=wasted_fraction(useful, slots),
        ttft_mean_s=sum(ttft_s) / len(ttft_s),
        ttft_p50_s=percentile(ttft_s, 50) or 0.0,
        ttft_p95_s=percentile(ttft_s, 95) or 0.0,
    )


def show_answers(screen: Screen, prompts: Sequence[ChatPrompt], outputs: Sequence[RequestOutput]) -> None:
    rows = []
    for prompt, output in zip(prompts, outputs, strict=True):
        text = " ".join(output.text.split())
        rows.append((prompt.name, str(len(output.token_ids)), output.finish_reason, text))
    screen.table("the answers (greedy)", ("request", "tokens", "ended by", "answer"), rows, right=(1,))


def show_table(screen: Screen, runs: Sequence[Run], output_tokens: int) -> None:
    rows = [
        (
            one.name,
            f"{one.seconds:.1f}",
            f"{one.output_tokens_per_s:.1f}",
            f"{one.token_slots:,}",
            f"{100 * one.padding_fraction:.0f} %",
            f"{one.ttft_mean_s:.2f}",
            f"{one.ttft_p95_s:.2f}",
        )
        for one in runs
    ]
    heads = ("run", "seconds", "useful tokens/s", "token slots", "padding", "TTFT mean s", "TTFT p95 s")
    screen.table(f"{output_tokens:,} useful tokens written", heads, rows, right=tuple(range(1, len(heads))))


def save(out: Path, padded: Sequence[StepRecord], ours: Sequence[StepRecord]) -> list[str]:
    """Traces and pictures into the folder; a line for what was saved, and how to step through it."""
    from minicb.metrics import write_trace

    write_trace(out / "trace.jsonl", ours)
    write_trace(out / "padded.jsonl", padded)
    lines = [f"saved {out / 'trace.jsonl'} and padded.jsonl: one record a step"]
    play = f"step through both: minicb play {quoted(out / 'padded.jsonl')} continuous={quoted(out / 'trace.jsonl')}"
    try:
        from minicb.course.draw import draw_timeline

        names = [name for record in ours for name in record.arrived]
        runs = {"padded": padded, "continuous": ours}
        picture = draw_timeline(runs, order=names, title=f"{len(names)} prompts, padded and continuous")
        picture.save(out, "timeline")
    except ImportError:
        return [*lines, "no pictures: matplotlib is not installed (pip install matplotlib)", play]
    return [*lines, f"saved {out / 'timeline.svg'} and .png: who ran when, padded and continuous", play]


def quoted(path: Path) -> str:
    """As one types it into a terminal."""
    return f'"{path}"' if " " in str(path) else str(path)
