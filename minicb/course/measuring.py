"""The engine runs of chapter 08: latencies against the engine's own records, and a budget that is then tried.

Time is counted in tokens (`minicb.bench.clock`), so that every number is exact and the same on each machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from minicb.bench.budget import Try, recommend, try_budgets
from minicb.bench.clock import TokenClock
from minicb.course.spec import MismatchError
from minicb.course.tiny import model
from minicb.course.trial import one_thread
from minicb.engine import Engine
from minicb.metrics import StepRecord
from minicb.outputs import RequestOutput
from minicb.sampling import SamplingParams

Arrivals = Mapping[str, tuple[int, Sequence[int], int]]  # name -> (tick of arrival, ids of the prompt, answer tokens)

# The course's three requests, one after another. With two seats C has to wait for one.
LATE: Arrivals = {
    "A": (0, (3, 1, 4), 12), "B": (5, (1, 5, 9, 2, 6, 5, 3, 5, 8), 4), "C": (13, (9, 7, 9, 3), 3),
}  # fmt: skip


@one_thread()
def serve_in_ticks(
    arrivals: Arrivals = LATE, *, budget: int = 8, seats: int = 2, per_step: int = 0
) -> tuple[dict[str, RequestOutput], list[StepRecord]]:
    """Requests that arrive one after another, on a machine that needs a tick a token: their outputs and the steps."""
    clock, records = TokenClock(per_step), list[StepRecord]()
    engine = Engine(
        model(), attention=clock, clock=clock.now, on_step=records.append, max_num_seqs=seats,
        max_num_batched_tokens=budget, max_model_len=64, kv_cache_memory_bytes=1 << 24,
    )  # fmt: skip
    coming, done = dict(arrivals), dict[str, RequestOutput]()
    while coming or engine.has_unfinished_requests:
        if not engine.has_unfinished_requests:
            clock.ticks = max(clock.ticks, min(arrival for arrival, *_ in coming.values()))  # nothing to do till then
        for name in [name for name, (arrival, *_) in coming.items() if arrival <= clock.ticks]:
            _, ids, length = coming.pop(name)
            engine.add_request(ids, SamplingParams(max_tokens=length, ignore_eos=True), request_id=name)
        done.update({event.request_id: event.output for event in engine.step() if event.output})
    return {name: done[name] for name in arrivals}, records


def same_latencies() -> str:
    """Serve the three; MismatchError unless every latency is what the steps' own times say."""
    outputs, records = serve_in_ticks()
    for name, output in outputs.items():
        times, metrics = token_times(records, name), output.metrics
        ttft = times[0] - first_start(records, name) + (metrics.queue_s or 0)
        gaps = [later - earlier for earlier, later in pairwise(times)]
        if metrics.ttft_s != ttft:
            raise MismatchError(f"request {name} waited {ttft:g} ticks for its first token, not {metrics.ttft_s}.")
        if list(metrics.itl_s) != gaps:
            raise MismatchError(f"request {name} has gaps of {gaps} ticks, not {list(metrics.itl_s)}.")
    return f"{len(outputs)} requests, every latency is what the steps' own times say"


def first_start(records: Sequence[StepRecord], name: str) -> float:
    """When the request's first step began."""
    return next(record.start_s for record in records if any(entry.request_id == name for entry in record.entries))


def token_times(records: Sequence[StepRecord], name: str) -> list[float]:
    """When each of the request's tokens came: at the end of the steps that sampled one for it."""
    return [
        record.start_s + record.duration_s
        for record in records
        if any(entry.request_id == name and entry.sampled for entry in record.entries)
    ]


@one_thread()
def tries_in_ticks(budgets: Sequence[int], prompt_tokens: int = 60, streams: int = 3, per_step: int = 0) -> list[Try]:
    """`try_budgets` on the tiny model, in ticks."""
    tries = []
    for budget in budgets:
        clock = TokenClock(per_step)
        options = {"attention": clock, "clock": clock.now, "kv_cache_memory_bytes": 1 << 26}
        tries += try_budgets(model(), (budget,), streams=streams, prompt_tokens=prompt_tokens, **options)
    return tries


def chosen_budget() -> str:
    """Measure some budgets and take the recommended one; MismatchError if it breaks the limit or a larger keeps it."""
    tries = tries_in_ticks((8, 16, 32))
    for limit in (8, 20, 40):
        chosen = recommend(tries, limit)
        if chosen.longest_gap_s > limit:
            raise MismatchError(
                f"budget {chosen.budget} makes a stream wait {chosen.longest_gap_s:g} ticks, not {limit}."
            )
        if any(one.budget > chosen.budget and one.longest_gap_s <= limit for one in tries):
            raise MismatchError(f"budget {chosen.budget} keeps the limit of {limit} ticks, but a larger one does too.")
    return f"{len(tries)} budgets measured, the recommended one keeps the limit"
