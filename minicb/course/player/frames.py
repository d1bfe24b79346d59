"""What the step player shows at each step, computed from the engine's records and from nothing else.

A `Frame` is one step as it is embedded in the page: who is where, what was computed for whom, and one sentence that
counts it. The page only draws; every number in it is made here, and tested here. Seconds are left out: the same
requests give the same page on every machine.

Waste has four names:
    padding   token slots that were computed for nobody
    held      finished requests whose rows are dragged along
    stalled   requests that wait while such a row keeps the place that they could have
    again     tokens that were computed before, and not kept
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from minicb.metrics import Entry, StepRecord


@dataclass(frozen=True, slots=True)
class Part:
    """One request in one step. Counts are tokens."""

    request: int  # its row on the page
    start: int  # in the cache before the step
    new: int  # computed for it
    padding: int  # computed beside it, for nobody
    sampled: bool
    again: int  # of the new ones: were computed before


@dataclass(frozen=True, slots=True)
class Frame:
    """One step. Requests are row numbers."""

    parts: tuple[Part, ...]
    waiting: tuple[int, ...]  # there, but not in this step
    held: tuple[int, ...]
    stalled: tuple[int, ...]
    finished: tuple[tuple[int, str], ...]
    slots: int
    useful: int
    reused: int  # tokens that were in the cache and did not have to be computed again
    cells: int  # scores computed, per head and layer
    seen: int  # of them, those that the mask lets through
    kept: int  # tokens in the cache after the step


@dataclass(frozen=True, slots=True)
class Total:
    """A run in one row. held, stalled: summed over the steps; waits and gap count slots computed for whomever.

    mean_wait, longest_wait: from arrival to the first token   gap: the longest between two tokens of one request
    """

    steps: int
    slots: int
    padding: int
    held: int
    stalled: int
    again: int
    cells: int
    mean_wait: int
    longest_wait: int
    gap: int


# ---- the steps


def frames(records: Sequence[StepRecord], names: Sequence[str]) -> Iterator[Frame]:
    """A frame a step."""
    row = {name: i for i, name in enumerate(names)}
    there = dict[int, None]()  # arrived and not finished
    known = dict[int, int]()  # tokens of each that were ever computed
    for record in records:
        there |= dict.fromkeys(row[name] for name in record.arrived)
        there |= dict.fromkeys(row[e.request_id] for e in record.entries if e.num_new)
        parts = tuple(part_of(entry, row[entry.request_id], known) for entry in record.entries)
        finished = {row[name]: why for name, why in record.finished}
        running = [part.request for part in parts]
        waiting = tuple(one for one in there if one not in running and one not in finished)
        held = tuple(one for one in running if one not in there)
        yield Frame(
            parts=parts,
            waiting=waiting,
            held=held,
            stalled=waiting[: len(held)],
            finished=tuple(finished.items()),
            slots=record.token_slots,
            useful=record.useful_slots,
            reused=sum(part.start for part in parts if part.new),
            cells=record.score_cells,
            seen=record.useful_cells,
            kept=record.cache_tokens,
        )
        for one in finished:
            there.pop(one, None)


def part_of(entry: Entry, row: int, known: dict[int, int]) -> Part:
    """A request's part; `known` is brought up to date."""
    start, new, before = entry.num_computed, entry.num_new, known.get(row, 0)
    known[row] = max(before, start + new)
    again = max(0, min(before, start + new) - start)
    return Part(row, start, new, entry.padding, entry.sampled, again)


def sentence(frame: Frame, tags: Sequence[str]) -> str:
    """The step in counts: computed, reused, wasted; and who is in whose way."""
    padding, again = frame.slots - frame.useful, sum(part.again for part in frame.parts)
    wasted = [f"{padding:,} on padding"] * (padding > 0) + [f"{again:,} on what was computed before"] * (again > 0)
    said = [f"Computes {counted(frame.useful, 'token')}, reuses {frame.reused:,} from the cache, "]
    said[0] += f"wastes {' and '.join(wasted) or 0}."
    if frame.held:
        said.append(f"{listed(frame.held, tags)} {verb(frame.held, 'is', 'are')} done but held in the batch.")
    if frame.stalled:
        said.append(f"{listed(frame.stalled, tags)} {verb(frame.stalled, 'is', 'are')} stalled.")
    if frame.finished:
        ended = [one for one, _ in frame.finished]
        said.append(f"{listed(ended, tags)} {verb(ended, 'ends', 'end')} here.")
    return " ".join(said)


def verb(who: Sequence[int], one: str, many: str) -> str:
    return one if len(who) == 1 else many


def counted(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def listed(rows: Sequence[int], tags: Sequence[str]) -> str:
    """A, B and C; or, of many, the first and how many more."""
    shown = [tags[row] for row in rows]
    if len(rows) > 8:
        return f"{', '.join(shown[:6])} and {len(rows) - 6} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def total(steps: Sequence[Frame]) -> Total:
    slots = sum(frame.slots for frame in steps)
    waits, gap = waits_and_gap(steps)
    return Total(
        steps=len(steps),
        slots=slots,
        padding=slots - sum(frame.useful for frame in steps),
        held=sum(len(frame.held) for frame in steps),
        stalled=sum(len(frame.stalled) for frame in steps),
        again=sum(part.again for frame in steps for part in frame.parts),
        cells=sum(frame.cells for frame in steps),
        mean_wait=round(sum(waits) / max(1, len(waits))),
        longest_wait=max(waits, default=0),
        gap=gap,
    )


def waits_and_gap(steps: Sequence[Frame]) -> tuple[list[int], int]:
    """In slots: how long each request waited for its first token, and the longest gap between two tokens of one."""
    done, gap = 0, 0
    came, latest = dict[int, int](), dict[int, int]()  # slots that were done at its arrival, at its latest token
    waits = []
    for frame in steps:
        for one in (*frame.waiting, *(part.request for part in frame.parts)):
            came.setdefault(one, done)
        done += frame.slots
        for part in frame.parts:
            if part.sampled and part.request in latest:
                gap = max(gap, done - latest[part.request])
            elif part.sampled:
                waits.append(done - came[part.request])
            if part.sampled:
                latest[part.request] = done
    return waits, gap
