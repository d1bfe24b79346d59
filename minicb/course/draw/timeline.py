"""The timeline: a row a request, a column a step. The project's signature. (Chapters 5, 7 and 8)

A grey line while a request waits, full cells for chunks of its prompt, light cells for generated
tokens, hatched cells where a padded engine computes nothing useful. Several runs stand one under the
other on one step axis, so that the same requests can be compared.

It draws a list of plain records, one a step, and knows nothing of the engine that wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from minicb.course.draw.canvas import MARGIN, Canvas, Style, text_width
from minicb.course.draw.grid import TIGHT, runs
from minicb.course.draw.palette import DPI, FULL, HALF, LIGHT, SMALL_PT, TEXT_PT, Theme, hue, ink_on, letter, shade
from minicb.course.draw.picture import Picture

KEY_ROOM = 260  # pixels that the key may need


class Entry(NamedTuple):
    """What one request did in one step."""

    request_id: str
    num_new: int  # useful tokens computed for it
    num_computed: int  # tokens it had in the cache before the step
    num_prompt: int
    padding: int  # token slots computed for it that nobody needed


class Step(NamedTuple):
    entries: list[Entry]
    waiting: list[str]


def read_steps(records: Iterable[Any]) -> list[Step]:
    """The records of a run, dicts or objects with the same field names, as `Step`s.

    Who waits is in the field `waiting`, or follows from `arrived` and `finished`, as in an engine's `StepRecord`.
    """

    def field(record: Any, name: str, default: Any = 0) -> Any:
        return record.get(name, default) if isinstance(record, Mapping) else getattr(record, name, default)

    steps, there = [], dict[str, None]()  # there: arrived and not finished
    for record in records:
        entries = [
            Entry(str(field(e, "request_id")), *(int(field(e, name)) for name in Entry._fields[1:]))
            for e in field(record, "entries", ())
        ]
        there.update(dict.fromkeys(map(str, field(record, "arrived", ()))))
        ran = {entry.request_id for entry in entries}
        waiting = field(record, "waiting", None)
        steps.append(Step(entries, [n for n in there if n not in ran] if waiting is None else list(map(str, waiting))))
        for name, _ in field(record, "finished", ()):
            there.pop(str(name), None)
    return steps


class Cell(NamedTuple):
    """One column of a row: waiting, prompt, generated or padding; the useful share of its slots."""

    kind: str
    tokens: int
    useful: float


@dataclass(slots=True)
class Scale:
    """Where steps and rows lie, the same for all runs of a picture."""

    left: float
    step: float  # pixels a column
    pitch: int  # pixels from row to row
    height: int  # of a cell
    numbers: bool  # are the columns wide enough for the chunks' token counts?


def draw_timeline(
    steps: Sequence[Any] | Mapping[str, Sequence[Any]],
    *,
    order: Sequence[str] = (),
    title: str = "Who runs when",
    data: str | None = None,
    width: float | None = None,
    theme: Theme = LIGHT,
    more: Callable[[Canvas, Scale, Mapping[str, tuple[float, float]], float], float] | None = None,
) -> Picture:
    """The timeline of one run, or of several on one step axis.

    steps: the engine's `StepRecord`s, or dicts {"entries": [{"request_id", "num_new", "num_computed",
           "num_prompt", "padding"}], "waiting": [ids]}; or {name of the run: records}
    order: the requests from top to bottom (default: as they appear); it also decides the hues
    more: draws on below it: (canvas, scale, run -> its top and bottom, y) -> the y below all
    """
    named = dict(steps) if isinstance(steps, Mapping) else {"": steps}
    all_runs = {name: read_steps(records) for name, records in named.items()}
    rows = list(order) or _appearance(all_runs.values())
    longest = max(1, *map(len, all_runs.values()))
    label = max((text_width(name, SMALL_PT, bold=True) for name in rows), default=0)
    width = width or (HALF if longest <= 12 and len(rows) <= 6 else FULL)
    counts = [e.num_new for run in all_runs.values() for step in run for e in step.entries]
    widest = text_width(str(max(counts, default=0)), SMALL_PT) + 3
    scale = _scale(width, label, longest, len(rows), len(all_runs), widest)
    canvas = Canvas(width, theme)
    hues = {name: hue(name, order) for name in rows}
    lines = {name: count_slots(run) for name, run in all_runs.items()}
    data = data or "; ".join(f"{name}: {line}" if name else line for name, line in lines.items())
    y = canvas.header(title, data if len(all_runs) == 1 else "")
    places = {}
    for name, run in all_runs.items():
        top = y = _name_run(canvas, name, lines[name], y) if name else y
        y = _draw_run(canvas, scale, run, hues, y, ended=len(all_runs) > 1)
        places[name] = (top, y)
        y += 20 if name else 0
    y = _axis(canvas, scale, longest, y + (0 if len(all_runs) > 1 else 6))
    y = canvas.key(scale.left, y, _key(all_runs.values(), theme))
    if more is not None:
        y = more(canvas, scale, places, y + 14)
    return canvas.picture(y, data, f"{title}: a timeline of {len(rows)} requests, a column a step; {data}.")


def _appearance(all_runs: Iterable[list[Step]]) -> list[str]:
    seen: dict[str, None] = {}
    for run in all_runs:
        for step in run:
            seen.update(dict.fromkeys([entry.request_id for entry in step.entries] + step.waiting))
    return list(seen)


def _scale(width: float, label: float, steps: int, rows: int, count_runs: int, widest: float) -> Scale:
    left = MARGIN + round(label) + 12
    # Room at the right for the end mark of the longest run ("120 steps").
    room = width * DPI - left - MARGIN - (56 if count_runs > 1 else 6)
    step = min(46, room / steps)
    step = int(step) if step >= TIGHT else step
    pitch = 38 if rows <= 4 else 28 if rows <= 8 else 19 if rows <= 16 else 14
    height = pitch - (8 if rows <= 4 else 6 if rows <= 8 else 4 if rows <= 16 else 3)
    return Scale(left, step, pitch, height, step >= max(widest, TIGHT))


def count_slots(run: Sequence[Step]) -> str:
    """The data line of a run: its steps, its token slots, and how many of them were padding."""
    useful = sum(entry.num_new for step in run for entry in step.entries)
    padding = sum(entry.padding for step in run for entry in step.entries)
    slots = useful + padding
    share = f" ({round(100 * padding / slots)} %)" if padding else ""
    return f"{len(run)} steps, {slots:,} token slots, {padding:,} padding{share}"


def lane(run: Sequence[Step], name: str) -> list[Cell | None]:
    """One request through the steps of a run; None where it is not there."""
    cells: list[Cell | None] = []
    for step in run:
        entry = next((e for e in step.entries if e.request_id == name), None)
        if entry is None:
            cells.append(Cell("waiting", 0, 0) if name in step.waiting else None)
        elif entry.num_new == 0:
            cells.append(Cell("padding", 0, 0) if entry.padding else None)
        else:
            kind = "prompt" if entry.num_computed < entry.num_prompt else "generated"
            cells.append(Cell(kind, entry.num_new, entry.num_new / (entry.num_new + entry.padding)))
    return cells


def _name_run(canvas: Canvas, name: str, line: str, y: float) -> float:
    """The name of a run and its data line, on one line if they fit."""
    start = MARGIN + text_width(name, TEXT_PT, bold=True) + 12
    canvas.text(MARGIN, y + 4, name, TEXT_PT, bold=True)
    if start + text_width(line, SMALL_PT) > canvas.width - MARGIN:
        start, y = MARGIN, y + 16
    canvas.text(start, y + 4, line, SMALL_PT, color=canvas.theme.muted)
    return y + 20


def _draw_run(
    canvas: Canvas, scale: Scale, run: Sequence[Step], hues: Mapping[str, str], y: float, ended: bool
) -> float:
    theme = canvas.theme
    for row, (name, color) in enumerate(hues.items()):
        top = y + row * scale.pitch
        middle = top + scale.height / 2 + 0.5
        canvas.text(scale.left - 8, middle, name, SMALL_PT, bold=True, ha="right", color=letter(color, theme))
        cells = lane(run, name)
        for cell, start, end in runs(cells):
            x, right = scale.left + start * scale.step, scale.left + end * scale.step
            if cell is None:
                continue
            if cell.kind == "waiting":
                canvas.fill(x, round(middle) - 1, right - x, 3 if scale.height > 12 else 2, theme.rule)
            else:
                _draw_cells(canvas, scale, cell, color, (x, top, end - start))
    bottom = y + len(hues) * scale.pitch - (scale.pitch - scale.height)
    if ended:
        x = scale.left + len(run) * scale.step + 0.5
        canvas.stroke([(x, y - 3), (x, bottom + 5)], theme.ink, 1, 3)
        canvas.text(x + 6, bottom - 2, f"{len(run)} steps", SMALL_PT)
    return bottom


def _draw_cells(canvas: Canvas, scale: Scale, cell: Cell, color: str, place: tuple[float, float, int]) -> None:
    """Equal neighbours: one by one with gaps where there is room, else as one bar."""
    x, top, count = place
    tight = scale.step < TIGHT
    gap, pieces, wide = (0, 1, count * scale.step) if tight else (1, count, scale.step)
    fill = shade(color, cell.kind, canvas.theme) if cell.kind != "padding" else canvas.theme.paper
    # The useful share of the slots is filled from below; what is left is padding.
    full = max(3, round(cell.useful * scale.height)) if cell.useful else 0
    if tight and full:
        full = scale.height  # too narrow to be read as a share
    for k in range(pieces):
        left = x + k * wide + gap
        if full < scale.height:
            canvas.hatch(left, top, wide - gap, scale.height - full - (1 if full else 0))
        if full:
            canvas.fill(left, top + scale.height - full, wide - gap, full, fill)
        if scale.numbers and full >= 11 and (cell.kind == "prompt" or cell.tokens > 1):
            middle = top + scale.height - full / 2 + 0.5
            look = {"ha": "center", "color": ink_on(fill)}
            canvas.text(left + (wide - gap) / 2, middle, str(cell.tokens), SMALL_PT, **look)


def _axis(canvas: Canvas, scale: Scale, steps: int, y: float) -> float:
    """A thin line with round numbers; its name stands over the key, or beside it where there is room."""
    ink = canvas.theme.ink
    every = next(n for n in (1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 10**6) if steps / n <= 11 and n * scale.step >= 24)
    canvas.stroke([(scale.left, y + 0.5), (scale.left + steps * scale.step + 1, y + 0.5)], ink)
    marks = [*range(0, steps + 1, every)]
    for mark in marks:
        x = scale.left + mark * scale.step + 0.5
        canvas.stroke([(x, y), (x, y + 6)], ink)
        canvas.text(x, y + 15, str(mark), SMALL_PT, ha="center")
    end = scale.left + steps * scale.step
    name = "engine steps"
    beside = end - text_width(name, SMALL_PT) > scale.left + KEY_ROOM
    canvas.text(end, y + (35 if beside else 33), name, SMALL_PT, ha="right", color=canvas.theme.muted)
    if not beside:
        return y + 46
    return y + 28


def _key(all_runs: Iterable[list[Step]], theme: Theme) -> list[tuple[str, Style]]:
    wasted = any(entry.padding for run in all_runs for step in run for entry in step.entries)
    items = [("prompt", Style(shade(theme.slate, "prompt", theme)))]
    items.append(("generated", Style(shade(theme.slate, "generated", theme))))
    return items + ([("padding", Style(hatch=True))] if wasted else [])
