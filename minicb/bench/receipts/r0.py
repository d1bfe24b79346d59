"""R0: before any policy is compared, the simulated clock has to agree with what is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from minicb.bench.arrivals import uniform_lengths, workload
from minicb.bench.latency import ttft
from minicb.bench.receipts import Options, Table
from minicb.bench.simulate import simulate
from minicb.bench.steptime import LLAMA_3_8B_ON_A100, Constant
from minicb.request import Request

if TYPE_CHECKING:
    from minicb.course.draw import Picture

SERVICE_S = 1.0


def measure(options: Options) -> dict[str, Any]:
    n = options.requests or 30_000
    queue = [one_server(n, load) for load in (0.3, 0.6, 0.9)]
    jobs = workload(600, 8.0, uniform_lengths((32, 512), (1, 128)), seed=1)
    requests = simulate(jobs, LLAMA_3_8B_ON_A100, max_num_batched_tokens=2048, max_num_seqs=16).requests
    return {"requests": n, "queue": queue, "identities": identities(requests)}


def one_server(n: int, load: float) -> dict[str, float]:
    """Mean time to the first token with one server, one request at a time, each taking one second: an M/D/1 queue."""
    jobs = workload(n, load / SERVICE_S, lambda _: (1, 1), seed=5)
    run = simulate(jobs, Constant(SERVICE_S), max_num_batched_tokens=1, max_num_seqs=1)
    measured = sum(map(ttft, run.requests)) / n
    formula = SERVICE_S + load * SERVICE_S / (2 * (1 - load))
    return {"load": load, "formula_s": formula, "measured_s": measured, "error": measured / formula - 1}


def identities(requests: Sequence[Request]) -> dict[str, bool]:
    """With fractions instead of floats, so that equal means equal."""
    times = [(Fraction(r.arrival_s), [Fraction(t) for t in r.token_times_s]) for r in requests]
    spent = [seen[-1] - arrival for arrival, seen in times]
    parts = [seen[0] - arrival + sum(b - a for a, b in pairwise(seen)) for arrival, seen in times]
    return {
        "E2E = TTFT + sum of gaps, for every request": spent == parts,
        "sum of E2E = integral of the number in the system": sum(spent) == integral(times),
    }


def integral(times: Sequence[tuple[Fraction, Sequence[Fraction]]]) -> Fraction:
    """Of the number of requests in the system over time."""
    events = sorted([(arrival, 1) for arrival, _ in times] + [(seen[-1], -1) for _, seen in times])
    area, inside = Fraction(0), 0
    for (at, change), (until, _) in pairwise(events):
        inside += change
        area += inside * (until - at)
    return area


def tables(data: Mapping[str, Any]) -> list[Table]:
    rows = [
        [f"{q['load']:.1f}", f"{q['formula_s']:.3f}", f"{q['measured_s']:.3f}", f"{100 * q['error']:+.1f} %"]
        for q in data["queue"]
    ]
    return [
        Table(
            f"one server, one second a request, {data['requests']:,} Poisson arrivals: mean TTFT, s",
            ["load", "formula", "measured", "error"],
            rows,
        ),
        Table("600 requests, exact arithmetic", ["identity", ""], [[k, str(v)] for k, v in data["identities"].items()]),
    ]


def pictures(data: Mapping[str, Any]) -> dict[str, Picture]:
    from minicb.course.draw import HALF, draw_lines

    loads = [q["load"] for q in data["queue"]]
    series = {kind: (loads, [q[f"{kind}_s"] for q in data["queue"]]) for kind in ("formula", "measured")}
    line = "; ".join(f"load {q['load']}: {q['formula_s']:.2f} and {q['measured_s']:.2f} s" for q in data["queue"])
    look = {"x_label": "load", "y_label": "mean TTFT, seconds", "width": HALF, "data": line}
    return {"clock": draw_lines(series, title="A queue's formula and the simulated clock", **look)}  # type: ignore[arg-type]
