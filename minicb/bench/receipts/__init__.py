"""Receipts: claims about scheduling, each with the command that measures it again.

A module here is one receipt: `measure(options)` returns plain data that JSON can hold, `tables(data)` says it in
numbers, `pictures(data)` draws it. Everything but `real` runs in simulated time, so it prints the same on every
machine; its clock's constants stand in `steptime.py` and are the same for every policy.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from minicb.bench.arrivals import Job, file_sha1, published_workload, read_azure

if TYPE_CHECKING:
    from minicb.course.draw import Picture

A = TypeVar("A")
R = TypeVar("R")

NAMES: dict[str, str] = {
    "R0": "the clock is sane: a queue's formula, Little's law, the latency identities",
    "R1": "693 padded slots, and what padding would have cost on a trace",
    "R2": "static batches against iteration-level scheduling over the arrival rate",
    "R3": "how long everybody's stream stalls behind one long prompt",
    "R4": "p95 falls while the unlucky starve: six orders, and aging in between",
    "R5": "fair shares: virtual token counters against first come, first served",
    "R7": "one big request at the head of the queue, and how many may pass it",
    "real": "the same on the real engine, with the prediction beside the measurement",
}


@dataclass(frozen=True, slots=True)
class Options:
    """trace: a CSV in the Azure format, or None for its imitation   workers: processes   requests: only so many
    cpu_time: of `real`: count the process's own seconds, so that what else the machine does is left out"""

    trace: Path | None = None
    workers: int = 1
    requests: int | None = None
    cpu_time: bool = False
    say: Callable[[str], None] = field(default=print)


class Table(NamedTuple):
    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


class Receipt(Protocol):
    """What a module here offers."""

    def measure(self, options: Options) -> dict[str, Any]: ...

    def tables(self, data: Mapping[str, Any]) -> list[Table]: ...

    def pictures(self, data: Mapping[str, Any]) -> dict[str, Picture]: ...


def load_receipt(name: str) -> Receipt:
    if name not in NAMES:
        raise ValueError(f"there is no receipt {name!r}; there are: {', '.join(NAMES)}")
    return cast(Receipt, importlib.import_module(f"minicb.bench.receipts.{name.lower()}"))


def text(table: Table) -> str:
    """A table in plain characters: the first column to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in (table.heads, *table.rows)) for i in range(len(table.heads))]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in (table.heads, *table.rows)
    ]
    return "\n".join([table.title, *(line.rstrip() for line in lines)])


def trace_jobs(options: Options, n: int, rate: float | None = None) -> tuple[list[Job], dict[str, Any]]:
    """The first n requests of the trace, and where they come from; without a trace, its imitation."""
    n = options.requests or n
    if options.trace is None:
        source = "published quantiles of the Azure LLM inference trace 2023 (conv): an imitation, not the trace"
        return published_workload("conv", n, rate=rate), {"source": source, "requests": n}
    jobs = read_azure(options.trace, n)
    return jobs, {"source": options.trace.name, "sha1": file_sha1(options.trace), "requests": len(jobs)}


def each(function: Callable[[A], R], inputs: Iterable[A], workers: int) -> list[R]:
    """function(input) for each, in so many processes."""
    if workers <= 1:
        return [function(one) for one in inputs]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(function, inputs))
