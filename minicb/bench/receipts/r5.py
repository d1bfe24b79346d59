"""R5: one client asks for twice as much as another. Who is served how much, first come, first served and by counters?

The set-up follows the first experiments of Sheng et al., "Fairness in serving large language models" (OSDI 2024): two
clients, 256 tokens to read and 256 to write, 90 and 180 requests a minute, evenly spaced, more than the machine can do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from minicb.bench.arrivals import Job
from minicb.bench.latency import jain, service_gap
from minicb.bench.receipts import Options, Table
from minicb.bench.simulate import Step, simulate
from minicb.bench.steptime import LLAMA_2_7B_ON_A10G
from minicb.policy import READ_PRICE, WRITE_PRICE
from minicb.scheduler import Scheduler
from minicb.seams import swapped

if TYPE_CHECKING:
    from minicb.course.draw import Picture

CLOCK, CACHE_TOKENS, SECONDS, TOKENS = LLAMA_2_7B_ON_A10G, 10_000, 360.0, 256
KNOBS: dict[str, Any] = {"max_num_batched_tokens": 2_048, "max_num_seqs": 128, "cache_tokens": CACHE_TOKENS}
BOUND = 2 * max(
    READ_PRICE * TOKENS, WRITE_PRICE * CACHE_TOKENS
)  # twice the most that one step can move (their theorem)
WEIGHTS = {"one": 1.0, "two": 2.0, "three": 3.0, "four": 4.0}
BREAK = (60.0, 240.0)  # the second client's silence in the on/off run


def steady(client: str, rate: float, begin: float = 0.0, end: float = SECONDS) -> list[Job]:
    """Evenly spaced requests of one client."""
    return [Job(begin + i / rate, TOKENS, TOKENS, client) for i in range(int(rate * (end - begin)))]


def served(jobs: Sequence[Job], **knobs: Any) -> list[tuple[float, dict[str, float], bool]]:
    """After each step: its end, each client's service so far, and whether every client had somebody waiting."""
    service = {job.client: 0.0 for job in jobs}
    found: list[tuple[float, dict[str, float], bool]] = []

    def count(step: Step, scheduler: Scheduler) -> None:
        for chunk in step.plan:
            client, prompt = chunk.request.params.client, chunk.request.num_prompt_tokens
            service[client] += READ_PRICE * max(0, min(chunk.end, prompt) - chunk.start) + WRITE_PRICE * chunk.samples
        waiting = {request.params.client for request in scheduler.waiting}
        found.append((step.start_s + step.seconds, dict(service), waiting == service.keys()))

    ordered = sorted(jobs, key=lambda job: job.at_s)
    simulate(ordered, CLOCK, until_s=SECONDS, on_step=count, **KNOBS, **knobs)
    return found


def measure(options: Options) -> dict[str, Any]:  # noqa: ARG001
    two = steady("slow", 1.5) + steady("fast", 3.0)
    pair = {}
    for policy in ("fcfs", "vtc"):
        steps = served(two, policy=policy)
        gaps = service_gap(steps)
        marks = [next(gap for at, gap in gaps if at >= second) for second in range(60, 360, 60)]
        total = steps[-1][1]
        pair[policy] = {
            "gap": max(gap for _, gap in gaps),
            "marks": marks,
            "service": total,
            "jain": jain([*total.values()]),
        }
    several = [job for client in WEIGHTS for job in steady(client, 3.0)]
    shares = served(several, policy="vtc", client_weights=WEIGHTS)[-1][1]
    whole = sum(shares.values())
    pauses = steady("always", 3.0) + steady("on and off", 3.0, 0, BREAK[0]) + steady("on and off", 3.0, BREAK[1])
    with swapped("9.4", lambda counter, others: counter):  # noqa: ARG005
        banked = longest_drought(served(pauses, policy="vtc"), "always")
    return {
        "clock": str(CLOCK), "bound": BOUND, "pair": pair,
        "weights": {client: shares[client] / whole for client in WEIGHTS},
        "lift": {"with": longest_drought(served(pauses, policy="vtc"), "always"), "without": banked},
    }  # fmt: skip


def longest_drought(steps: Sequence[tuple[float, Mapping[str, float], bool]], client: str) -> float:
    """The longest time in which this client got nothing, once the other one is back."""
    worst, since, before = 0.0, BREAK[1], -1.0
    for at, service, _ in steps:
        if at > BREAK[1] and service[client] == before:
            worst = max(worst, at - since)
        else:
            since = at
        before = service[client]
    return worst


def tables(data: Mapping[str, Any]) -> list[Table]:
    rows = [
        [policy, f"{r['gap']:,.0f}", *(f"{mark:,.0f}" for mark in r["marks"]), f"{sum(r['service'].values()):,.0f}",
         f"{r['jain']:.3f}"]
        for policy, r in data["pair"].items()
    ]  # fmt: skip
    heads = ["order", "largest", *(f"{second} s" for second in range(60, 360, 60)), "served in all", "fairness"]
    about = f"two clients, 1.5 and 3 requests/s of {TOKENS} + {TOKENS} tokens"
    weights = [[client, f"{WEIGHTS[client]:g}", f"{100 * share:.1f} %"] for client, share in data["weights"].items()]
    lifts = [[f"{kind} lift", f"{data['lift'][kind]:.1f}"] for kind in ("with", "without")]
    return [
        Table(f"difference in service, {about}; bound for vtc: {data['bound']:,}", heads, rows),
        Table("four clients, all asking for too much, vtc", ["client", "weight", "share of the service"], weights),
        Table(
            f"a client comes back after {BREAK[1] - BREAK[0]:g} s of silence, vtc: longest time without a token",
            ["", "the other's, s"],
            lifts,
        ),
    ]


def pictures(data: Mapping[str, Any]) -> dict[str, Picture]:
    from minicb.course.draw import draw_lines

    seconds = list(range(60, 360, 60))
    series = {policy: (seconds, [mark / 1000 for mark in r["marks"]]) for policy, r in data["pair"].items()}
    line = "; ".join(f"{policy}: at most {r['gap']:,.0f}" for policy, r in data["pair"].items())
    look = {"x_label": "seconds", "y_label": "difference in service, thousands", "data": line}
    limit = (data["bound"] / 1000, "vtc's bound")
    return {"service": draw_lines(series, limit=limit, title="Two clients, one asks twice as much", **look)}  # type: ignore[arg-type]
