"""R7: a big request at the head of the queue does not fit into the cache yet. May the small ones behind it pass?"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING, Any

from minicb.bench.arrivals import Job
from minicb.bench.latency import ttft
from minicb.bench.receipts import Options, Table
from minicb.bench.simulate import simulate
from minicb.bench.steptime import LLAMA_3_8B_ON_A100

if TYPE_CHECKING:
    from minicb.course.draw import Picture

RUNNER, HEAD, SMALL, SMALL_COUNT = (512, 512), (1_024, 64), (64, 64), 8
CACHE_TOKENS = 1_536
BACKFILLS = (0, 2, 8)


def measure(options: Options) -> dict[str, Any]:  # noqa: ARG001
    jobs = [Job(0.0, *RUNNER), Job(0.1, *HEAD), *(Job(0.2, *SMALL) for _ in range(SMALL_COUNT))]
    found = {}
    for backfill in BACKFILLS:
        run = simulate(
            jobs, LLAMA_3_8B_ON_A100, cache_tokens=CACHE_TOKENS, max_num_batched_tokens=512, max_num_seqs=32,
            backfill=backfill,
        )  # fmt: skip
        _, head, *small = run.requests
        found[str(backfill)] = {
            "head_s": ttft(head), "small_s": median(map(ttft, small)), "small_max_s": max(map(ttft, small)),
            "end_s": run.end_s, "passed": head.times_passed,
        }  # fmt: skip
    return {"clock": str(LLAMA_3_8B_ON_A100), "cache_tokens": CACHE_TOKENS, "backfill": found}


def tables(data: Mapping[str, Any]) -> list[Table]:
    strict = data["backfill"]["0"]
    keys = ("head_s", "small_s", "small_max_s", "end_s")
    rows = [
        [n, str(r["passed"]), *(f"{r[key]:.2f} ({100 * (r[key] / strict[key] - 1):+.0f} %)" for key in keys)]
        for n, r in data["backfill"].items()
    ]
    title = (
        f"one writes ({RUNNER[0]} + {RUNNER[1]} tokens), {HEAD[0]} + {HEAD[1]} wait at the head, {SMALL_COUNT} of "
        f"{SMALL[0]} + {SMALL[1]} behind; cache of {data['cache_tokens']:,} tokens; TTFT in s"
    )
    return [Table(title, ["backfill", "passed", "head", "small, median", "small, worst", "all done"], rows)]


def pictures(data: Mapping[str, Any]) -> dict[str, Picture]:
    from minicb.course.draw import HALF, draw_bars

    values = {f"backfill {n}: {who}": r[key] for n, r in data["backfill"].items()
              for who, key in (("head", "head_s"), ("small ones", "small_s"))}  # fmt: skip
    strict, free = data["backfill"]["0"], data["backfill"]["8"]
    line = (
        f"if 8 may pass, the small ones wait {free['small_s']:.2f} s instead of {strict['small_s']:.2f}, "
        f"the head {free['head_s']:.2f} instead of {strict['head_s']:.2f}"
    )
    title = "TTFT in seconds behind a blocked head"
    return {"backfill": draw_bars(values, digits=2, title=title, data=line, width=HALF)}
