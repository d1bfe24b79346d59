"""From logits to a token: greedy, temperature, top-k, top-p, min-p, penalties, seeds, logprobs.

Every choice belongs to one request: it depends on the request's own parameters, its own ids and its own random
stream, which is a function of (seed, position) and nothing else. Neighbours, row order and chunks cannot change it.

This module knows logits and token ids. It does not know text (`stopping.py`) or when a request runs.
Letters: M rows that somebody reads, V vocabulary.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from minicb.seams import seam

if TYPE_CHECKING:
    from minicb.request import Request

GREEDY_BELOW = 1e-5  # a smaller temperature divides logits into infinities; argmax is its limit anyway


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to continue one prompt. Names and meanings as in vLLM. Raises ValueError naming a bad field.

    temperature: 0 = greedy (the default here), 1 = as the model says
    top_k: only the k likeliest tokens, 0 = all;  top_p: the likeliest until their sum reaches p
    min_p: drop tokens less likely than min_p times the likeliest
    repetition_penalty: > 1 makes ids of prompt and answer less likely (Keskar et al. 2019)
    presence_penalty, frequency_penalty: subtracted for ids of the answer, once or for each time
    max_tokens: new tokens at most, None = up to the context's end;  min_tokens: no ending before
    stop: texts that end the answer (cut off, unless include_stop_str_in_output); stop_token_ids: ids that do
    ignore_eos: go on after the model's own end ids;  seed: fixes the answer; None draws one
    logprobs: also report so many top log-probabilities a token, of the raw logits, before any of the above
    priority, client: for the policies `priority` (lower runs earlier) and `vtc`; the answer does not depend on them
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    max_tokens: int | None = 128
    min_tokens: int = 0
    stop: tuple[str, ...] | list[str] | str = ()
    stop_token_ids: tuple[int, ...] | list[int] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    seed: int | None = None
    logprobs: int | None = None
    priority: int = 0
    client: str = ""

    def __post_init__(self) -> None:
        for name in ("stop", "stop_token_ids"):
            value = getattr(self, name)
            several = () if value is None else (value,) if isinstance(value, str) else value
            if not isinstance(several, Iterable):
                raise ValueError(f"{name} must be a list, not {value!r}")
            object.__setattr__(self, name, tuple(several))
        for name, kind in (("include_stop_str_in_output", bool), ("ignore_eos", bool), ("client", str)):
            if not isinstance(getattr(self, name), kind):
                kinds = {bool: "True or False", str: "a text"}
                raise ValueError(f"{name} must be {kinds[kind]}, not {getattr(self, name)!r}")
        for name, low, high in (
            ("temperature", 0.0, math.inf), ("top_k", 0, math.inf), ("min_p", 0.0, 1.0), ("min_tokens", 0, math.inf),
            ("presence_penalty", -2.0, 2.0), ("frequency_penalty", -2.0, 2.0), ("priority", -(2**63), 2**63 - 1),
            ("max_tokens", 1, math.inf), ("logprobs", 0, math.inf), ("seed", -(2**63), 2**64 - 1),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None or name not in ("max_tokens", "logprobs", "seed"):
                check_number(name, value, low, high, whole=isinstance(low, int))
        check_number("top_p", self.top_p, 0.0, 1.0, above=True)
        check_number("repetition_penalty", self.repetition_penalty, 0.0, math.inf, above=True)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens {self.min_tokens} is more than max_tokens {self.max_tokens}")
        if not all(isinstance(text, str) and text for text in self.stop):
            raise ValueError(f"stop must be texts that are not empty, not {self.stop!r}")
        if not all(isinstance(i, int) and not isinstance(i, bool) for i in self.stop_token_ids):
            raise ValueError(f"stop_token_ids must be whole numbers, not {self.stop_token_ids!r}")

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @property
    def penalised(self) -> bool:
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @property
    def filtered(self) -> bool:
        return self.top_k != 0 or self.top_p != 1.0 or self.min_p != 0.0


def check_number(name: str, value: float, low: float, high: float, *, above: bool = False, whole: bool = False) -> None:
    """ValueError unless low <= value <= high (low < value if `above`), finite, and an int if `whole`."""
    inside = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool) and low <= value <= high
    if not inside or (above and value == low) or not (whole or value <= sys.float_info.max):
        kind = "a whole number" if whole else "a finite number"
        bound = f"{'above' if above else 'of at least'} {low}" + (f" and at most {high}" if high < math.inf else "")
        raise ValueError(f"{name} must be {kind} {bound}, not {value!r}")


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Log-probability of the chosen token, and of the likeliest ones (id -> value; the chosen is always there)."""

    chosen: float
    top: dict[int, float]


@dataclass(frozen=True, slots=True)
class Sampled:
    """One row's choice."""

    token_id: int
    logprobs: Logprobs | None = None


@seam("0.1")
def greedy_pick(logits: Tensor) -> Tensor:
    """The likeliest token of each row; of equal ones the lowest id.

    logits: [M, V]   returns: int64 [M]
    """
    return logits.argmax(dim=-1)


def sample(logits: Tensor, requests: Sequence[Request]) -> list[Sampled | Exception]:
    """Choose a token for each row. A row that cannot be sampled gets its exception, the others their token.

    logits: [M, V], one row for each request
    """
    try:
        return list(sample_rows(logits, requests)) if requests else []  # a step in which no prompt is complete
    except Exception as error:
        if len(requests) == 1:
            return [error]
        return [sample(logits[i : i + 1], requests[i : i + 1])[0] for i in range(len(requests))]


