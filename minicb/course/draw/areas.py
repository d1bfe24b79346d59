"""What a step computes, to scale, and what it computes for nothing. (Chapter 6)

`draw_areas` shows every score as an area: a block of rows and columns for each piece that attention works out
at once, coloured where somebody needs the score and hatched where nobody does. `draw_costs` sets the counts of
several workloads side by side, a bar for each way to compute them.

Both draw the counts and masks that they are given and work out nothing themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minicb.course.draw.canvas import MARGIN, Canvas, Style, text_width
from minicb.course.draw.grid import TIGHT as SMALL
from minicb.course.draw.grid import Grid, plain, runs
from minicb.course.draw.palette import DPI, FULL, HALF, LIGHT, SMALL_PT, TEXT_PT, Theme, hue, letter
from minicb.course.draw.picture import Picture

GAP = 7  # pixels between two blocks
BAR = 15  # pixels: the height of a bar
LETTER = 12  # pixels that an owner's letter needs
Counted = tuple[int, int]  # computed, useful


def draw_areas(
    ways: Sequence[Any],
    *,
    order: Sequence[object] = (),
    title: str = "Every score that is computed",
    data: str | None = None,
    width: float | None = None,
    theme: Theme = LIGHT,
) -> Picture:
    """The blocks of each way under its name, all on one scale.

    ways: objects with `name`, `cells` (computed, useful; the useful are the same in all) and `blocks`; a block has
        `needed` (bool [rows, columns]) and `owners`, one a column
    """
    computed = ", ".join(f"{way.cells[0]:,} {way.name}" for way in ways)
    data = data or f"{ways[0].cells[1]:,} useful cells; computed: {computed}"
    shapes = [[(len(b.needed), len(b.owners)) for b in way.blocks] for way in ways]
    width = width or (HALF if max(sum(cols for _, cols in row) for row in shapes) <= 40 else FULL)
    room = [(width * DPI - 2 * MARGIN - GAP * len(row)) / max(1, sum(cols for _, cols in row)) for row in shapes]
    cell = min(16, *room)
    cell = int(cell) if cell >= 3 else cell
    canvas = Canvas(width, theme)
    y = canvas.header(title, data)
    for way in ways:
        canvas.text(MARGIN, y + 6, way.name, TEXT_PT, bold=True)
        left = MARGIN + text_width(way.name, TEXT_PT, bold=True) + 8
        share = f"{way.cells[0]:,} cells, {100 * way.cells[1] / way.cells[0]:.1f} % useful"
        canvas.text(left, y + 6, share, SMALL_PT, color=theme.muted)
        y = _blocks(canvas, way.blocks, MARGIN, y + 40, cell, order) + 16
    y = canvas.key(MARGIN, y - 2, [("useful", Style(theme.slate)), ("computed for nothing", Style(hatch=True))])
    return canvas.picture(y, data, f"{title}, to scale, in blocks; {data}.")


def _blocks(canvas: Canvas, blocks: Sequence[Any], x: float, y: float, cell: float, order: Sequence[object]) -> float:
    """Blocks from left to right. Returns the lowest y."""
    bottom = y
    for block in blocks:
        rows = plain(block.needed)
        grid = Grid(canvas, round(x), y, cell, cell, len(rows), len(block.owners))
        if cell < SMALL:
            _shape(grid, rows, block.owners, order)
        else:
            for i, row in enumerate(rows):
                paired = zip(row, block.owners, strict=True)
                grid.paint(i, [Style(hue(owner, order)) if ok else Style(hatch=True) for ok, owner in paired])
        if cell < SMALL:  # a line over the letter would be taken for a row of cells
            for owner, start, end in runs(block.owners):
                if (end - start) * cell >= LETTER:
                    words = {"bold": True, "ha": "center", "color": letter(hue(owner, order), canvas.theme)}
                    canvas.text(grid.x + (start + end) / 2 * cell, y - 9, str(owner), TEXT_PT, **words)
        else:
            grid.owners_above(block.owners, y - 14, order)
        x, bottom = grid.right + GAP, max(bottom, grid.bottom)
    return bottom


def _shape(grid: Grid, rows: Sequence[Sequence[bool]], owners: Sequence[object], order: Sequence[object]) -> None:
    """Small cells one by one are only noise: one hatched area, and the needed cells painted over it."""
    canvas, cell = grid.canvas, grid.width
    if not all(map(all, rows)):
        canvas.hatch(grid.x, grid.y, grid.right - grid.x, grid.bottom - grid.y, z=1.5)
    for i, row in enumerate(rows):
        paired = [owner if ok else None for ok, owner in zip(row, owners, strict=True)]
        for owner, start, end in runs(paired):
            if owner is not None:
                canvas.fill(grid.x + start * cell, grid.y + i * cell, (end - start) * cell, cell, hue(owner, order))


def draw_costs(
    workloads: Mapping[str, Mapping[str, Mapping[str, Counted]]],
    *,
    title: str = "What each way computes",
    data: str | None = None,
    width: float = FULL,
    theme: Theme = LIGHT,
) -> Picture:
    """Bars for each workload, a column for each measure; the longest bar of a workload fills its column.

    workloads: {workload: {measure: {way: (computed, useful)}}}
    """
    measures = list(next(iter(workloads.values())))
    ways = list(next(iter(workloads.values()))[measures[0]])
    data = data or _shares(workloads, measures[-1])
    canvas = Canvas(width, theme)
    top = canvas.header(title, data)
    left = MARGIN + round(max(text_width(way, SMALL_PT) for way in ways)) + 10
    numbers = [f"{n:,}" for rows in workloads.values() for m in measures for n, _ in rows[m].values()]
    tail = round(max(text_width(number, SMALL_PT) for number in numbers)) + 24
    column = (canvas.width - left - MARGIN) // len(measures)
    for at, measure in enumerate(measures):
        canvas.text(left + at * column, top + 4, measure, SMALL_PT, color=theme.muted)
    y = top + 24
    for name, rows in workloads.items():
        canvas.text(MARGIN, y + 2, name, TEXT_PT, bold=True)
        y += 16
        for at, measure in enumerate(measures):
            scale = (column - tail) / max(computed for computed, _ in rows[measure].values())
            _bars(canvas, rows[measure], left + at * column, y, scale)
        for place, way in enumerate(ways):
            canvas.text(left - 8, y + place * (BAR + 3) + BAR / 2, way, SMALL_PT, ha="right")
        y += len(ways) * (BAR + 3) + 15
    y = canvas.key(left, y - 4, [("useful", Style(theme.slate)), ("computed for nothing", Style(hatch=True))])
    return canvas.picture(y, data, f"{title}: bars for {len(workloads)} workloads; {data}.")


def _bars(canvas: Canvas, counted: Mapping[str, Counted], x: float, y: float, scale: float) -> None:
    for computed, useful in counted.values():
        whole = max(2, round(scale * computed))
        good = min(whole, max(1, round(scale * useful)))
        canvas.fill(x, y, good, BAR, canvas.theme.slate)
        if whole - good > 1:
            canvas.hatch(x + good + 1, y, whole - good - 1, BAR)
        canvas.text(x + whole + 7, y + BAR / 2, f"{computed:,}", SMALL_PT)
        y += BAR + 3


def _shares(workloads: Mapping[str, Mapping[str, Mapping[str, Counted]]], measure: str) -> str:
    """The useful share of the last measure, in per cent, for each way."""
    parts = []
    for name, rows in workloads.items():
        shares = [f"{100 * useful / computed:.1f}" for computed, useful in rows[measure].values()]
        parts.append(f"{name}: {', '.join(shares)}")
    return f"useful {measure.split(',')[0]} in %: " + "; ".join(parts)
