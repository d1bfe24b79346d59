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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from minicb.course.draw.palette import HUES
from minicb.metrics import Entry, StepRecord

Runs = Mapping[str, Sequence[StepRecord]]
MOST_STEPS, MOST_REQUESTS = 5_000, 200  # what a page can hold and a reader can see
Texts = Mapping[str, str | Sequence[str]]


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


def payload(runs: Runs, title: str, texts: Texts | None = None) -> dict[str, Any]:
    """Everything that the page needs, as plain data for JSON.

    texts: request -> its words, or the list of its tokens, which are then written into the cells
    Raises ValueError if there is nothing to play or too much, or if the runs did not serve the same requests.
    """
    prompts = same_requests(runs)
    names = list(prompts)
    unknown = sorted(set(texts or {}) - set(names))
    if unknown:
        raise ValueError(f"texts name requests that the trace does not have: {', '.join(unknown)}")
    requests = [
        {"name": name, "tag": tag(name, row, names), "prompt": prompts[name], "hue": row % len(HUES)}
        | words((texts or {}).get(name))
        for row, name in enumerate(names)
    ]
    tags = [str(one["tag"]) for one in requests]
    modes = []
    for name, records in runs.items():
        steps = list(frames(records, names))
        modes.append(
            {
                "name": name,
                "rectangle": is_rectangle(records),
                "capacity": records[0].cache_capacity,
                "total": asdict(total(steps)),
                "steps": [packed(frame) | {"say": sentence(frame, tags)} for frame in steps],
            }
        )
    return {"title": title, "requests": requests, "modes": modes, "notes": differences(runs)}


def words(text: str | Sequence[str] | None) -> dict[str, Any]:
    if text is None:
        return {}
    return {"text": text} if isinstance(text, str) else {"text": "".join(text), "tokens": list(text)}


def tag(name: str, row: int, names: Sequence[str]) -> str:
    """What stands in a request's cells: its name if all are short, else a letter or a number."""
    if all(len(one) <= 2 for one in names):
        return name
    return chr(ord("A") + row) if len(names) <= 26 else str(row + 1)


def packed(frame: Frame) -> dict[str, Any]:
    """A frame as short as it can be: parts as lists, empty fields left out."""
    fields = asdict(frame)
    fields["parts"] = [[p.request, p.start, p.new, p.padding, int(p.sampled), p.again] for p in frame.parts]
    return {name: value for name, value in fields.items() if value not in ((), 0)}


# ---- are these the same requests?


def same_requests(runs: Runs) -> dict[str, int]:
    """Request -> tokens of its prompt, in order of arrival. Raises ValueError if the runs do not agree."""
    if not runs:
        raise ValueError("nothing to play: give at least one run")
    for name, records in runs.items():
        if not records:
            raise ValueError(f"{name}: the trace has no steps")
        if len(records) > MOST_STEPS:
            raise ValueError(f"{name} has {len(records):,} steps, more than {MOST_STEPS:,}: play a part of it")
    first, *others = runs
    wanted = prompts_of(runs[first])
    if len(wanted) > MOST_REQUESTS:
        raise ValueError(f"{first} has {len(wanted):,} requests, more than {MOST_REQUESTS}: play fewer")
    for name in others:
        other = prompts_of(runs[name])
        strangers = sorted(set(wanted) ^ set(other))
        if strangers:
            where = first if strangers[0] in wanted else name
            raise ValueError(f"{first} and {name} served different requests: {strangers[0]!r} is only in {where}")
        for request, length in wanted.items():
            if None not in (length, other[request]) and length != other[request]:
                lengths = f"its prompt has {length} tokens in {first} and {other[request]} in {name}"
                raise ValueError(f"{first} and {name} served different requests: {request!r}, {lengths}")
    return {request: length or 0 for request, length in wanted.items()}


def prompts_of(records: Sequence[StepRecord]) -> dict[str, int | None]:
    """Request -> tokens of its prompt, None if it never ran."""
    found: dict[str, int | None] = {}
    for record in records:
        for name in record.arrived:
            found.setdefault(name, None)
        for entry in record.entries:
            known = found.get(entry.request_id)
            found[entry.request_id] = entry.num_prompt if known is None else min(known, entry.num_prompt)
    return found


def differences(runs: Runs) -> list[str]:
    """Where the runs did not write equally much, in words: then they are not quite the same work."""
    first, *others = runs
    wrote = {name: written(records) for name, records in runs.items()}
    notes = []
    for other in others:
        unequal = [one for one in prompts_of(runs[first]) if wrote[first].get(one, 0) != wrote[other].get(one, 0)]
        if unequal:
            which = f"{unequal[0]} and {len(unequal) - 1} more" if len(unequal) > 1 else unequal[0]
            notes.append(f"{first} and {other} did not write equally many tokens for {which}.")
    return notes


def written(records: Sequence[StepRecord]) -> dict[str, int]:
    """Request -> tokens that were sampled for it."""
    counts: dict[str, int] = {}
    for record in records:
        for entry in record.entries:
            counts[entry.request_id] = counts.get(entry.request_id, 0) + entry.sampled
    return counts


def is_rectangle(records: Sequence[StepRecord]) -> bool:
    """Did this run pad its steps to rectangles?"""
    return any(entry.padding for record in records for entry in record.entries)


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
