"""Masks and score matrices: a row for each query, a column for each key. (Chapters 1, 2 and 6)

`draw_mask` shows who may look at whom. A visible cell has the hue of the *key's* owner, so a row that
peeks into another request's keys shows a strange hue, and the data line counts those cells.
`draw_matrix` writes the numbers into the cells: scores, weights, or any other small table.

Both take the tensors that the engine used, or nested lists.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from minicb.course.draw.canvas import MARGIN, Canvas, Style, text_width, wrap
from minicb.course.draw.grid import Grid, label, plain
from minicb.course.draw.palette import DPI, FULL, HALF, LIGHT, SMALL_PT, Theme, blend, hue, shade
from minicb.course.draw.picture import Picture

Labels = Sequence[object] | None
Owners = Sequence[object] | str | None
TALLEST = 480  # pixels: a mask of many tokens stops growing here


def draw_mask(
    mask: Any,
    rows: Labels = None,
    cols: Labels = None,
    *,
    row_owners: Owners = None,
    col_owners: Owners = None,
    col_roles: Sequence[str] | None = None,
    order: Sequence[object] = (),
    frame_row: int | None = None,
    frame_col: int | None = None,
    note: str = "",
    title: str = "Who may look at whom",
    data: str | None = None,
    width: float | None = None,
    theme: Theme = LIGHT,
) -> Picture:
    """A mask as cells.

    mask: bool [T, S], True = may look   rows, cols: token labels of the T queries and S keys
    row_owners, col_owners: the request of each row and column ("AAAB" will do); None: one request
    col_roles: "new" (default), "cached" or "padding" for each key
    frame_row, frame_col, note: one row or column to speak about, and what to say
    """
    cells = [[bool(seen) for seen in row] for row in plain(mask)]
    count_q, count_k = len(cells), len(cells[0]) if cells else 0
    roles = list(col_roles or ["new"] * count_k)
    keys: list[object] = list(col_owners) if col_owners is not None else [None] * count_k
    queries: list[object] = list(row_owners) if row_owners is not None else [None] * count_q
    leaks = sum(seen and queries[i] != keys[j] for i, row in enumerate(cells) for j, seen in enumerate(row))
    seen = sum(map(sum, cells))
    data = data or f"{count_q} queries, {count_k} keys, {seen} visible cells" + (
        f", {leaks} of them in another request" if leaks else ""
    )
    sheet = Sheet(count_q, count_k, rows, cols, row_owners, col_owners, order, note if frame_row is not None else "")
    canvas, grid = sheet.begin(title, data, width, theme, biggest=34)
    for i, row in enumerate(cells):
        grid.paint(i, [_mask_style(ok, keys[j], roles[j], order, theme) for j, ok in enumerate(row)])
    sheet.label(grid, [theme.muted if role != "new" else theme.ink for role in roles])
    bottom = sheet.finish(grid, frame_row, frame_col, note)
    if len({*roles}) > 1 or len({*keys}) > 1:
        bottom = canvas.key(grid.x, bottom + 8, _mask_key(roles, keys, cells, order, theme))
    return canvas.picture(bottom, data, f"{title}: a mask of {count_q} rows by {count_k} columns; {data}.")


def _mask_style(ok: bool, owner: object, role: str, order: Sequence[object], theme: Theme) -> Style:
    if ok:
        return Style(fill=shade(hue(owner, order), "new" if role == "padding" else role, theme))
    return Style(hatch=True) if role == "padding" else Style(hairline=True)


def _mask_key(
    roles: list[str], keys: list[object], cells: list[list[bool]], order: Sequence[object], theme: Theme
) -> list[tuple[str, Style]]:
    base = hue(keys[0], order) if len({*keys}) == 1 else theme.slate
    items = [("new key", Style(fill=base))] if "cached" in roles else [("may look", Style(fill=base))]
    if "cached" in roles:
        items.append(("key from the cache", Style(fill=shade(base, "cached", theme))))
    if "padding" in roles:
        items.append(("padding", Style(hatch=True)))
    if not all(map(all, cells)):
        items.append(("masked", Style(hairline=True)))
    return items


def draw_matrix(
    values: Any,
    rows: Labels = None,
    cols: Labels = None,
    *,
    mask: Any = None,
    owner: object = None,
    digits: int = 2,
    totals: bool = False,
    frame_row: int | None = None,
    frame_col: int | None = None,
    note: str = "",
    title: str = "Scores",
    data: str | None = None,
    width: float | None = None,
    theme: Theme = LIGHT,
) -> Picture:
    """A matrix with its numbers: the higher the number, the deeper the shade of one hue.

    values: float [R, C]   mask: bool [R, C], False = drawn empty   totals: the sum at the end of each row
    """
    table = [[float(value) for value in row] for row in plain(values)]
    hidden = [[not ok for ok in row] for row in plain(mask)] if mask is not None else [[False] * len(r) for r in table]
    shown = [v for i, row in enumerate(table) for j, v in enumerate(row) if not hidden[i][j] and math.isfinite(v)]
    low, high = (min(shown), max(shown)) if shown else (0.0, 0.0)
    size = f"{len(table)} by {len(table[0])} numbers"
    data = data or (f"{size}, from {low:.{digits}f} to {high:.{digits}f}" if shown else size)
    side = "sum" if totals and not note else note
    sheet = Sheet(len(table), len(table[0]), rows, cols, None, None, (), side)
    number = max((text_width(f"{v:.{digits}f}", SMALL_PT) for v in shown), default=0)
    canvas, grid = sheet.begin(title, data, width, theme, biggest=max(34, number + 10), smallest=number + 6)
    for i, row in enumerate(table):
        for j, value in enumerate(row):
            color = None if hidden[i][j] else tint(value, low, high, hue(owner), theme)
            grid.paint(i, [Style(fill=color, hairline=color is None)], first=j)
            if not hidden[i][j]:
                grid.write(i, j, _number(value, digits), color, color=None if color else theme.muted)
        if totals:
            total = sum(v for v, h in zip(row, hidden[i], strict=True) if not h)
            canvas.text(grid.right + 10, grid.mid(i, 0)[1], f"{total:.{digits}f}", SMALL_PT, color=theme.muted)
    if totals:
        canvas.text(grid.right + 10, grid.y - 10, "sum", SMALL_PT, color=theme.muted)
    sheet.label(grid, None)
    bottom = sheet.finish(grid, frame_row, frame_col, note)
    return canvas.picture(bottom, data, f"{title}: a matrix of {data}.")


def tint(value: float, low: float, high: float, color: str, theme: Theme) -> str | None:
    """The shade of a number between low and high; None for a number that is not finite."""
    if not math.isfinite(value):
        return None
    share = (value - low) / (high - low) if high > low else 0.5
    # Never the full hue: ink must be readable on the deepest cell.
    return blend(color, theme.paper, 0.96 - 0.66 * share)


def _number(value: float, digits: int) -> str:
    """A number with a true minus sign, as wide as a plus."""
    words = f"{value:.{digits}f}" if math.isfinite(value) else str(value)
    return words.replace("inf", "\u221e").replace("-", "\u2212")


class Sheet:
    """What a mask and a matrix share: room for the labels, the size of a cell, the frame and its note."""

    def __init__(
        self, count_rows: int, count_cols: int, rows: Labels, cols: Labels,
        row_owners: Owners, col_owners: Owners, order: Sequence[object], note: str,
    ) -> None:  # fmt: skip
        self.size = (count_rows, count_cols)
        bare = row_owners is not None or col_owners is not None
        self.rows = [label(t) for t in (rows if rows is not None else [] if bare else range(count_rows))]
        self.cols = [label(t) for t in (cols if cols is not None else [] if bare else range(count_cols))]
        self.row_owners, self.col_owners, self.order, self.note = row_owners, col_owners, order, note
        widest = max((text_width(words, SMALL_PT) for words in self.rows), default=0)
        self.left = MARGIN + (24 if row_owners is not None else 0) + (widest + 9 if self.rows else 0)

    def begin(
        self, title: str, data: str, width: float | None, theme: Theme, biggest: float, smallest: float = 1
    ) -> tuple[Canvas, Grid]:
        """Choose the width and the cell, write the header, place the grid."""
        count_rows, count_cols = self.size
        note = 108 if self.note and self.note != "sum" else 44 if self.note else 0
        slant = 0 if not self.cols else 0.6 * text_width(self.cols[-1], SMALL_PT)
        room = {w: w * DPI - self.left - max(note, slant) - MARGIN for w in (HALF, FULL)}
        fits = room[HALF] / max(1, count_cols) >= max(smallest, min(20, biggest))
        width = width or (HALF if fits else FULL)
        usable = room.get(width, width * DPI - self.left - max(note, slant) - MARGIN)
        cell = min(biggest, usable / max(1, count_cols), max(smallest, TALLEST / max(1, count_rows)))
        cell = int(cell) if cell >= 3 else cell
        canvas = Canvas(width, theme)
        top = canvas.header(title, data)
        height = cell if smallest == 1 else min(cell, 30)
        grid = Grid(canvas, self.left, 0, cell, height, count_rows, count_cols)
        above = grid.cols_height(self.cols) + (26 if self.col_owners is not None else 0)
        grid.y = round(top + above)
        return canvas, grid

    def label(self, grid: Grid, col_colors: Sequence[str] | None) -> None:
        grid.name_rows(self.rows)
        above = grid.name_cols(self.cols, col_colors)
        if self.col_owners is not None:
            grid.owners_above(list(self.col_owners), grid.y - above - 16, self.order)
        if self.row_owners is not None:
            grid.owners_left(list(self.row_owners), MARGIN + 8, self.order)
        grid.border()

    def finish(self, grid: Grid, frame_row: int | None, frame_col: int | None, note: str) -> float:
        """The frame and the note beside it. Returns the lowest y."""
        bottom = grid.bottom
        if frame_row is not None:
            grid.frame(row=frame_row)
            lines = wrap(note, grid.canvas.width - grid.right - 20, SMALL_PT)
            y = grid.mid(frame_row, 0)[1] - 7.5 * (len(lines) - 1)
            for k, words in enumerate(lines):
                grid.canvas.text(grid.right + 10, y + 15 * k, words, SMALL_PT)
            bottom = max(bottom, y + 15 * len(lines) - 8)
        if frame_col is not None:
            grid.frame(col=frame_col)
            x = grid.x + frame_col * grid.width
            for words in wrap(note, grid.canvas.width - x - MARGIN, SMALL_PT):
                grid.canvas.text(x, bottom + 14, words, SMALL_PT)
                bottom += 15
            bottom += 4
        return bottom
