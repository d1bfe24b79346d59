"""The real engine under the same question: short and long requests, more than it can do, and two orders.

First a clock is fitted to the engine's own step log on other requests. Then each order is run twice, once on the
engine in real time and once in simulated time with that clock, and the two are set side by side. Needs the model and
a machine that does nothing else: whatever else runs is in the measurement and not in the prediction.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from minicb.bench.arrivals import Job, workload
from minicb.bench.latency import gaps, spread, ttft
from minicb.bench.receipts import Options, Table
from minicb.bench.simulate import simulate
from minicb.bench.steptime import Fitted, Load, fit_clock, load_of_record
from minicb.engine import Engine
from minicb.kernels import faster
from minicb.metrics import StepRecord
from minicb.model import Model
from minicb.outputs import RequestOutput
from minicb.sampling import SamplingParams
from minicb.weights import load

if TYPE_CHECKING:
    from minicb.course.draw import Picture

REQUESTS, ROOM = 120, 640
KNOBS: dict[str, Any] = {"max_num_batched_tokens": 128, "max_num_seqs": 8}
OVERLOAD = 1.2  # arrivals, as a multiple of what the machine can do
WARM_UP = 8  # first steps of a log, which build caches and pick kernels


def lengths(draw: random.Random) -> tuple[int, int]:
    """Four short questions, then something long, on average."""
    prompt = draw.randint(256, 512) if draw.random() < 0.2 else draw.randint(8, 48)
    return prompt, draw.randint(4, 24)


def measure(options: Options) -> dict[str, Any]:
    n = options.requests or REQUESTS
    model = faster(load(None, "auto", "auto")[0])
    options.say("fitting the clock to the engine's step log")
    watch = Watch(cpu=options.cpu_time)
    _, log = serve(model, [Job(0.0, *lengths(draw)) for draw in map(random.Random, range(n))], watch, {})
    clock = fit_clock(log[WARM_UP:])
    jobs = workload(n, 1.0, lengths, seed=7)
    capacity = n / simulate([Job(0.0, j.prompt, j.answer) for j in jobs], clock, **KNOBS).end_s
    jobs = workload(n, OVERLOAD * capacity, lengths, seed=7)
    # A request of the longest size may be passed for a sixth of the whole run, and not longer.
    aging = max(job.prompt for job in jobs) / (jobs[-1].at_s / 6)
    orders: dict[str, dict[str, Any]] = {
        "fcfs": {"policy": "fcfs"},
        "sjf_aging": {"policy": "sjf_aging", "aging_tokens_per_s": aging},
    }
    found, answers = {}, []
    for name, knobs in orders.items():
        options.say(f"serving {n} requests, {name}")
        outputs, _ = serve(model, jobs, watch, knobs)
        answers.append([output.token_ids for output in outputs])
        run = simulate(jobs, clock, **KNOBS, **knobs)
        found[name] = {
            "measured": summed_up(
                [output.metrics.ttft_s or 0.0 for output in outputs], [g for o in outputs for g in o.metrics.itl_s]
            ),
            "predicted": summed_up([ttft(r) for r in run.requests], [g for r in run.requests for g in gaps(r)]),
        }
    return {
        "requests": n, "seconds": "of this process" if options.cpu_time else "of the wall",
        "clock": str(clock), "constants": clock.constants, "fit": fit_of(clock),
        "rate": OVERLOAD * capacity, "aging_tokens_per_s": aging, "orders": found,
        "same_answers": all(one == answers[0] for one in answers),
    }  # fmt: skip


def fit_of(clock: Fitted) -> dict[str, float]:
    return {"r2": clock.r2, "error": clock.error, "steps": clock.steps, "held_out": clock.held_out}


class Watch:
    """Seconds of the wall, or those that this process computes; both go on while nobody is there."""

    def __init__(self, *, cpu: bool) -> None:
        self.cpu, self.skipped = cpu, 0.0

    def now(self) -> float:
        return (time.process_time() if self.cpu else time.perf_counter()) + self.skipped

    def idle(self, seconds: float) -> None:
        if self.cpu:
            self.skipped += seconds
        else:
            time.sleep(seconds)


def serve(
    model: Model, jobs: Sequence[Job], watch: Watch, knobs: Mapping[str, Any]
) -> tuple[list[RequestOutput], list[tuple[Load, float]]]:
    """Send the jobs to an engine at their times. Their outputs in order, and each step's load and seconds.

    A request that comes while a step runs is handed over after it; its arrival is when it came.
    """
    records: list[StepRecord] = []
    engine = Engine(
        model, max_model_len=ROOM, kv_cache_memory_bytes=1 << 30, on_step=records.append, clock=watch.now, seed=0,
        **KNOBS, **knobs,
    )  # fmt: skip
    draw = random.Random(0)
    prompts = [[draw.randrange(100, model.config.vocab_size) for _ in range(job.prompt)] for job in jobs]
    came, log = 0, list[tuple[Load, float]]()
    outputs: dict[str, RequestOutput] = {}
    began = watch.now()
    while came < len(jobs) or engine.has_unfinished_requests:
        while came < len(jobs) and jobs[came].at_s <= watch.now() - began:
            params = SamplingParams(max_tokens=jobs[came].answer, ignore_eos=True)
            engine.requests[engine.add_request(prompts[came], params, str(came))].arrival_s = began + jobs[came].at_s
            came += 1
        if not engine.has_unfinished_requests:
            watch.idle(max(0.0, began + jobs[came].at_s - watch.now()))
            continue
        start = watch.now()
        outputs.update({event.request_id: event.output for event in engine.step() if event.output})
        log.append((load_of_record(records[-1]), watch.now() - start))
    return [outputs[str(i)] for i in range(len(jobs))], log


def summed_up(first: Sequence[float], between: Sequence[float]) -> dict[str, float]:
    a, b = spread(first), spread(between)
    return {
        "ttft_n": a.n, "ttft_mean": a.mean, "ttft_p50": a.p50, "ttft_p95": a.p95, "ttft_max": a.max,
        "itl_n": b.n, "itl_p50": b.p50, "itl_p95": b.p95, "itl_max": b.max,
    }  # fmt: skip


SHOWN = ("ttft_mean", "ttft_p50", "ttft_p95", "ttft_max", "itl_p50", "itl_p95", "itl_max")


def tables(data: Mapping[str, Any]) -> list[Table]:
    rows = []
    for name, found in data["orders"].items():
        rows += [[f"{name}, {kind}", *(f"{row[key]:.3f}" for key in SHOWN)] for kind, row in found.items()]
        off = [found["predicted"][key] / found["measured"][key] - 1 for key in SHOWN]
        rows.append(["  prediction off by", *(f"{100 * share:+.0f} %" for share in off)])
    same = "the same under both orders" if data["same_answers"] else "NOT the same under both orders"
    title = (
        f"{data['requests']} requests, {data['rate']:.2f} a second ({OVERLOAD} times what the machine can do), "
        f"aging {data['aging_tokens_per_s']:.0f} tokens/s; seconds {data['seconds']}; all answers are {same}"
    )
    return [Table(title, ["order", *(key.replace("_", " ") for key in SHOWN)], rows)]


def pictures(data: Mapping[str, Any]) -> dict[str, Picture]:
    from minicb.course.draw import HALF, draw_bars

    values = {
        f"{name} {key.removeprefix('ttft_')}, {kind}": found[kind][key]
        for key in ("ttft_p50", "ttft_max")
        for name, found in data["orders"].items()
        for kind in ("measured", "predicted")
    }
    fit = data["fit"]
    line = (
        f"{data['requests']} requests; the clock is {100 * fit['error']:.1f} % off on {fit['held_out']} held-out steps"
    )
    title = "TTFT in seconds, measured and predicted"
    return {"ttft": draw_bars(values, digits=2, title=title, data=line, width=HALF)}
