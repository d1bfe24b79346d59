"""Rows and columns of cells with their labels: the skeleton of masks, matrices, strips and caches.

A grid knows where its cells are and how to name its rows and columns; what a cell means comes from the
picture that uses it. Cells below six pixels lose their gaps and equal neighbours melt into one
rectangle, so a mask of 200 tokens is as small a file as one of seven.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from minicb.course.draw.canvas import Canvas, Style, text_width
from minicb.course.draw.palette import SMALL_PT, TEXT_PT, hue, ink_on, letter

TIGHT = 6  # pixels: smaller cells have no gaps, hairlines or labels
LABEL_MIN = 12  # pixels: smaller rows or columns have no labels


def plain(values: Any) -> Any:
    """A tensor or an array as nested lists; anything else as it is."""
    return values.tolist() if hasattr(values, "tolist") else values


def label(token: object) -> str:
    """A token as it can be printed in a cell: blanks and line ends made visible."""
    words = str(token).replace("\n", "\\n").replace("\t", "\\t")
    return "\u2423" if words and not words.strip() else words


def runs(values: Sequence[object]) -> Iterator[tuple[Any, int, int]]:
    """Equal neighbours as (value, first, end)."""
    start = 0
    for value, group in groupby(values):
        end = start + len(list(group))
        yield value, start, end
        start = end


@dataclass(slots=True)
class Grid:
    """A block of equal cells on a canvas; x, y is its top left corner."""

    canvas: Canvas
    x: float
    y: float
    width: float  # of one cell
    height: float
    rows: int
    cols: int

    @property
    def right(self) -> float:
        return self.x + self.cols * self.width

    @property
    def bottom(self) -> float:
        return self.y + self.rows * self.height

    def mid(self, row: int, col: int) -> tuple[float, float]:
        """The centre of a cell; half a pixel right and down, because the gap is at the left and top."""
        return self.x + (col + 0.5) * self.width + 0.5, self.y + (row + 0.5) * self.height + 0.5

    def paint(self, row: int, styles: Sequence[Style], first: int = 0) -> None:
        """Draw a row of cells, from column `first` on."""
        y = self.y + row * self.height
        tight = min(self.width, self.height) < TIGHT
        for style, start, end in runs(styles):
            left, right = self.x + (first + start) * self.width, self.x + (first + end) * self.width
            if style.hatch and self.width < LABEL_MIN:  # small hatched cells one by one are only noise
                self.canvas.hatch(left + 1, y + 1, right - left - 1, self.height - 1)
            elif not tight:
                for col in range(start, end):
                    self.canvas.cell(self.x + (first + col) * self.width, y, self.width, self.height, style)
            elif style.fill:
                self.canvas.fill(left, y, right - left, self.height, style.fill)

    def border(self) -> None:
        """A hairline around a grid whose cells are too small to have their own."""
        if min(self.width, self.height) < TIGHT:
            self.canvas.outline(self.x, self.y, self.right - self.x, self.bottom - self.y, self.canvas.theme.rule)

    def write(self, row: int, col: int, words: str, on: str | None = None, size: float = SMALL_PT, **look: Any) -> None:
        """Words in the middle of a cell, readable on the colour `on` (paper if None)."""
        x, y = self.mid(row, col)
        look["color"] = look.get("color") or (ink_on(on) if on else self.canvas.theme.ink)
        self.canvas.text(x, y, words, size, ha="center", **look)

    def frame(self, row: int | None = None, col: int | None = None) -> None:
        """One ink frame around the row or the column under discussion."""
        if row is not None:
            x, y, w, h = self.x, self.y + row * self.height, self.right - self.x, self.height
        else:
            x, y, w, h = self.x + (col or 0) * self.width, self.y, self.width, self.bottom - self.y
        self.canvas.outline(x + 0.5, y + 0.5, w, h, self.canvas.theme.ink, 1.8, z=3)

    def name_rows(self, labels: Sequence[str], colors: Sequence[str] | None = None) -> None:
        """Labels at the left of the rows."""
        for row, words in enumerate(labels if self.height >= LABEL_MIN else ()):
            color = colors[row] if colors else self.canvas.theme.ink
            self.canvas.text(self.x - 7, self.mid(row, 0)[1], words, SMALL_PT, ha="right", color=color)

    def name_cols(self, labels: Sequence[str], colors: Sequence[str] | None = None) -> float:
        """Labels over the columns, level if they all fit, else slanted. Returns the height they take."""
        if self.width < LABEL_MIN or not labels:
            return 0
        level = self._level(labels)
        for col, words in enumerate(labels):
            color = colors[col] if colors else self.canvas.theme.ink
            x = self.mid(0, col)[0]
            if level:
                self.canvas.text(x, self.y - 10, words, SMALL_PT, ha="center", color=color)
            else:
                self.canvas.text(x + 1, self.y - 6, words, SMALL_PT, rotation=45, color=color)
        return self.cols_height(labels)

    def cols_height(self, labels: Sequence[str]) -> float:
        """How much room `name_cols` needs over the grid."""
        if self.width < LABEL_MIN or not labels:
            return 0
        return 20 if self._level(labels) else 12 + 0.71 * max(text_width(words, SMALL_PT) + 8 for words in labels)

    def _level(self, labels: Sequence[str]) -> bool:
        return all(text_width(words, SMALL_PT) <= self.width - 4 for words in labels)

    def owners_left(self, owners: Sequence[object], x: float, order: Sequence[object] = ()) -> None:
        """The letter of each run of rows, in its hue, centred on the run."""
        for owner, start, end in runs(owners):
            y = self.y + (start + end) / 2 * self.height
            self.canvas.text(
                x, y, str(owner), TEXT_PT, bold=True, ha="center", color=letter(hue(owner, order), self.canvas.theme)
            )

    def owners_above(self, owners: Sequence[object], y: float, order: Sequence[object] = ()) -> None:
        """The letter of each run of columns, in its hue, over a thin line as wide as the run."""
        for owner, start, end in runs(owners):
            left, right = self.x + start * self.width + 2, self.x + end * self.width - 1
            words, color = str(owner), hue(owner, order)
            if right - left < text_width(words, TEXT_PT, bold=True) - 3:
                continue  # no room for its letter: the cells speak for themselves
            dark = letter(color, self.canvas.theme)
            self.canvas.text((left + right) / 2, y, words, TEXT_PT, bold=True, ha="center", color=dark)
            self.canvas.stroke([(left, y + 10.5), (right, y + 10.5)], color, 1.5)
