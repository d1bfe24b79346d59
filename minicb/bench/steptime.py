"""How long a step takes: two models of it behind one method, so that the scheduler can run without a model.

`Roofline` computes from published numbers of a machine and a model: a step moves the weights once and the cache of
everybody who runs, and does the arithmetic of its tokens; the slower of the two decides. `Fitted` learns five
constants from the step log of a real engine. Both are pure functions: the same load takes the same time, always.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple, Protocol

import numpy as np

from minicb.batch import Plan
from minicb.metrics import StepRecord


class Load(NamedTuple):
    """What a step has to do, in counts."""

    tokens: int  # that go through the model
    sampled: int  # rows whose logits are read
    kv: int  # cached tokens that attention reads: the context of each request, once
    cells: int  # query-key pairs that the mask lets through


def load_of(parts: Iterable[tuple[int, int, bool]]) -> Load:
    """The load of a step whose requests compute so many tokens each: (computed before, new, is one sampled)."""
    tokens = sampled = kv = cells = 0
    for start, new, samples in parts:
        tokens += new
        sampled += samples
        kv += start + new
        cells += new * start + new * (new + 1) // 2
    return Load(tokens, sampled, kv, cells)


def load_of_plan(plan: Plan) -> Load:
    return load_of((chunk.start, chunk.num_new, chunk.samples) for chunk in plan.chunks)


def load_of_record(record: StepRecord) -> Load:
    return load_of((entry.num_computed, entry.num_new, entry.sampled) for entry in record.entries)


class Clock(Protocol):
    def step_time(self, load: Load) -> float:
        """Seconds that a step with this load takes."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """Every step takes the same time: for checks against formulas."""

    seconds: float

    def step_time(self, load: Load) -> float:  # noqa: ARG002
        return self.seconds


@dataclass(frozen=True, slots=True)
class Roofline:
    """max(bytes / bandwidth, operations / speed) + overhead, with the shares of the peak that are really reached."""

    name: str
    weight_bytes: float
    parameters: float
    kv_bytes: float  # of one cached token, in all layers
    attention_flops: float  # of one query-key pair, in all layers and heads: 4 * layers * heads * head size
    bandwidth: float  # bytes a second, peak
    flops: float  # operations a second, peak
    bandwidth_share: float = 0.8
    flops_share: float = 0.5
    overhead_s: float = 0.004

    def step_time(self, load: Load) -> float:
        moved = self.weight_bytes + self.kv_bytes * load.kv
        done = 2 * self.parameters * load.tokens + self.attention_flops * load.cells
        return max(moved / self.reached_bandwidth, done / self.reached_flops) + self.overhead_s

    @property
    def reached_bandwidth(self) -> float:
        return self.bandwidth * self.bandwidth_share

    @property
    def reached_flops(self) -> float:
        return self.flops * self.flops_share

    @property
    def ridge_tokens(self) -> float:
        """Tokens in a step at which arithmetic takes as long as reading the weights: up to there they cost nothing."""
        return self.weight_bytes / self.reached_bandwidth * self.reached_flops / (2 * self.parameters)

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.weight_bytes / 1e9:.1f} GB of weights, {self.parameters / 1e9:.1f} B parameters, "
            f"{self.kv_bytes:,.0f} bytes of cache a token; {self.bandwidth / 1e9:,.0f} GB/s x {self.bandwidth_share}, "
            f"{self.flops / 1e12:.0f} TFLOP/s x {self.flops_share}, {1000 * self.overhead_s:g} ms overhead a step; "
            f"arithmetic takes over at {self.ridge_tokens:.0f} tokens a step"
        )


# Sizes from the models' configurations, peaks from the vendors' data sheets. The two shares and the overhead are
# assumptions, the same for every policy.
LLAMA_3_8B_ON_A100 = Roofline(
    "Llama-3-8B on one A100-80GB", 16.1e9, 8.03e9, 131_072, 4 * 32 * 32 * 128, 2.039e12, 312e12
)
LLAMA_2_7B_ON_A10G = Roofline(
    "Llama-2-7B on one A10G", 13.5e9, 6.74e9, 524_288, 4 * 32 * 32 * 128, 600e9, 70e12
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fitted:
    """c0 + c1 tokens + c2 sampled + c3 kv + c4 cells, none of them negative, from a step log."""

    constants: tuple[float, ...]  # seconds: a step, and for one of each count of a `Load`
    r2: float  # on the steps it has not seen
    error: float  # mean of |predicted - measured| / measured on the steps it has not seen
    steps: int
    held_out: int

    def step_time(self, load: Load) -> float:
        base, *each = self.constants
        return base + sum(constant * count for constant, count in zip(each, load, strict=True))

    def __str__(self) -> str:
        base, *each = (1e6 * constant for constant in self.constants)
        parts = ", ".join(f"{c:.3g} us a {name}" for c, name in zip(each, ("token", "row", "kv", "cell"), strict=True))
        return (
            f"fitted to {self.steps} steps: {base:,.0f} us a step, {parts}; on {self.held_out} other steps "
            f"R2 {self.r2:.3f}, mean error {100 * self.error:.1f} %"
        )


def fit_clock(log: Sequence[tuple[Load, float]], held_out_every: int = 5) -> Fitted:
    """Least squares over (load, seconds), relative to the seconds; every fifth step is kept to judge the result."""
    if len(log) < 2 * held_out_every:
        raise ValueError(f"a step log of {len(log)} steps is too short to fit a clock: at least {2 * held_out_every}")
    seen = [step for i, step in enumerate(log) if i % held_out_every]
    rest = log[::held_out_every]
    rows = np.array([(1.0, *load) for load, _ in seen])
    seconds = np.array([time for _, time in seen])
    constants = non_negative(rows / seconds[:, None], np.ones(len(seen)))
    times = np.array([time for _, time in rest])
    guesses = np.array([(1.0, *load) for load, _ in rest]) @ constants
    spread = float(((times - times.mean()) ** 2).sum())
    return Fitted(
        tuple(float(c) for c in constants),
        r2=1 - float(((guesses - times) ** 2).sum()) / spread if spread else 0.0,
        error=float((abs(guesses - times) / times).mean()),
        steps=len(seen),
        held_out=len(rest),
    )


def non_negative(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Least squares without negative coefficients: of all choices of columns the best one that has none."""
    columns = rows.shape[1]
    best, least = np.zeros(columns), float((values**2).sum())
    scale = np.abs(rows).max(axis=0)
    scale[scale == 0] = 1.0
    for size in range(1, columns + 1):
        for chosen in map(list, combinations(range(columns), size)):
            found = np.linalg.lstsq(rows[:, chosen] / scale[chosen], values, rcond=None)[0]
            rest = float(((rows[:, chosen] / scale[chosen] @ found - values) ** 2).sum())
            if (found >= 0).all() and rest < least:
                best, least = np.zeros(columns), rest
                best[chosen] = found / scale[chosen]
    return best
