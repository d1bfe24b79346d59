"""One part of the engine map as a box with its exercises in it, in the two shapes that the layouts use.

A box has its title on top and its exercises under it (full width, `engine_loop.py`); a strip has them
beside its title (half width, `engine_map.py`). An exercise is a cell: filled when it is the learner's.
"""

from __future__ import annotations

from minicb.course.draw.canvas import MARGIN, Canvas, text_width
from minicb.course.draw.engine_parts import PARTS, Exercise
from minicb.course.draw.palette import SMALL_PT, TEXT_PT, YOURS, ink_on, shade

CHIP = 20  # pixels: the height of an exercise's cell
INSET = 8  # pixels between a part's edge and its cells
HEAD = 25  # pixels for a part's title
GAP = 24  # pixels between parts, room for an arrow
KINDS = {"yours": "yours", "catch-up": "copied to catch up", "reference": "reference", "later": "a later chapter"}
TITLES = {part.key: part for part in PARTS}


class Board:
    """Draws the parts on a canvas; the two layouts share the box and its cells."""

    def __init__(self, canvas: Canvas, placed: dict[str, list[Exercise]]) -> None:
        self.canvas, self.placed, self.theme = canvas, placed, canvas.theme

    def flow(self, key: str, width: float) -> list[list[tuple[Exercise, str, float]]]:
        """The cells of a part, broken into lines that fit the width: (exercise, words, width)."""
        lines: list[list[tuple[Exercise, str, float]]] = []
        left = 0.0
        for one in self.placed[key]:
            words = _cut(f"{one.id} {one.name}", width - 10)
            wide = round(text_width(words, SMALL_PT)) + 10
            if not lines or left + wide > width:
                lines.append([])
                left = 0
            lines[-1].append((one, words, wide))
            left += wide + 5
        return lines

    def height(self, key: str, width: float) -> float:
        """How high the part must be at this width."""
        count = len(self.flow(key, width - 2 * INSET))
        return HEAD + count * (CHIP + 5) + (3 if count else 0)

    def box(self, key: str, x: float, y: float, w: float, h: float) -> None:
        """A part: outline, title, caption if there is room, cells."""
        part, canvas = TITLES[key], self.canvas
        canvas.fill(x, y, w, h, self.theme.paper)
        canvas.outline(x + 0.5, y + 0.5, w - 1, h - 1, self.theme.rule, z=3)
        canvas.text(x + INSET, y + 13, part.title, TEXT_PT, bold=True)
        left = x + INSET + text_width(part.title, TEXT_PT, bold=True) + 9
        if left + text_width(part.caption, SMALL_PT) <= x + w - 4:
            canvas.text(left, y + 13, part.caption, SMALL_PT, color=self.theme.muted)
        self.cells(key, x + INSET, y + HEAD, w - 2 * INSET)

    def cells(self, key: str, x: float, y: float, width: float) -> float:
        for line in self.flow(key, width):
            left = x
            for one, words, wide in line:
                self.cell(one, words, left, y, wide)
                left += wide + 5
            y += CHIP + 5
        return y

    def cell(self, one: Exercise, words: str, x: float, y: float, w: float) -> None:
        canvas = self.canvas
        fills = {"yours": YOURS, "catch-up": shade(YOURS, "generated", self.theme)}
        if one.owner in fills:
            canvas.fill(x, y, w, CHIP, fills[one.owner])
            color = ink_on(fills[one.owner])
        else:
            later = one.owner == "later"
            canvas.outline(x + 0.5, y + 0.5, w - 1, CHIP - 1, self.theme.hairline if later else self.theme.slate, z=3)
            color = self.theme.muted if later else self.theme.ink
        canvas.text(x + w / 2, y + CHIP / 2 + 0.5, words, SMALL_PT, ha="center", color=color)

    def key(self, y: float) -> float:
        """What filled, pale and outlined mean; the rarer kinds only if they are there."""
        x: float = MARGIN
        there = {"yours", "reference", *(one.owner for part in self.placed.values() for one in part)}
        for owner, words in KINDS.items():
            if owner in there:
                self.cell(Exercise("", "", owner), "", x, y, 22)
                self.canvas.text(x + 29, y + CHIP / 2 + 0.5, words, SMALL_PT, color=self.theme.muted)
                x += 29 + text_width(words, SMALL_PT) + 16
        return y + CHIP

    def end(self, x: float, y: float, name: str, more: str) -> None:
        self.canvas.text(x, y, name, TEXT_PT, bold=True)
        self.canvas.text(x + text_width(name, TEXT_PT, bold=True) + 9, y, more, SMALL_PT, color=self.theme.muted)

    def strip(self, key: str, x: float, y: float, w: float) -> float:
        """A part as a low box: its title at the left, its cells (or its caption) beside it."""
        beside = 88
        lines = len(self.flow(key, w - beside - 4))
        tall = max(1, lines) * (CHIP + 5) + 3
        self.canvas.outline(x + 0.5, y + 0.5, w - 1, tall - 1, self.theme.rule, z=3)
        self.canvas.text(x + INSET, y + 14.5, TITLES[key].title, TEXT_PT, bold=True)
        if lines:
            self.cells(key, x + beside, y + 4, w - beside - 4)
        else:
            self.canvas.text(x + beside, y + 14.5, TITLES[key].caption, SMALL_PT, color=self.theme.muted)
        return tall


def _cut(words: str, room: float) -> str:
    """The words, shortened to the room with an ellipsis."""
    if text_width(words, SMALL_PT) <= room:
        return words
    while len(words) > 4 and text_width(words + "\u2026", SMALL_PT) > room:
        words = words[:-1]
    return words + "\u2026"
