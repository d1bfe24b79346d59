"""What each step did, and what it all came to: the trace, the timeline, the summary. (Chapter 8, used from 5 on)

One `StepRecord` a step says who ran, how many token slots and score cells were computed and how many of them
anybody needed. Counts are the same on every machine; seconds are not, and stand in fields of their own.
Definitions of TTFT, ITL and the rest: `outputs.py`. This module does not know the engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from minicb.outputs import RequestOutput
from minicb.request import Request
from minicb.seams import seam


@dataclass(frozen=True, slots=True)
class Entry:
    """One request's part in a step. Counts are tokens."""

    request_id: str
    num_new: int  # computed for it in this step; 0: a finished row that a padded batch drags along
    num_computed: int  # before the step
    num_prompt: int
    padding: int = 0  # slots computed in its row for nothing
    sampled: bool = False


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of an engine."""

    step: int
    entries: tuple[Entry, ...]
    arrived: tuple[str, ...]  # requests that came in since the step before
    finished: tuple[tuple[str, str], ...]  # (request, why) that ended with this step
    num_waiting: int
    token_slots: int  # rows that went through the model
    useful_slots: int  # those that were somebody's token
    score_cells: int  # query-key pairs computed, per head and layer
    useful_cells: int  # those that the mask lets through
    cache_tokens: int  # held by requests after the step
    cache_capacity: int
    start_s: float = 0.0
    duration_s: float = 0.0


@seam("4.4")
def count_cells(num_computed: int, num_new: int) -> tuple[int, int]:
    """Query-key pairs of one chunk, in one head of one layer.

    num_computed: tokens before the chunk   num_new: tokens of the chunk
    returns: how many are computed, and how many of them the mask lets through
    """
    computed = num_new * (num_computed + num_new)
    hidden = num_new * (num_new - 1) // 2  # each new token's own future within the chunk
    return computed, computed - hidden


def make_entry(request: Request, start: int, num_new: int, *, padding: int = 0, sampled: bool = False) -> Entry:
    return Entry(request.request_id, num_new, start, request.num_prompt_tokens, padding, sampled)


def write_trace(path: str | PathLike[str], records: Iterable[StepRecord]) -> None:
    """One JSON object a line, one line a step. An older file stays as it is if this one cannot be written whole."""
    lines = [json.dumps(asdict(record), separators=(",", ":")) + "\n" for record in records]
    write_whole(path, "".join(lines))


def write_whole(path: str | PathLike[str], text: str) -> None:
    """Write a text file, or leave what is there. Raises OSError that names the file, also when the disk is full."""
    target = Path(path)
    special = target.is_symlink() or (target.exists() and not target.is_file())  # a pipe, a terminal: nothing to keep
    unfinished = target if special else target.with_name(f"{target.name}.unfinished")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        if unfinished != target:
            with suppress(OSError):
                unfinished.unlink()


def read_trace(path: str | PathLike[str]) -> list[StepRecord]:
    """The records of a trace. Raises ValueError naming the line that is not one."""
    records = []
    for number, line in enumerate(Path(path).read_bytes().splitlines(), start=1):
        try:
            fields = json.loads(line)
            fields["entries"] = tuple(Entry(**entry) for entry in fields["entries"])
            fields["arrived"] = tuple(fields["arrived"])
            fields["finished"] = tuple((name, why) for name, why in fields["finished"])
            records.append(StepRecord(**fields))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path} line {number} is not a step record: {error}") from error
    return records


@seam("5.3")
def wasted_fraction(useful: int, total: int) -> float:
    """The share of computed slots that nobody needed."""
    return 1 - useful / total if total else 0.0


@seam("8.2")
def choose_budget(longest_gap_s: Mapping[int, float], limit_s: float) -> int:
    """The largest token budget with which nobody's stream stalls longer than the limit; the smallest if none keeps it.

    longest_gap_s: budget in tokens -> longest gap between two tokens, measured   limit_s: the longest that is allowed
    Raises ValueError if nothing was measured.
    """
    if not longest_gap_s:
        raise ValueError("longest_gap_s is empty: measure at least one budget")
    kept = [budget for budget, gap in longest_gap_s.items() if gap <= limit_s]
    return max(kept, default=min(longest_gap_s))


@seam("9.5")
def choose_policy(ttft_s: Mapping[str, Sequence[float]], limit_s: float, patience_s: float) -> str:
    """The policy under which most requests get their first token within the limit, and nobody waits too long.

    ttft_s: policy -> TTFT of each request, measured   limit_s: what a request hopes for   patience_s: what nobody may
        wait longer than; if no policy keeps that, the one with the shortest longest wait
    Of equals the one that was named first.
    """
    patient = [name for name, waits in ttft_s.items() if max(waits) <= patience_s]
    if not patient:
        return min(ttft_s, key=lambda name: max(ttft_s[name]))
    return max(patient, key=lambda name: sum(wait <= limit_s for wait in ttft_s[name]))


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in one row. Times in seconds; None where no request got that far."""

    requests: int
    output_tokens: int
    seconds: float
    output_tokens_per_s: float
    steps: int
    token_slots: int
    useful_slots: int
    padding_fraction: float
    ttft_mean_s: float | None
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    itl_p50_s: float | None
    itl_p95_s: float | None
    itl_max_s: float | None


def percentile(values: Sequence[float], q: float) -> float | None:
    """Linear interpolation between the two nearest, as numpy does; None of nothing."""
    return float(np.percentile(values, q)) if len(values) else None


def summarise(outputs: Sequence[RequestOutput], records: Sequence[StepRecord], seconds: float) -> Summary:
    """Totals and percentiles of a run that took `seconds`. ITL gaps are pooled over all requests."""
    ttft = [o.metrics.ttft_s for o in outputs if o.metrics.ttft_s is not None]
    itl = [gap for o in outputs for gap in o.metrics.itl_s]
    tokens = sum(len(o.token_ids) for o in outputs)
    slots, useful = sum(r.token_slots for r in records), sum(r.useful_slots for r in records)
    return Summary(
        requests=len(outputs),
        output_tokens=tokens,
        seconds=seconds,
        output_tokens_per_s=tokens / seconds if seconds > 0 else 0.0,
        steps=len(records),
        token_slots=slots,
        useful_slots=useful,
        padding_fraction=wasted_fraction(useful, slots),
        ttft_mean_s=float(np.mean(ttft)) if ttft else None,
        ttft_p50_s=percentile(ttft, 50),
        ttft_p95_s=percentile(ttft, 95),
        itl_p50_s=percentile(itl, 50),
        itl_p95_s=percentile(itl, 95),
        itl_max_s=max(itl, default=None),
    )


@dataclass(slots=True)
class TimelineRow:
    """One request over the steps: a letter a step. The project's signature picture, in its plainest form.

    " " not there yet or gone   "." waits   "#" reads its prompt   "=" writes a token   "x" computes nothing useful
    """

    request_id: str
    cells: list[str]


def timeline(records: Sequence[StepRecord]) -> list[TimelineRow]:
    """A row a request in order of arrival, a cell a step."""
    rows: dict[str, TimelineRow] = {}
    there: dict[str, TimelineRow] = {}  # arrived and not finished
    for i, record in enumerate(records):
        for name in record.arrived:
            rows[name] = there[name] = TimelineRow(name, [" "] * i)
        ran = {entry.request_id: letter(entry) for entry in record.entries}
        for name, _ in record.finished:
            there.pop(name, None)  # a request that was aborted did not run in this step
        for name, row in rows.items():
            row.cells.append(ran.get(name, "." if name in there else " "))
    return list(rows.values())


def letter(entry: Entry) -> str:
    if entry.num_new == 0:
        return "x"
    return "#" if entry.num_computed < entry.num_prompt else "="


def timeline_text(records: Sequence[StepRecord], width: int = 72) -> list[str]:
    """The timeline as lines of text, squeezed into `width` columns."""
    rows = timeline(records)
    squeeze = max(1, -(-len(records) // width))
    label = max((len(row.request_id) for row in rows), default=0)
    lines = []
    for row in rows:
        groups = [row.cells[i : i + squeeze] for i in range(0, len(row.cells), squeeze)]
        lines.append(f"{row.request_id:>{label}} " + "".join(strongest(group) for group in groups).rstrip())
    return lines


def strongest(cells: Sequence[str]) -> str:
    """One letter for several steps: a prompt chunk is rarer than a token, so it wins."""
    return next((mark for mark in "#=x." if mark in cells), " ")
