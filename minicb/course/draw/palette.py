"""Colours and sizes of every picture in the course: hue says whose, shade says what.

A request keeps one hue wherever it appears; the shade says prompt (full), generated or from the cache
(faded into the paper). Padding and masked cells never have a hue: a hatch and a hairline tell them
apart, so every picture survives greyscale. Identity is also a letter, never the hue alone.

Plain values and arithmetic: this module knows nothing of matplotlib, requests or layouts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

DPI = 110  # pixels an inch in the PNG; all layout is done in these pixels, so cells stay crisp
FULL, HALF = 8.0, 4.0  # inches: the two widths of the course

HUES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#56B4E9")
YOURS = HUES[0]  # the learner's own parts on the engine map

Role = Literal["prompt", "new", "generated", "cached", "padding", "masked"]
FADE = {"prompt": 0.0, "new": 0.0, "generated": 0.55, "cached": 0.62}  # share of paper in the shade

TITLE_PT, TEXT_PT, SMALL_PT = 10.0, 8.5, 8.0


@dataclass(frozen=True, slots=True)
class Theme:
    """Everything that is not a hue. `slate` is the neutral hue of a key that speaks for all requests."""

    paper: str
    ink: str
    muted: str
    rule: str
    hairline: str
    hatch: str
    slate: str


LIGHT = Theme("#FFFFFF", "#1F2933", "#7B8794", "#CBD2D9", "#E4E7EB", "#9AA5B1", "#52606D")
DARK = Theme("#14181D", "#E4E7EB", "#9AA5B1", "#3E4C59", "#2B333B", "#616E7C", "#9AA5B1")


def hue(owner: object, order: Sequence[object] = ()) -> str:
    """The hue of a request, the same in every picture.

    `order`, if it names the owner, decides. Otherwise the name does: "A" is the first request, "B" the
    second; so are 0 and 1, "req-0" and "req-1". None, one request alone, has the first hue.
    """
    return HUES[_place(owner, order) % len(HUES)]


def _place(owner: object, order: Sequence[object]) -> int:
    if owner in order:
        return list(order).index(owner)
    if owner is None:
        return 0
    name = str(owner)
    if len(name) == 1 and name.isalpha() and name.isascii():
        return ord(name.upper()) - ord("A")
    digits = re.search(r"(\d+)$", name)
    return int(digits.group(1)) if digits else sum(name.encode())


def shade(color: str, role: str, theme: Theme = LIGHT) -> str:
    """The colour of a cell: the owner's hue, faded as its role asks."""
    return blend(color, theme.paper, FADE[role])


def blend(color: str, other: str, share: float) -> str:
    """Mix `share` of `other` into `color`; both "#RRGGBB"."""
    pairs = zip(rgb(color), rgb(other), strict=True)
    return "#" + "".join(f"{round(255 * ((1 - share) * a + share * b)):02X}" for a, b in pairs)


def rgb(color: str) -> tuple[float, float, float]:
    """ "#RRGGBB" as three numbers between 0 and 1."""
    red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def grey(color: str) -> float:
    """What is left of a colour on a greyscale printer: 0 black, 1 white (Rec. 601)."""
    red, green, blue = rgb(color)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def contrast(color: str, other: str) -> float:
    """How well one colour is read on the other: 1 not at all, 21 black on white (WCAG 2)."""

    def luminance(value: str) -> float:
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb(value)]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((luminance(color), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def ink_on(color: str) -> str:
    """White on the deep colours, ink on the others. The limit keeps white on green, which ink would muddy."""
    return "#FFFFFF" if contrast(color, "#FFFFFF") >= 3.3 else LIGHT.ink


def letter(color: str, theme: Theme = LIGHT) -> str:
    """The hue for words on paper: darkened, or on dark paper lightened, until it can be read."""
    share = 0.0
    while contrast(blend(color, theme.ink, share), theme.paper) < 4.5 and share < 1:
        share += 0.05
    return blend(color, theme.ink, min(share, 1.0))
