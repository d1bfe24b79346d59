"""One answer, pass by pass: a row for each pass of the model, a column for each token of the text. (Chapter 3)

A full cell was computed in this pass for the first time, a hatched one had been computed before, a pale one was
read from the cache. Without a cache the picture is a hatched triangle, with one it is a diagonal.

It draws pairs of numbers and knows nothing of the engine that counted them.
"""

from __future__ import annotations

from collections.abc import Sequence

from minicb.course.draw.canvas import MARGIN, Canvas, Style, text_width
from minicb.course.draw.grid import Grid, label
from minicb.course.draw.palette import DPI, FULL, HALF, LIGHT, SMALL_PT, Theme, hue, shade
from minicb.course.draw.picture import Picture

LOOKS = ("computed", "computed again", "from the cache")


def draw_passes(
    passes: Sequence[tuple[int, int]],
    tokens: Sequence[object] | None = None,
    *,
    owner: object = None,
    title: str = "Pass by pass",
    data: str | None = None,
    width: float | None = None,
    theme: Theme = LIGHT,
) -> Picture:
    """What each pass of one answer computes.

    passes: (tokens that were in the cache, tokens computed) for each   tokens: words for the columns
    """
    kinds = _kinds(passes)
    columns = max(map(len, kinds))
    words = [label(token) for token in tokens][:columns] if tokens is not None else []
    counts = {look: sum(row.count(look) for row in kinds) for look in LOOKS}
    computed = counts["computed"] + counts["computed again"]
    data = data or f"{len(passes)} passes, {computed} tokens computed, {counts['computed again']} of them again"
    names = [f"pass {number}" for number in range(1, len(passes) + 1)]
    totals = [f"{count} computed" for _, count in passes]
    left = MARGIN + round(max(text_width(name, SMALL_PT) for name in names)) + 10
    right = MARGIN + round(max(text_width(total, SMALL_PT) for total in totals)) + 12
    room = {w: (w * DPI - left - right) / columns for w in (HALF, FULL)}
    width = width or (HALF if room[HALF] >= (24 if words else 14) else FULL)
    cell = min(30, (width * DPI - left - right) / columns)
    cell = int(cell) if cell >= 3 else cell
    canvas = Canvas(width, theme)
    top = canvas.header(title, data)
    grid = Grid(canvas, left, 0, cell, max(12, min(24, cell)), len(passes), columns)
    grid.y = round(top + grid.cols_height(words))
    looks = _looks(hue(owner), theme)
    for row, row_kinds in enumerate(kinds):
        grid.paint(row, [looks[kind] for kind in row_kinds])
        x = grid.x + len(row_kinds) * grid.width + 9
        canvas.text(x, grid.mid(row, 0)[1], totals[row].split()[0] if row else totals[row], SMALL_PT, color=theme.muted)
    grid.name_rows(names)
    grid.name_cols(words)
    bottom = canvas.key(grid.x, grid.bottom + 8, [(look, looks[look]) for look in LOOKS if counts[look]])
    return canvas.picture(bottom, data, f"{title}: a row of cells for each of {len(passes)} passes; {data}.")


def _kinds(passes: Sequence[tuple[int, int]]) -> list[list[str]]:
    """For each pass the looks of its tokens, from the first of the text to the newest."""
    rows, known = [], 0
    for held, count in passes:
        again = max(0, min(known, held + count) - held)
        rows.append([LOOKS[2]] * held + [LOOKS[1]] * again + [LOOKS[0]] * (count - again))
        known = max(known, held + count)
    return rows


def _looks(color: str, theme: Theme) -> dict[str, Style]:
    styles = (Style(shade(color, "new", theme)), Style(hatch=True), Style(shade(color, "cached", theme)))
    return dict(zip(LOOKS, styles, strict=True))
