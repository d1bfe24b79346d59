"""A prompt that is read in chunks: one rectangle of score cells a chunk, one under the other. (Chapter 4)

Rows are the chunk's tokens, columns are all tokens up to its end; each chunk stands where its rows stand in
the causal square, so that one sees what was computed for nothing and what was never computed at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from minicb.course.draw.canvas import MARGIN, Canvas, Style, text_width
from minicb.course.draw.grid import LABEL_MIN, Grid, label
from minicb.course.draw.palette import DPI, FULL, HALF, LIGHT, SMALL_PT, Theme, hue, shade
from minicb.course.draw.picture import Picture

BIGGEST, BETWEEN = 28, 9  # pixels: a cell, and the paper between two chunks


def draw_chunks(
    spans: Sequence[Sequence[int]],
    tokens: Sequence[object] | None = None,
    *,
    owner: object = None,
    title: str = "A prompt in chunks",
    data: str | None = None,
    width: float | None = None,
    theme: Theme = LIGHT,
) -> Picture:
    """The score cells of a request's chunks.

    spans: first and end position of each chunk, in order (what follows them is left aside)
    tokens: words for all positions up to the last end
    """
    spans = [(start, end) for start, end, *_ in spans]
    total = spans[-1][1]
    names = [label(token) for token in (tokens if tokens is not None else range(total))]
    notes = [f"{end - start} \u00d7 {end} = {(end - start) * end}" for start, end in spans]
    data = data or _count(spans)
    left = MARGIN + max(text_width(name, SMALL_PT) for name in names) + 9
    beside = max(text_width(note, SMALL_PT) for note in notes) + 14
    room = {w: w * DPI - left - beside - MARGIN for w in (HALF, FULL)}
    width = width or (HALF if room[HALF] / total >= 22 else FULL)
    fits = room.get(width, width * DPI - left - beside - MARGIN) / total
    cell = int(min(BIGGEST, fits)) if fits >= 3 else fits
    canvas = Canvas(width, theme)
    top = canvas.header(title, data)
    head = Grid(canvas, left, 0, cell, cell, 1, total)
    y = head.y = top + head.cols_height(names)
    head.name_cols(names)
    styles = _styles(hue(owner), theme)
    for (start, end), note in zip(spans, notes, strict=True):
        grid = Grid(canvas, left, y, cell, cell, end - start, end)
        for row in range(start, end):
            grid.paint(row - start, [styles[_kind(row, col, start)] for col in range(end)])
        grid.name_rows(names[start:end])
        if end > start:
            canvas.outline(grid.x + 0.5, grid.y + 0.5, grid.right - grid.x, grid.bottom - grid.y, theme.ink, 1, 3)
        if cell >= LABEL_MIN:
            middle = (grid.y + grid.bottom) / 2
            canvas.text(left + total * cell + 14, middle, note, SMALL_PT, color=theme.muted)
        y = grid.bottom + (BETWEEN if cell >= LABEL_MIN else 3)
    used = {_kind(row, col, start) for start, end in spans for row in range(start, end) for col in range(end)}
    y = canvas.key(left, y + 4, [(words, styles[words]) for words in styles if words in used])
    return canvas.picture(y, data, f"{title}: a rectangle of cells for each chunk; {data}.")


def _styles(color: str, theme: Theme) -> dict[str, Style]:
    return {
        "new key": Style(fill=color),
        "key from the cache": Style(fill=shade(color, "cached", theme)),
        "computed, but masked": Style(hairline=True),
    }


def _kind(row: int, col: int, start: int) -> str:
    if col > row:
        return "computed, but masked"
    return "new key" if col >= start else "key from the cache"


def _count(spans: Sequence[Sequence[int]]) -> str:
    computed = sum((end - start) * end for start, end in spans)
    visible = sum(row + 1 for start, end in spans for row in range(start, end))
    total = spans[-1][1]
    chunks = "1 chunk" if len(spans) == 1 else f"{len(spans)} chunks"
    return f"{total} tokens in {chunks}: {computed:,} of {total * total:,} cells computed, {visible:,} visible"
