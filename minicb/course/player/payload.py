"""What the page embeds: the requests, the steps of each run as short as they can be, and what each run comes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from minicb.course.draw.palette import HUES
from minicb.course.player.frames import Frame, frames, sentence, total
from minicb.metrics import StepRecord

Runs = Mapping[str, Sequence[StepRecord]]
Texts = Mapping[str, str | Sequence[str]]
MOST_STEPS, MOST_REQUESTS = 5_000, 200  # what a page can hold and a reader can see


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
