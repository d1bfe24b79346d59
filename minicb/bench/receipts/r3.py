"""R3: a long prompt arrives while 32 requests write. How long do their streams stall, and what does the prompt pay?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from minicb.bench.arrivals import Job, sped_up
from minicb.bench.latency import gaps, spread, ttft
from minicb.bench.receipts import Options, Table, each, trace_jobs
from minicb.bench.simulate import simulate
from minicb.bench.steptime import LLAMA_3_8B_ON_A100

if TYPE_CHECKING:
    from minicb.course.draw import Picture

WRITERS, CONTEXT, LONG, AT_S = 32, 512, 8_192, 4.0  # at 4 s all 32 have long read their prompts
WHOLE = {"max_num_batched_tokens": 16_384, "step_order": "prefill_first", "enable_chunked_prefill": False}
SETTINGS: dict[str, dict[str, Any]] = {
    "prefill first, prompts whole": WHOLE,
    **{f"stall free, {budget} a step": {"max_num_batched_tokens": budget} for budget in (8192, 2048, 512, 256)},
}


def measure(options: Options) -> dict[str, Any]:
    jobs, source = trace_jobs(options, 2_000, rate=4.9)
    shared = partial(on_trace, sped_up(jobs, 0.9))
    traced = each(shared, SETTINGS.values(), options.workers)
    return {
        "clock": str(LLAMA_3_8B_ON_A100),
        "one": {name: one_long_prompt(knobs) for name, knobs in SETTINGS.items()},
        "trace": source | {"speed": 0.9, "settings": dict(zip(SETTINGS, traced, strict=True))},
    }


def one_long_prompt(knobs: Mapping[str, Any]) -> dict[str, float]:
    """32 requests write, a prompt of 8,192 tokens comes."""
    jobs = [Job(0.0, CONTEXT, 600) for _ in range(WRITERS)] + [Job(AT_S, LONG, 1)]
    *writers, long = simulate(jobs, LLAMA_3_8B_ON_A100, max_num_seqs=128, **knobs).requests
    if max(r.token_times_s[0] for r in writers) > AT_S:
        raise AssertionError("somebody still reads when the long prompt comes")
    stall = max(b - a for r in writers for a, b in zip(r.token_times_s, r.token_times_s[1:], strict=False) if b > AT_S)
    return {"stall_s": stall, "ttft_s": ttft(long)}


def on_trace(jobs: list[Job], knobs: Mapping[str, Any]) -> dict[str, float]:
    requests = simulate(jobs, LLAMA_3_8B_ON_A100, max_num_seqs=128, **knobs).requests
    itl, first = spread([gap for r in requests for gap in gaps(r)]), spread([ttft(r) for r in requests])
    return {"itl_p99_s": itl.p99, "itl_max_s": itl.max, "itl_n": itl.n, "ttft_p95_s": first.p95, "ttft_n": first.n}


def tables(data: Mapping[str, Any]) -> list[Table]:
    one = [[name, f"{1000 * r['stall_s']:.0f}", f"{r['ttft_s']:.2f}"] for name, r in data["one"].items()]
    trace = data["trace"]
    rows = [
        [name, f"{1000 * r['itl_p99_s']:.0f}", f"{1000 * r['itl_max_s']:.0f}", f"{r['ttft_p95_s']:.2f}"]
        for name, r in trace["settings"].items()
    ]
    gaps_counted = next(iter(trace["settings"].values()))["itl_n"]
    return [
        Table(
            f"{WRITERS} requests write at context {CONTEXT}, a prompt of {LONG:,} comes",
            ["order and budget", "longest stall, ms", "TTFT of the long one, s"],
            one,
        ),
        Table(
            f"{trace['requests']:,} requests, {trace['speed']}x speed, {gaps_counted:,} gaps ({trace['source']})",
            ["order and budget", "gap p99, ms", "gap max, ms", "TTFT p95, s"],
            rows,
        ),
    ]


def pictures(data: Mapping[str, Any]) -> dict[str, Picture]:
    from minicb.course.draw import draw_bars

    stalls = {name: 1000 * r["stall_s"] for name, r in data["one"].items()}
    names = list(stalls)
    line = f"{names[0]}: {stalls[names[0]]:.0f} ms; {names[3]}: {stalls[names[3]]:.0f} ms"
    title = f"Longest stall of {WRITERS} streams beside a prompt of {LONG:,}"
    return {"stalls": draw_bars(stalls, unit="ms", title=title, data=line)}
