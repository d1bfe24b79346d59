"""What became of a request: its text, its ids, why it ended, and how long everything took.

Latency identities, exact by construction: queue + prefill = ttft, and ttft + the sum of all gaps = the time of the
last token. This module reads finished requests; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from minicb.request import Request
from minicb.sampling import Logprobs
from minicb.seams import seam


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """Seconds of one request, measured where the engine emits."""

    queue_s: float | None  # arrival to first scheduled
    ttft_s: float | None  # arrival to first token
    itl_s: tuple[float, ...]  # gaps between tokens
    e2e_s: float  # arrival to the end; for an answer that was not cut off, to its last token
    num_prompt_tokens: int
    num_output_tokens: int


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """What became of a request. len(token_ids) == len(logprobs) where these were asked for, in every ending."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str  # stop | length | abort | error
    stop_reason: str | int | None
    error: str | None
    logprobs: tuple[Logprobs, ...] | None
    metrics: RequestMetrics


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened to a request: a token, an end, or both."""

    request_id: str
    token_id: int | None  # None: it ended without one
    text: str  # what may be shown now; joined, all texts of a request are its answer
    output: RequestOutput | None = None  # there once the request has ended
    cause: Exception | None = None  # the fault of the loop that ended it, and everybody else with it

    @property
    def finish_reason(self) -> str | None:
        return self.output.finish_reason if self.output else None


@seam("8.1")
def latencies(arrival_s: float, token_times_s: Sequence[float]) -> tuple[float | None, tuple[float, ...]]:
    """TTFT and ITL of one request, in seconds.

    arrival_s: when it arrived   token_times_s: when each token of the answer was emitted, in order
    returns: arrival to first token, and the gaps between tokens; (None, ()) if there was no token
    """
    if not token_times_s:
        return None, ()
    ttft = token_times_s[0] - arrival_s
    gaps = tuple(later - earlier for earlier, later in pairwise(token_times_s))
    return ttft, gaps


def make_output(request: Request) -> RequestOutput:
    """The result of a finished request."""
    assert request.finish_reason is not None
    assert request.finished_s is not None
    arrival = request.arrival_s
    ttft_s, itl_s = latencies(arrival, request.token_times_s)
    metrics = RequestMetrics(
        queue_s=None if request.first_scheduled_s is None else request.first_scheduled_s - arrival,
        ttft_s=ttft_s,
        itl_s=itl_s,
        e2e_s=request.finished_s - arrival,
        num_prompt_tokens=request.num_prompt_tokens,
        num_output_tokens=request.num_output_tokens,
    )
    return RequestOutput(
        request_id=request.request_id,
        prompt_token_ids=tuple(request.tokens[: request.num_prompt_tokens]),
        text=request.checker.text,
        token_ids=tuple(request.output_token_ids),
        finish_reason=request.finish_reason,
        stop_reason=request.stop_reason,
        error=request.error,
        logprobs=None if request.params.logprobs is None else tuple(request.logprobs),
        metrics=metrics,
    )