def sample_rows(logits: Tensor, requests: Sequence[Request]) -> list[Sampled]:
    """Choose a token for every row, or raise if any row cannot be."""
    raw, finite = logits, logits.amax(dim=-1).isfinite()  # looked at last: asking the device would be a wait for it
    changed = [i for i, r in enumerate(requests) if r.params.penalised or r.params.min_tokens > r.num_output_tokens]
    if changed:
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)  # never coarser than given
        for row in changed:
            adjust(logits[row], requests[row])
        if (finite & ~logits.amax(dim=-1).isfinite()).any():
            raise FloatingPointError("no token is left that could be sampled")
    tokens = greedy_pick(logits)
    drawn = [row for row, request in enumerate(requests) if not request.params.greedy]
    if drawn:
        rows = torch.tensor(drawn, device=logits.device)
        tokens = tokens.index_copy(0, rows, draw(logits[rows].float(), [requests[row] for row in drawn]))
    chosen, fine = torch.stack((tokens, finite)).tolist()  # the one copy back from the device
    if not all(fine):
        raise FloatingPointError("the model's logits are not finite")
    return [
        Sampled(token, logprobs_of(raw[row], token, request.params.logprobs))
        for row, (token, request) in enumerate(zip(chosen, requests, strict=True))
    ]


def adjust(row: Tensor, request: Request) -> None:
    """Apply penalties and the minimum length to one row [V], in place."""
    p = request.params
    if p.repetition_penalty != 1.0:
        seen = torch.tensor(sorted(set(request.tokens)), device=row.device)
        row[seen] = torch.where(row[seen] > 0, row[seen] / p.repetition_penalty, row[seen] * p.repetition_penalty)
    if (p.presence_penalty or p.frequency_penalty) and request.num_output_tokens:
        counts = Counter(request.output_token_ids)
        ids = torch.tensor(list(counts), device=row.device)
        times = torch.tensor(list(counts.values()), device=row.device)
        row[ids] -= p.presence_penalty + p.frequency_penalty * times
    if request.num_output_tokens < p.min_tokens and request.ending_ids:
        row[torch.tensor(sorted(request.ending_ids), device=row.device)] = float("-inf")


def draw(logits: Tensor, requests: Sequence[Request]) -> Tensor:
    """One token for each row, by inverting the distribution's cumulative sum at the request's own number.

    logits: float32 [R, V], R rows that are not greedy   returns: int64 [R]
    """
    device, params = logits.device, [request.params for request in requests]
    u = torch.tensor([uniform(r.seed, len(r.tokens)) for r in requests], dtype=torch.float64).to(device, torch.float32)
    logits = logits / torch.tensor([p.temperature for p in params], device=device)[:, None]
    tokens = pick(torch.softmax(logits, dim=-1), u)
    # Only the rows that ask for it: which token a number means depends on the order in which the tokens stand.
    filtered = [row for row, p in enumerate(params) if p.filtered]
    if filtered:
        rows = torch.tensor(filtered, device=device)
        tokens = tokens.index_copy(0, rows, draw_filtered(logits[rows], [params[row] for row in filtered], u[rows]))
    return tokens


def draw_filtered(logits: Tensor, params: Sequence[SamplingParams], u: Tensor) -> Tensor:
    """The same among the tokens that top-k leaves, and of these top-p and min-p; the likeliest stands first."""
    device = logits.device
    ordered, ids = logits.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(ordered.shape[-1], device=device)
    top_k = torch.tensor([p.top_k or ordered.shape[-1] for p in params], device=device)[:, None]
    probs = torch.softmax(ordered.masked_fill(rank >= top_k, float("-inf")), dim=-1)
    # A running sum may round above 1: where top-p asks for everything, it must not cost the last ones.
    top_p = torch.tensor([p.top_p if p.top_p < 1 else 2.0 for p in params], device=device)[:, None]
    min_p = torch.tensor([p.min_p for p in params], device=device)[:, None]
    # However small top_p is, the likeliest token stays: nothing stands before it.
    keep = (probs.cumsum(dim=-1) - probs < top_p) & (probs >= min_p * probs[:, :1])
    return ids.gather(-1, pick(probs * keep, u)[:, None])[:, 0]


def pick(shares: Tensor, u: Tensor) -> Tensor:
    """Where each row's running sum passes u times its total. shares: [R, V] >= 0, u: [R] in [0, 1)"""
    sums = shares.cumsum(dim=-1)
    target = u[:, None] * sums[:, -1:]
    index = torch.searchsorted(sums, target, right=True)[:, 0]
    last = (shares > 0).to(torch.int64).cumsum(dim=-1).argmax(dim=-1)  # rounding must not pick a share of zero
    return torch.minimum(index, last)


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) from (seed, position) alone: a counter-based stream needs no state to save or share.
    Source: the SplitMix64 finaliser (Steele, Lea & Flood 2014)."""
    mask = (1 << 64) - 1
    x = (seed * 0xD1342543DE82EF95 + (position + 1) * 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return ((x ^ (x >> 31)) >> 40) / (1 << 24)  # 24 bits: exact in float32, so never rounded up to 1


def logprobs_of(row: Tensor, token: int, count: int | None) -> Logprobs | None:
    """The chosen token's log-probability and the `count` largest. row: raw logits [V]"""
    if count is None:
        return None
    values = torch.log_softmax(row.float(), dim=-1)
    chosen = float(values[token])
    top = values.topk(min(count, values.shape[0]))
    likeliest = dict(zip(top.indices.tolist(), top.values.tolist(), strict=True))
    return Logprobs(chosen, likeliest if token in likeliest else {**likeliest, token: chosen})
