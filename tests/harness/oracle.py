"""What a request must come to, from its own tokens alone: no cache, no batch, no neighbours.

The oracle does not guess an answer and compare; it walks through the engine's answer and checks each step of it:
could this token follow these, were its logprobs right, had the answer ended before, what text could be shown. Where
rounding could decide (two logits closer than `close`, a draw at the border of two tokens) either side is right.

Nothing here calls the core: attention, sampling, stop texts are written a second time, plainly, in numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from minicb.engine import Event
from minicb.outputs import RequestOutput
from minicb.sampling import Logprobs, SamplingParams
from tests.harness.dense import LogitsOf

HALF = "\ufffd"


@dataclass(frozen=True, slots=True)
class Promise:
    """What the engine was asked for, and what it may depend on."""

    prompt: tuple[int, ...]
    params: SamplingParams
    seed: int
    end_ids: frozenset[int]  # the model's
    max_model_len: int
    logits_of: LogitsOf
    decode: Callable[[Sequence[int]], str]
    bad_id: int | None  # the id that no text can be made of
    close: float  # logits nearer to each other than this are a tie; 0 where the model does not round

    @property
    def tie(self) -> float:
        return max(self.close, 1e-5) if self.close or self.params.penalised else 0.0


def verify(
    promise: Promise, output: RequestOutput, events: Sequence[Event] | None = None, *, force: str | None = None
) -> None:
    """AssertionError if anything about this answer is not as it had to be.

    events: all that were handed out for it, where there were any
    force: "abort" or "error" if somebody ended it from outside
    """
    ids, p = list(output.token_ids), promise.params
    assert output.prompt_token_ids == promise.prompt, "the prompt in the output is another"
    assert output.metrics.num_output_tokens == len(ids), "usage is not the number of ids"
    assert output.metrics.num_prompt_tokens == len(promise.prompt), "prompt usage is not the number of ids"
    assert (output.logprobs is None) == (p.logprobs is None), "logprobs come exactly if asked for"
    assert p.logprobs is None or len(output.logprobs or ()) == len(ids), "one logprob entry a token"
    rows = promise.logits_of([*promise.prompt, *ids])[len(promise.prompt) - 1 :]
    ending: tuple[str, str | int | None] | None = None
    for n, token in enumerate(ids):
        assert ending is None, f"token {n} comes after the end {ending}"
        assert np.isfinite(rows[n].max()), f"token {n} was sampled from logits that are not finite"
        check_choice(promise, rows[n], ids[:n], token)
        if output.logprobs is not None:
            check_logprobs(rows[n], token, p.logprobs or 0, output.logprobs[n], promise.close)
        ending = find_ending(promise, ids[: n + 1])
    if ending is None and not np.isfinite(rows[len(ids)].max()) and output.finish_reason == "error":
        ending = ("error", None)
    expected = (force, None) if ending is None else ending
    assert (output.finish_reason, output.stop_reason) == expected, (
        f"ended with {output.finish_reason} {output.stop_reason!r}, expected {expected}; error: {output.error}"
    )
    assert (output.error is not None) == (output.finish_reason == "error"), "an error has its cause, nothing else has"
    check_text(promise, output)
    if events is not None:
        assert [e.token_id for e in events if e.token_id is not None] == ids, "the events' tokens are not the output's"
        check_shown(promise, [event.text for event in events], output)


def check_choice(promise: Promise, raw: np.ndarray, answer: Sequence[int], token: int) -> None:
    """Could this token be sampled from these logits, after this much of the answer?"""
    p = promise.params
    row = adjusted(promise, raw.astype(np.float64), answer)
    if p.temperature < 1e-5:
        best = row.max()
        assert row[token] >= best - promise.tie, f"greedy took {token} ({row[token]}), the best has {best}"
        return
    u = uniform(promise.seed, len(promise.prompt) + len(answer))
    slack = max(1e-5, promise.close)
    for top_p in {p.top_p, p.top_p - slack, p.top_p + slack} if p.top_p < 1 else {1.0}:
        for min_p in {p.min_p, max(0.0, p.min_p - slack), p.min_p + slack} if p.min_p else {0.0}:
            found = drawn(row / p.temperature, p.top_k, top_p, min_p, u, slack)
            if token in found or (promise.tie and min(abs(row[i] - row[token]) for i in found) <= promise.tie):
                return
    raise AssertionError(f"token {token} is not what {u} draws from {row}")


def adjusted(promise: Promise, row: np.ndarray, answer: Sequence[int]) -> np.ndarray:
    """Penalties, and no ending before the minimum."""
    p, row = promise.params, row.copy()
    for i in set(promise.prompt) | set(answer):
        row[i] = row[i] / p.repetition_penalty if row[i] > 0 else row[i] * p.repetition_penalty
    for i in set(answer):
        row[i] -= p.presence_penalty + p.frequency_penalty * list(answer).count(i)
    if len(answer) < p.min_tokens:
        row[sorted(ending_ids(promise))] = -np.inf
    return row


def drawn(row: np.ndarray, top_k: int, top_p: float, min_p: float, u: float, slack: float) -> set[int]:
    """The tokens that u can mean, if borders are as wide as `slack`."""
    order = np.argsort(-row, kind="stable")[: top_k or None]
    probs = np.exp(row[order] - row[order[0]])
    probs /= probs.sum()
    before = np.cumsum(probs) - probs
    keep = (before < top_p) & (probs >= min_p * probs[0])
    keep[0] = True
    filtered = top_k > 0 or top_p < 1 or min_p > 0
    line = order if filtered else np.arange(len(row))  # unfiltered, the tokens stand in the order of their ids
    share = dict(zip(order[keep].tolist(), probs[keep].tolist(), strict=True))
    found, low = set(), 0.0
    total = sum(share.values())
    for i in line.tolist():
        high = low + share.get(i, 0.0) / total
        if share.get(i) and low - slack <= u <= high + slack:
            found.add(i)
        low = high
    return found


def uniform(seed: int, position: int) -> float:
    """The documented stream: a SplitMix64 finaliser of seed and position, 24 bits of it."""
    x = (seed * 0xD1342543DE82EF95 + (position + 1) * 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return ((x ^ x >> 31) >> 40) / 2**24


def check_logprobs(raw: np.ndarray, token: int, count: int, given: Logprobs, close: float) -> None:
    """Of the raw logits, whatever the sampling parameters say."""
    values = raw.astype(np.float64)
    values = values - values.max() - math.log(np.exp(values - values.max()).sum())
    atol = max(close, 1e-4)  # the engine sums in float32
    assert math.isclose(given.chosen, values[token], rel_tol=1e-5, abs_tol=atol), (given.chosen, values[token])
    assert given.top.get(token) == given.chosen, "the chosen token is always among the listed"
    assert len(given.top) in (count, count + 1), f"{len(given.top)} listed, {count} asked for"
    least = np.sort(values)[-count] if count else math.inf
    for i, value in given.top.items():
        assert math.isclose(value, values[i], rel_tol=1e-5, abs_tol=atol), (i, value, values[i])
        assert i == token or value >= least - atol, f"id {i} is not among the {count} likeliest"


def ending_ids(promise: Promise) -> set[int]:
    own = set() if promise.params.ignore_eos else set(promise.end_ids)
    return own | set(promise.params.stop_token_ids)


def find_ending(promise: Promise, answer: Sequence[int]) -> tuple[str, str | int | None] | None:
    """How the answer ends with its newest token: (reason, stop reason), or None if it goes on."""
    p, newest = promise.params, answer[-1]
    if newest in ending_ids(promise):
        return "stop", newest
    if newest == promise.bad_id:
        return "error", None
    if len(answer) >= p.min_tokens and (match := find_stop(promise, answer)):
        return "stop", match[1]
    room = promise.max_model_len - len(promise.prompt)
    return ("length", None) if len(answer) >= (p.max_tokens or room) else None


def find_stop(promise: Promise, answer: Sequence[int]) -> tuple[int, str] | None:
    """The earliest stop text that the newest token completes, of several at one place the shortest."""
    text, earlier = stable_text(promise, answer), len(stable_text(promise, answer[:-1]))
    found = [
        (at, stop)
        for stop in promise.params.stop
        for at in range(max(0, earlier - len(stop) + 1), len(text) - len(stop) + 1)
        if text[at : at + len(stop)] == stop
    ]
    return min(found) if found else None


def stable_text(promise: Promise, answer: Sequence[int]) -> str:
    """The text so far without the bytes at its end that are no character yet."""
    return promise.decode(answer).rstrip(HALF)


def check_shown(promise: Promise, texts: Sequence[str], output: RequestOutput) -> None:
    """Every event showed all that it could and nothing that had to be taken back; together they are the text."""
    for n in range(1, len(texts)):
        text = stable_text(promise, output.token_ids[:n])
        shown = text[: len(text) - max((overlap(text, stop) for stop in promise.params.stop), default=0)]
        assert "".join(texts[:n]) == shown, f"after {n} tokens {''.join(texts[:n])!r} was shown, not {shown!r}"
    assert "".join(texts) == output.text, f"shown {''.join(texts)!r}, the output says {output.text!r}"


def check_text(promise: Promise, output: RequestOutput) -> None:
    """The final text: cut at a stop text, without the end id's, and with a last character's bytes as they are."""
    ids, stop = list(output.token_ids), output.stop_reason
    if isinstance(stop, str):
        match = find_stop(promise, ids)
        assert match is not None
        final = stable_text(promise, ids)[: match[0]] + (stop if promise.params.include_stop_str_in_output else "")
    elif isinstance(stop, int):
        final = promise.decode(ids[:-1])
    elif ids and ids[-1] == promise.bad_id:
        final = stable_text(promise, ids[:-1])  # nothing that comes after can say what a half character was
    else:
        final = promise.decode(ids)
    assert output.text == final, f"the text is {output.text!r}, not {final!r}"


def overlap(text: str, stop: str) -> int:
    """How much of the end of the text is a beginning of the stop text, but not all of it."""
    return max((n for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
