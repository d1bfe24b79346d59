"""Attention as it is computed: Q, K, scores, mask, weights, V and mix of one small head. (Chapter 1)

The matrices stand where the product rule puts them: each score lies in the row of its query and in the
column of its key, each row of the mix right of its weights and under the values that it mixes. So one
row of cells can be followed with a finger from the query to the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from minicb.course.draw.canvas import MARGIN, Canvas, Style, text_width
from minicb.course.draw.grid import Grid, label, plain
from minicb.course.draw.mask import tint
from minicb.course.draw.palette import DPI, FULL, LIGHT, SMALL_PT, Theme, hue
from minicb.course.draw.picture import Picture

Table = list[list[float]]
GAP = 30  # pixels between the blocks


class Blocks(NamedTuple):
    """The seven matrices of a head, as nested lists."""

    q: Table  # [T, D]
    k: Table  # [S, D]
    v: Table  # [S, D]
    scores: Table  # [T, S]
    weights: Table  # [T, S]
    mixed: Table  # [T, D]
    mask: list[list[bool]]  # [T, S]


def draw_attention(
    q: Any,
    k: Any,
    v: Any,
    scores: Any,
    weights: Any,
    mixed: Any,
    mask: Any,
    rows: Sequence[object] | None = None,
    cols: Sequence[object] | None = None,
    *,
    owner: object = None,
    frame_row: int | None = None,
    frame_key: int | None = None,
    title: str = "Attention: three small steps",
    data: str | None = None,
    width: float = FULL,
    theme: Theme = LIGHT,
) -> Picture:
    """One head of attention, all its matrices as cells (the deeper the shade, the higher the number).

    q: [T, D]   k, v: [S, D]   scores, weights: [T, S]   mixed: [T, D]   mask: bool [T, S], True = may look
    rows, cols: token labels of the T queries and S keys
    frame_row: follow this query   frame_key: this key and its value are spoken about
    """
    blocks = Blocks(*map(plain, (q, k, v, scores, weights, mixed, mask)))
    count_q, count_k, size = len(blocks.q), len(blocks.k), len(blocks.q[0])
    seen = sum(bool(ok) for row in blocks.mask for ok in row)
    asked = f"{count_q} {'query' if count_q == 1 else 'queries'}"
    data = data or f"{asked}, {count_k} keys, head size {size}: {seen} of {count_q * count_k} scores used"
    names = [label(t) for t in (rows if rows is not None else range(count_q))]
    keys = [label(t) for t in (cols if cols is not None else range(count_k))]
    left = MARGIN + max(text_width(name, SMALL_PT) for name in names) + 9
    room = width * DPI - left - MARGIN - 3 * GAP - 14
    cell = int(min(32, room / (2 * size + 2 * count_k)))
    canvas = Canvas(width, theme)
    top = canvas.header(title, data)
    grids = _place(canvas, left, top, cell, (count_q, count_k, size), keys)
    _paint(grids, blocks, hue(owner), theme)
    grids["q"].name_rows(names)
    grids["k"].name_cols(keys)
    if frame_row is not None:
        for name in ("q", "scores", "mask", "weights", "mixed"):
            grids[name].frame(row=frame_row)
    if frame_key is not None:
        grids["k"].frame(col=frame_key)
        grids["v"].frame(row=frame_key)
    bottom = _name(grids)
    alt = f"{title}: the matrices Q, K, scores, mask, weights, V and mix as shaded cells; {data}."
    return canvas.picture(bottom, data, alt)


def _place(
    canvas: Canvas, left: float, top: float, cell: int, sizes: tuple[int, int, int], keys: Sequence[str]
) -> dict[str, Grid]:
    """The lower blocks share the queries' rows; K, the mask and V stand over what they make."""
    count_q, count_k, size = sizes
    slant = Grid(canvas, 0, 0, cell, cell, 1, count_k).cols_height(keys)
    upper = max(count_q, count_k, size + (slant + 20) / cell) * cell
    base = round(top + 20 + upper)  # the lower edge of the upper blocks
    low = base + GAP
    x = round(left)
    grids = {"q": Grid(canvas, x, low, cell, cell, count_q, size)}
    x += size * cell + GAP
    grids["k"] = Grid(canvas, x, base - size * cell, cell, cell, size, count_k)
    grids["scores"] = Grid(canvas, x, low, cell, cell, count_q, count_k)
    x += count_k * cell + GAP
    grids["mask"] = Grid(canvas, x, base - count_q * cell, cell, cell, count_q, count_k)
    grids["weights"] = Grid(canvas, x, low, cell, cell, count_q, count_k)
    x += count_k * cell + GAP
    grids["v"] = Grid(canvas, x, base - count_k * cell, cell, cell, count_k, size)
    grids["mixed"] = Grid(canvas, x, low, cell, cell, count_q, size)
    return grids


def _paint(grids: dict[str, Grid], blocks: Blocks, color: str, theme: Theme) -> None:
    turned = [list(column) for column in zip(*blocks.k, strict=True)]
    tables = {"q": blocks.q, "k": turned, "v": blocks.v, "scores": blocks.scores, "mixed": blocks.mixed}
    for name, table in tables.items():
        flat = [value for row in table for value in row]
        low, high = min(flat), max(flat)
        for i, row in enumerate(table):
            grids[name].paint(i, [Style(tint(value, low, high, color, theme)) for value in row])
    blank = Style(hairline=True)
    for i, (row, seen) in enumerate(zip(blocks.weights, blocks.mask, strict=True)):
        shares = [Style(tint(w, 0, 1, color, theme)) if ok else blank for w, ok in zip(row, seen, strict=True)]
        grids["weights"].paint(i, shares)
        grids["mask"].paint(i, [Style(color) if ok else blank for ok in seen])


def _name(grids: dict[str, Grid]) -> float:
    """Name and shape of each block: over the upper ones, under the lower ones."""
    canvas = grids["q"].canvas
    below = {"q": "Q", "scores": "scores", "weights": "weights", "mixed": "mix"}
    bottom = 0.0
    for name, words in {**below, "k": "K\u1d40", "mask": "mask", "v": "V"}.items():
        grid = grids[name]
        shape = f"{grid.rows}\u00d7{grid.cols}"
        wide = text_width(words + " ", SMALL_PT, bold=True)
        y = grid.bottom + 14 if name in below else grid.y - 11
        x = grid.x + 1
        if name == "k":  # the column labels stand over it; its name goes to the left
            x, y = grid.x - 10 - wide - text_width(shape, SMALL_PT), grid.mid(grid.rows // 2, 0)[1]
        canvas.text(x, y, words, SMALL_PT, bold=True)
        canvas.text(x + wide + 2, y, shape, SMALL_PT, color=canvas.theme.muted)
        bottom = max(bottom, y + 8)
    return bottom
