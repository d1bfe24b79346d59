"""What users feel, from the times of their tokens: definitions in one place, each a few lines.

    TTFT    arrival to the first token, waiting included
    ITL     the gaps between tokens, pooled over all requests: a long answer counts more
    TPOT    per request, the mean of its gaps; a request of one token has none
    E2E     arrival to the last token; E2E = TTFT + the sum of the gaps, exactly
    normalised latency   E2E / tokens of the answer (as Orca and vLLM report it)
    slowdown             E2E / E2E alone on an idle machine

A percentile is always given with how many values it rests on and with their maximum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from minicb.bench.steptime import Clock, load_of
from minicb.request import Request


@dataclass(frozen=True, slots=True)
class Spread:
    """Of some values: seconds, unless said otherwise."""

    n: int
    mean: float
    p50: float
    p95: float
    p99: float
    max: float


def spread(values: Sequence[float]) -> Spread:
    """Percentiles by linear interpolation. Raises ValueError if there is nothing."""
    if not len(values):
        raise ValueError("no values: nobody got that far")
    p50, p95, p99 = (float(p) for p in np.percentile(values, [50, 95, 99]))
    return Spread(len(values), float(np.mean(values)), p50, p95, p99, float(max(values)))


def ttft(request: Request) -> float:
    return request.token_times_s[0] - request.arrival_s


def gaps(request: Request) -> list[float]:
    return [later - earlier for earlier, later in pairwise(request.token_times_s)]


def e2e(request: Request) -> float:
    return request.token_times_s[-1] - request.arrival_s


def tpot(request: Request) -> float | None:
    times = request.token_times_s
    return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None


def normalised(request: Request) -> float:
    """Seconds of waiting and writing for each token of the answer."""
    return e2e(request) / request.num_output_tokens


def alone(prompt: int, answer: int, clock: Clock, budget: int) -> float:
    """E2E of a request if nobody else were there: its prompt in pieces of the budget, then token by token."""
    starts = range(0, prompt, budget)
    pieces = [(start, min(budget, prompt - start), start + budget >= prompt) for start in starts]
    writes = [(prompt + i, 1, True) for i in range(answer - 1)]
    return sum(clock.step_time(load_of([part])) for part in (*pieces, *writes))


def jain(values: Sequence[float]) -> float:
    """Jain's index of fairness: 1 if all are equal, 1/n if one has everything. (Jain, Chiu & Hawe 1984)"""
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values))


@dataclass(frozen=True, slots=True)
class Slo:
    """What a request was promised. None: nothing."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    def met(self, request: Request) -> bool:
        """All promises kept? A request of one token keeps any TPOT."""
        pairs = ((self.ttft_s, ttft(request)), (self.tpot_s, tpot(request)), (self.e2e_s, e2e(request)))
        return all(limit is None or value is None or value <= limit for limit, value in pairs)


def goodput(requests: Sequence[Request], slo: Slo, seconds: float) -> float:
    """Requests a second that kept every promise (the meaning of vLLM's benchmark)."""
    return sum(map(slo.met, requests)) / seconds


def highest_rate(kept: Mapping[float, float], share: float = 0.9) -> float | None:
    """The highest arrival rate at which at least this share keeps every promise (the meaning of DistServe).

    kept: rate -> share of requests that kept their promises at that rate; None if no rate will do. A rate counts
    only if all lower ones do, so that one lucky run does not decide.
    """
    highest = None
    for rate in sorted(kept):
        if kept[rate] < share:
            break
        highest = rate
    return highest


def service_gap(served: Sequence[tuple[float, Mapping[str, float], bool]]) -> list[tuple[float, float]]:
    """Over time, the largest difference in service between two clients while everybody waits for more.

    served: after each step its end, the service of each client so far (1 a token read, 2 a token written), and
        whether all of them had requests waiting during the step
    returns: (seconds, gap) for those steps; the gap counts from where the present stretch of such steps began
    """
    found: list[tuple[float, float]] = []
    base: Mapping[str, float] | None = None
    before: Mapping[str, float] = {}
    for end, service, backlogged in served:
        if backlogged:
            base = base if base is not None else before
            got = [service[client] - base.get(client, 0.0) for client in service]
            found.append((end, max(got) - min(got)))
        else:
            base = None
        before = service
    return found
