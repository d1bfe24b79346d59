"""Workloads as plain data: who comes when, with how many tokens to read and to write.

Lengths come from a trace file, from the published quantiles of one, or from a function of yours; arrivals from a
trace, a Poisson process, or a gamma process as bursty as you like. Everything is fixed by its seed.
"""

from __future__ import annotations

import csv
import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha1
from itertools import accumulate, pairwise
from os import PathLike
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Job:
    """One request to come. Tokens are counts; a workload needs no text."""

    at_s: float
    prompt: int
    answer: int
    client: str = ""
    priority: int = 0


def arrival_times(n: int, rate: float, *, burstiness: float = 1.0, seed: int = 0) -> list[float]:
    """n arrivals, `rate` a second. The gaps are gamma-distributed with mean 1/rate and shape `burstiness`.

    burstiness: 1 is a Poisson process, less is burstier, more is more regular; the gaps' coefficient of variation is
    1/sqrt(burstiness). As vLLM's benchmark has it, the gaps are scaled so that they add up to n/rate exactly.
    """
    if n < 1 or not rate > 0 or not burstiness > 0:
        raise ValueError(f"n, rate and burstiness must be above 0, not {n}, {rate}, {burstiness}")
    draw = random.Random(seed)
    gaps = [draw.gammavariate(burstiness, 1 / (rate * burstiness)) for _ in range(n)]
    scale = n / rate / sum(gaps)
    return list(accumulate(gap * scale for gap in gaps))


def workload(
    n: int,
    rate: float,
    lengths: Callable[[random.Random], tuple[int, int]],
    *,
    burstiness: float = 1.0,
    seed: int = 0,
    client: str = "",
) -> list[Job]:
    """n jobs; `lengths` draws a prompt's and an answer's tokens."""
    draw = random.Random(f"lengths {seed}")
    times = arrival_times(n, rate, burstiness=burstiness, seed=seed)
    return [Job(at, *lengths(draw), client=client) for at in times]


def uniform_lengths(prompt: tuple[int, int], answer: tuple[int, int]) -> Callable[[random.Random], tuple[int, int]]:
    """Both drawn evenly between two bounds, which belong to them."""
    return lambda draw: (draw.randint(*prompt), draw.randint(*answer))


def sped_up(jobs: Iterable[Job], factor: float) -> list[Job]:
    """The same jobs, arriving `factor` times as fast."""
    return [replace(job, at_s=job.at_s / factor) for job in jobs]


COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def read_azure(path: str | PathLike[str], limit: int | None = None) -> list[Job]:
    """The jobs of a trace in the format of the Azure LLM inference traces; the first one arrives at 0.

    Raises ValueError naming the line that is not one.
    """
    jobs: list[Job] = []
    began: datetime | None = None
    with Path(path).open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if not set(COLUMNS) <= set(reader.fieldnames or ()):
            raise ValueError(f"{path} is not in the Azure format: its first line must name {', '.join(COLUMNS)}")
        for row in reader:
            if limit is not None and len(jobs) >= limit:
                break
            try:
                stamp = datetime.fromisoformat(row["TIMESTAMP"][:26])  # seven digits, one more than Python reads
                began = began or stamp
                jobs.append(Job((stamp - began).total_seconds(), int(row[COLUMNS[1]]), int(row[COLUMNS[2]])))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{path} line {reader.line_num} is not a request: {error}") from error
            if jobs[-1].prompt < 1 or jobs[-1].answer < 1:
                raise ValueError(f"{path} line {reader.line_num}: tokens must be at least 1")
    if not jobs:
        raise ValueError(f"{path} holds no requests")
    if any(later.at_s < earlier.at_s for earlier, later in pairwise(jobs)):
        raise ValueError(f"{path} is not sorted by TIMESTAMP")
    return jobs


def file_sha1(path: str | PathLike[str]) -> str:
    return sha1(Path(path).read_bytes(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True, slots=True)
class Published:
    """Quantiles of one trace's lengths, measured once from the file; between them the generator goes straight."""

    rate: float  # requests a second
    burstiness: float  # 1 / (coefficient of variation of the gaps)^2
    prompt: Sequence[int]  # tokens, at the shares of `SHARES`
    answer: Sequence[int]


# Azure LLM inference trace 2023 (CC-BY-4.0, Microsoft; Patel et al., Splitwise, ISCA 2024), measured from its files.
SHARES = (0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1)
PUBLISHED: dict[str, Published] = {
    "conv": Published(
        5.53,
        0.84,
        (2, 29, 181, 207, 387, 403, 703, 1020, 1071, 1130, 1315, 2734, 4083, 4142, 6179, 14050),
        (7, 16, 41, 54, 77, 91, 103, 129, 177, 384, 400, 424, 451, 601, 954, 1000),
    ),
    "code": Published(
        2.57,
        0.0058,
        (3, 17, 75, 147, 386, 770, 1075, 1469, 1909, 2433, 3192, 5188, 7303, 7436, 7437, 7437),
        (6, 6, 6, 7, 8, 9, 11, 13, 16, 20, 29, 55, 90, 251, 825, 1899),
    ),
}


def published_workload(name: str, n: int, *, seed: int = 0, rate: float | None = None) -> list[Job]:
    """n jobs from the published quantiles of a trace: "conv" or "code".

    An imitation: lengths have the trace's quantiles, but prompt and answer are drawn independently (in the traces
    their correlation is -0.11 and 0.00), and arrivals know only the rate and the burstiness, not the hour's shape.
    """
    if name not in PUBLISHED:
        raise ValueError(f"there are quantiles of {', '.join(PUBLISHED)}, not of {name!r}")
    source = PUBLISHED[name]

    def lengths(draw: random.Random) -> tuple[int, int]:
        return at_share(source.prompt, draw.random()), at_share(source.answer, draw.random())

    return workload(n, rate or source.rate, lengths, burstiness=source.burstiness, seed=seed)


def at_share(quantiles: Sequence[int], share: float) -> int:
    """The length below which this share lies, by straight lines between the quantiles."""
    above = bisect_left(SHARES, share, lo=1)
    low, high, least, most = SHARES[above - 1], SHARES[above], quantiles[above - 1], quantiles[above]
    return round(least + (most - least) * (share - low) / (high - low))
