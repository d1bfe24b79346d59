"""A sheet of paper measured in pixels: rectangles, hatches, lines and words, drawn by matplotlib.

Every picture is laid out by hand in whole pixels at 110 dpi, y downwards, so that cells are sharp and
nothing depends on an automatic layout. The canvas only collects; `picture()` makes the matplotlib
figure at last, when the height is known. matplotlib is imported at that moment and not before, and
pyplot never is: no global state, nothing to close.

The canvas does not know tokens, masks or requests: that is for the modules beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from minicb.course.draw.palette import DPI, LIGHT, SMALL_PT, TEXT_PT, TITLE_PT, Theme
from minicb.course.draw.picture import FONT, Picture

MARGIN = 12  # pixels of paper on every side
Box = tuple[float, float, float, float]  # x, y, width, height
HATCH_STEP = 6  # pixels between the lines of the padding's hatch


@dataclass(frozen=True, slots=True)
class Style:
    """How a cell looks: a fill, or none; a hatch; a hairline around it."""

    fill: str | None = None
    hatch: bool = False
    hairline: bool = False


class Canvas:
    """Collects shapes in pixels, y downwards, and turns them into a `Picture`."""

    def __init__(self, width_in: float, theme: Theme = LIGHT) -> None:
        self.width = round(width_in * DPI)
        self.theme = theme
        self._fills: dict[str, list[Box]] = {}
        self._strokes: dict[tuple[str, float, float, bool], list[list[tuple[float, float]]]] = {}
        self._texts: list[tuple[float, float, str, dict[str, Any]]] = []
        self._plots: list[tuple[Box, Callable[[Any], None]]] = []

    def fill(self, x: float, y: float, w: float, h: float, color: str) -> None:
        self._fills.setdefault(color, []).append((x, y, w, h))

    def stroke(
        self, points: Sequence[tuple[float, float]], color: str, px: float = 1, z: float = 1, dashed: bool = False
    ) -> None:
        """A line through the points; z 1 lies under the fills, 3 over them."""
        self._strokes.setdefault((color, px, z, dashed), []).append(list(points))

    def outline(self, x: float, y: float, w: float, h: float, color: str, px: float = 1, z: float = 1) -> None:
        self.stroke([(x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y)], color, px, z)

    def arrow(self, points: Sequence[tuple[float, float]], color: str, px: float = 1.2) -> None:
        """A line of level and upright pieces with a small open head at its end."""
        self.stroke(points, color, px)
        (x0, y0), (x1, y1) = points[-2:]
        dx, dy = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
        back_x, back_y = x1 - 5 * dx, y1 - 5 * dy
        self.stroke([(back_x - 4 * dy, back_y - 4 * dx), (x1, y1), (back_x + 4 * dy, back_y + 4 * dx)], color, px)

    def hatch(self, x: float, y: float, w: float, h: float, z: float = 2.5) -> None:
        """Padding: paper with a grey hatch and a grey outline. The hatch runs on from cell to cell.

        z below 2 lies under the fills: one hatched area with cells painted over it.
        """
        first = int((x + y) // HATCH_STEP) + 1
        for k in range(first, int((x + w + y + h) // HATCH_STEP) + 1):
            total = k * HATCH_STEP  # the line x + y = total, cut to the box
            left, right = max(x, total - y - h), min(x + w, total - y)
            if right - left > 0.5:
                self.stroke([(left, total - left), (right, total - right)], self.theme.hatch, 0.8, z)
        self.outline(x + 0.5, y + 0.5, w - 1, h - 1, self.theme.hatch, 0.8, z)

    def cell(self, x: float, y: float, w: float, h: float, style: Style) -> None:
        """One cell of a picture; the pixel at its left and top is the gap, or the hairline."""
        if style.hairline:
            self.outline(x + 0.5, y + 0.5, w, h, self.theme.hairline)
        if style.fill:
            self.fill(x + 1, y + 1, w - 1, h - 1, style.fill)
        if style.hatch:
            self.hatch(x + 1, y + 1, w - 1, h - 1)

    def text(self, x: float, y: float, words: str, size: float = TEXT_PT, **look: Any) -> None:
        """Words whose capitals are centred on y. look: color, bold, ha, rotation (about the left end)."""
        self._texts.append((x, y, words, {"size": size, **look}))

    def plot(self, box: Box, paint: Callable[[Any], None]) -> None:
        """Reserve a box for a real matplotlib axes; `paint(axes)` is called when the figure is made."""
        self._plots.append((box, paint))

    def header(self, title: str, data: str, x: float = MARGIN, y: float = MARGIN, width: float = 0) -> float:
        """Title and, under it, the data line, wrapped to the width. Returns the y below them."""
        width = width or self.width - x - MARGIN
        for line in wrap(title, width, TITLE_PT, bold=True) if title else []:
            self.text(x, y + 8, line, TITLE_PT, bold=True)
            y += 18
        for line in wrap(data, width, TEXT_PT) if data else []:
            self.text(x, y + 7, line, TEXT_PT, color=self.theme.muted)
            y += 16
        return y + 12

    def key(self, x: float, y: float, items: Sequence[tuple[str, Style]], width: float = 0) -> float:
        """One line that says what the shades mean. Returns the y below it."""
        right = x + width if width else self.width - MARGIN
        if x + sum(32 + text_width(words, SMALL_PT) for words, _ in items) - 14 > right:
            x = MARGIN
        left = x
        for words, style in items:
            need = 18 + text_width(words, SMALL_PT)
            if left > x and left + need > right:
                left, y = x, y + 18
            self.cell(left, y, 13, 13, style)
            self.text(left + 19, y + 7, words, SMALL_PT, color=self.theme.muted)
            left += need + 14
        return y + 16

    def picture(self, height: float, data: str, alt: str) -> Picture:
        """Make the figure: a sheet as wide as the canvas and as high as the content plus a margin."""
        from matplotlib.figure import Figure

        tall = round(height) + MARGIN
        figure = Figure(figsize=(self.width / DPI, tall / DPI), dpi=DPI, facecolor=self.theme.paper)
        sheet = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        sheet.set(xlim=(0, self.width), ylim=(tall, 0))
        sheet.set_axis_off()
        self._paint_fills(sheet)
        self._paint_strokes(sheet)
        self._paint_texts(sheet)
        for (x, y, w, h), paint in self._plots:
            paint(figure.add_axes((x / self.width, 1 - (y + h) / tall, w / self.width, h / tall)))
        return Picture(figure, data, alt)

    def _paint_fills(self, sheet: Any) -> None:
        # One compound path a colour: a picture of a thousand cells stays a small file.
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        for color, boxes in self._fills.items():
            corners = [[(x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y)] for x, y, w, h in boxes]
            codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(boxes)
            path = Path([point for box in corners for point in box], codes)
            sheet.add_patch(PathPatch(path, facecolor=color, linewidth=0, zorder=2, snap=True))

    def _paint_strokes(self, sheet: Any) -> None:
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        for (color, px, z, dashed), strokes in self._strokes.items():
            points = [point for stroke in strokes for point in stroke]
            codes = [code for s in strokes for code in [Path.MOVETO, *[Path.LINETO] * (len(s) - 1)]]
            look = {"linewidth": px * 72 / DPI, "edgecolor": color, "zorder": z, "capstyle": "butt"}
            style = {"linestyle": (0, (3, 2))} if dashed else {}
            sheet.add_patch(PathPatch(Path(points, codes), fill=False, joinstyle="miter", **look, **style))

    def _paint_texts(self, sheet: Any) -> None:
        for x, y, words, look in self._texts:
            # DejaVu's capitals are 0.73 em high: the baseline lies half of that below their middle.
            turned = look.get("rotation", 0)
            drop = 0 if turned else 0.365 * look["size"] * DPI / 72
            sheet.text(
                x, y + drop, words, fontsize=look["size"], family=FONT, color=look.get("color", self.theme.ink),
                weight="bold" if look.get("bold") else "normal", ha=look.get("ha", "left"), va="baseline",
                rotation=turned, rotation_mode="anchor", parse_math=False, zorder=5,
            )  # fmt: skip


@lru_cache(maxsize=4096)
def text_width(words: str, size: float = TEXT_PT, bold: bool = False) -> float:
    """How many pixels wide the words will be."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=FONT, size=size, weight="bold" if bold else "normal")
    width, _, _ = text_to_path.get_text_width_height_descent(words, font, False)
    return float(width) * DPI / 72


def wrap(words: str, width: float, size: float = TEXT_PT, bold: bool = False) -> list[str]:
    """Break the words into lines that fit; a word that is too long stays whole."""
    lines = [""]
    for word in words.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size, bold) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines
