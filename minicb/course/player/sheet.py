"""The contact sheet: the player's story as one still picture, for where no script runs.

First every run's timeline on one step axis; then, for each run, the tokens of the three steps that tell most about
it, framed in the timeline above. It is drawn from the same frames as the page and with its sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minicb.course.draw.canvas import MARGIN, Canvas, Style, wrap
from minicb.course.draw.grid import Grid
from minicb.course.draw.palette import FULL, SMALL_PT, TEXT_PT, hue, ink_on, letter, shade
from minicb.course.draw.picture import Picture
from minicb.course.draw.timeline import Scale, draw_timeline
from minicb.course.player.frames import Frame, Part, frames, sentence
from minicb.course.player.payload import Runs, is_rectangle

STILLS = 3
GAP = 18  # pixels between stills
TALLEST = 120  # pixels of a strip
CELL = 18  # pixels, at most
Token = tuple[int, str] | None  # whose and what; None is padding


def contact_sheet(runs: Runs, requests: Sequence[Mapping[str, Any]], *, title: str, data: str) -> Picture:
    """runs: name -> records, all of the same requests   requests: name, tag and prompt of each   data: the data line"""
    names, tags = [str(one["name"]) for one in requests], [str(one["tag"]) for one in requests]
    shown = {name: list(frames(records, names)) for name, records in runs.items()}
    chosen = {name: telling(steps) for name, steps in shown.items()}

    def stills(canvas: Canvas, scale: Scale, places: Mapping[str, tuple[float, float]], y: float) -> float:
        y = legend(canvas, requests, y) if names != tags else y + 8
        for name, numbers in chosen.items():
            for number in numbers:
                x, (top, bottom) = scale.left + number * scale.step, places[name]
                canvas.outline(x - 0.5, top - 3, max(scale.step, 3) + 2, bottom - top + 6, canvas.theme.ink, 1.2, 3.5)
            row = Row(canvas, requests, tags, is_rectangle(runs[name]))
            y = row.draw(name, {number: shown[name][number] for number in numbers}, y)
        return y

    picture = draw_timeline(runs, order=names, title=title, width=FULL, more=stills)
    told = [f"{name}, step {n}: {sentence(shown[name][n], tags)}" for name in chosen for n in chosen[name]]
    alt = f"{title}: the timelines of {len(names)} requests ({data}), and some steps of each. {' '.join(told)}"
    return Picture(picture.figure, data, alt)


def telling(steps: Sequence[Frame]) -> list[int]:
    """The steps to show: the largest, where most are in each other's way, where prompts and tokens mix, and so on."""

    def most(value: Callable[[Frame], int]) -> list[int]:
        best = max(range(len(steps)), key=lambda i: value(steps[i]))
        return [best] if value(steps[best]) else []

    def reads_beside_writers(step: Frame) -> int:
        sampled = sum(part.sampled and part.start > 0 for part in step.parts)
        return sampled * (sum(part.new for part in step.parts if part.new > 1))

    found = most(lambda step: step.slots)
    found += most(lambda step: 1000 * len(step.stalled) + len(step.held))
    found += most(reads_beside_writers)
    found += most(lambda step: step.slots - step.useful)
    found += [number for number, step in enumerate(steps) if number and any(part.start == 0 for part in step.parts)][:1]
    found += [len(steps) - 1, len(steps) // 2]
    return sorted(list(dict.fromkeys(found))[:STILLS])


def legend(canvas: Canvas, requests: Sequence[Mapping[str, Any]], y: float) -> float:
    """Which letter is whose, where the names are too long for a cell."""
    words = ", ".join(f"{one['tag']} {one['name']}" for one in requests)
    for line in wrap(words, canvas.width - 2 * MARGIN, SMALL_PT):
        canvas.text(MARGIN, y, line, SMALL_PT, color=canvas.theme.muted)
        y += 15
    return y + 14


@dataclass(slots=True)
class Row:
    """The stills of one run side by side, each with its sentence."""

    canvas: Canvas
    requests: Sequence[Mapping[str, Any]]
    tags: Sequence[str]
    rectangle: bool

    def draw(self, name: str, steps: Mapping[int, Frame], y: float) -> float:
        """Returns the y below them."""
        canvas = self.canvas
        width = (canvas.width - 2 * MARGIN - (STILLS - 1) * GAP) / STILLS
        canvas.stroke([(MARGIN, y - 8.5), (canvas.width - MARGIN, y - 8.5)], canvas.theme.rule)
        canvas.text(MARGIN, y + 6, name, TEXT_PT, bold=True)
        said = {number: wrap(sentence(frame, self.tags), width, SMALL_PT) for number, frame in steps.items()}
        top = y + 26
        under = top + 15 * max(map(len, said.values())) + 14
        lowest = under
        for place, (number, frame) in enumerate(steps.items()):
            x = round(MARGIN + place * (width + GAP))
            canvas.text(x, top, f"step {number}", SMALL_PT, bold=True)
            for line, words in enumerate(said[number], 1):
                canvas.text(x, top + 15 * line, words, SMALL_PT)
            lowest = max(lowest, self.strip(frame, x, under, width))
        return lowest + 26

    def strip(self, frame: Frame, x: float, y: float, width: float) -> float:
        """The tokens of a step: a rectangle with its padding, or one ragged row, wrapped. Returns the y below it."""
        label = 20 if self.rectangle else 0
        rows = self.rows(frame, width)
        columns = max(map(len, rows))
        cell = min(CELL, (width - label) / columns, TALLEST / len(rows))
        cell = int(cell) if cell >= 3 else cell
        grid = Grid(self.canvas, x + label, y, cell, max(cell, 6) if label else cell, len(rows), columns)
        everybody = range(len(self.tags))
        for i, row in enumerate(rows):
            fills = [shade(hue(one[0], everybody), one[1], self.canvas.theme) if one else None for one in row]
            grid.paint(i, [Style(fill, hatch=fill is None) for fill in fills])
            for j, (one, fill) in enumerate(zip(row, fills, strict=True)):
                if one and fill and cell >= 12:
                    grid.write(i, j, self.tags[one[0]], fill, color=ink_on(fill))
            if label and grid.height >= 10:
                self.name(frame.parts[i].request, x + label - 6, grid.mid(i, 0)[1])
        return grid.bottom

    def name(self, request: int, x: float, y: float) -> None:
        color = letter(hue(request, range(len(self.tags))), self.canvas.theme)
        self.canvas.text(x, y, self.tags[request], SMALL_PT, bold=True, ha="right", color=color)

    def rows(self, frame: Frame, width: float) -> list[list[Token]]:
        """The cells line by line."""
        if self.rectangle:
            return [[*[None] * part.padding, *self.tokens(part)] for part in frame.parts]
        tokens = [token for part in frame.parts for token in self.tokens(part)]
        size = CELL
        while size > 3 and -(-len(tokens) // int(width / size)) * size > TALLEST:
            size -= 1
        per_line = int(width / size)
        return [tokens[i : i + per_line] for i in range(0, len(tokens), per_line)]

    def tokens(self, part: Part) -> list[Token]:
        """A request's new tokens: of its prompt, or generated."""
        prompt = self.requests[part.request]["prompt"]
        kinds = [
            "prompt" if position < prompt else "generated" for position in range(part.start, part.start + part.new)
        ]
        return [(part.request, kind) for kind in kinds]
