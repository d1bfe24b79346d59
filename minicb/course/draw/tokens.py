"""Token strips and padded rectangles: what is fed, whose it is, and how much of it is padding. (Chapters 1-5)

`draw_tokens` shows tokens as a strip of cells with their words in them; several requests, several rows.
`draw_padding` shows a padded batch as the rectangle that it is, and under it the same tokens without
padding. Both know owners and roles only, nothing of engines or caches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from minicb.course.draw.canvas import MARGIN, Canvas, Style, text_width
from minicb.course.draw.grid import Grid, label, plain
from minicb.course.draw.palette import DPI, FULL, HALF, LIGHT, SMALL_PT, Theme, hue, shade
from minicb.course.draw.picture import Picture

Row = Sequence[object]
ROLE_WORDS = {
    "prompt": "prompt",
    "new": "new",
    "generated": "generated",
    "cached": "from the cache",
    "padding": "padding",
}
STRIP = 32  # pixels: the height of a strip with words in it


def draw_tokens(
    rows: Row | Mapping[object, Row],
    roles: Sequence[str] | Mapping[object, Sequence[str]] | None = None,
    *,
    positions: bool = False,
    order: Sequence[object] = (),
    title: str = "Tokens",
    data: str | None = None,
    width: float | None = None,
    theme: Theme = LIGHT,
) -> Picture:
    """Tokens as cells with their words.

    rows: the tokens of one request, or {owner: tokens}
    roles: likewise, "prompt" (default), "new", "generated", "cached" or "padding" for each token
    positions: number the cells from 0 underneath
    """
    strips: dict[object, Row] = dict(rows) if isinstance(rows, Mapping) else {None: rows}
    kinds: dict[object, Sequence[str] | None] = dict(roles) if isinstance(roles, Mapping) else {None: roles}
    whole = {owner: list(kinds.get(owner) or ["prompt"] * len(row)) for owner, row in strips.items()}
    counts = Counter(role for row in whole.values() for role in row)
    data = data or _count_roles(counts)
    longest = max(map(len, strips.values()))
    words = {owner: [label(token) for token in row] for owner, row in strips.items()}
    widest = max((text_width(w, SMALL_PT) for row in words.values() for w in row), default=0) + 11
    left = MARGIN + (22 if None not in strips else 0)
    width = width or (HALF if widest * longest <= HALF * DPI - left - MARGIN else FULL)
    per_line = max(1, min(longest, int((width * DPI - left - MARGIN) // widest)))
    canvas = Canvas(width, theme)
    y = canvas.header(title, data) - 1
    for owner, row in words.items():
        for first in range(0, len(row), per_line):
            part = slice(first, first + per_line)
            grid = Grid(canvas, left, y, int(widest), STRIP, 1, len(row[part]))
            _strip(grid, row[part], whole[owner][part], owner, order, first if positions else None)
            if owner is not None and first == 0:
                grid.owners_left([owner], left - 14, order)
            y = grid.bottom + (20 if positions else 5)
    y = _roles_key(canvas, left, y, list(counts), None if len(strips) > 1 else hue(next(iter(strips)), order))
    spoken = "; ".join(f"{owner}: {' '.join(row)}" if owner else " ".join(row) for owner, row in words.items())
    return canvas.picture(y, data, f"{title}: a strip of cells, {spoken}; {data}.")


def _strip(
    grid: Grid, words: Sequence[str], roles: Sequence[str], owner: object, order: Sequence[object], first: int | None
) -> None:
    theme = grid.canvas.theme
    for col, (word, role) in enumerate(zip(words, roles, strict=True)):
        color = None if role == "padding" else shade(hue(owner, order), role, theme)
        grid.paint(0, [Style(fill=color, hatch=color is None)], first=col)
        if color:
            # The shades of cached and generated are close; the words tell them apart.
            grid.write(0, col, word, color, color=theme.slate if role == "cached" else None)
        if first is not None:
            x, y = grid.mid(0, col)
            grid.canvas.text(x, y + STRIP / 2 + 8, str(first + col), SMALL_PT, ha="center", color=theme.muted)


def _count_roles(counts: Counter[str]) -> str:
    total = f"{counts.total()} {'slots' if counts['padding'] else 'tokens'}"
    if len(counts) == 1 and "padding" not in counts:
        return total
    return f"{total}: " + ", ".join(f"{n} {ROLE_WORDS[role]}" for role, n in counts.items())


def _roles_key(canvas: Canvas, x: float, y: float, roles: Sequence[str], color: str | None) -> float:
    """The key of the shades; a strip in one shade needs none."""
    if len(roles) < 2:
        return y - 4
    base = color or canvas.theme.slate
    known = [role for role in ROLE_WORDS if role in roles]
    looks = {role: Style(hatch=True) if role == "padding" else Style(shade(base, role, canvas.theme)) for role in known}
    return canvas.key(x, y + 4, [(ROLE_WORDS[role], look) for role, look in looks.items()])


def draw_padding(
    real: Any,
    owners: Sequence[object] | None = None,
    *,
    ragged: bool = True,
    order: Sequence[object] = (),
    title: str = "A padded batch",
    data: str | None = None,
    width: float | None = None,
    theme: Theme = LIGHT,
) -> Picture:
    """A padded batch as a rectangle, and under it the same tokens in one ragged row.

    real: bool [N, S], False = padding   owners: the N requests (default A, B, C, ...)
    """
    cells = [[bool(ok) for ok in row] for row in plain(real)]
    owners = list(owners) if owners is not None else [chr(65 + i % 26) for i in range(len(cells))]
    slots, useful = sum(map(len, cells)), sum(map(sum, cells))
    share = f" ({round(100 * (slots - useful) / slots)} %)" if slots else ""
    data = data or f"{slots:,} slots, {useful:,} useful, {slots - useful:,} padding{share}"
    left, longest = MARGIN + 22, max(useful if ragged else 0, *map(len, cells))
    width = width or (HALF if (HALF * DPI - left - MARGIN) / longest >= 10 else FULL)
    across = len(cells[0])
    # One scale for both, so that the areas can be compared.
    cell = min(30, (width * DPI - left - MARGIN) / longest)
    cell = int(cell) if cell >= 3 else cell
    canvas = Canvas(width, theme)
    top = canvas.header(title, data)
    grid = Grid(canvas, left, top, cell, max(13, cell), len(cells), across)
    for i, row in enumerate(cells):
        grid.paint(i, [Style(shade(hue(owners[i], order), "prompt", theme)) if ok else Style(hatch=True) for ok in row])
    grid.owners_left(owners, MARGIN + 8, order)
    bottom = grid.bottom
    if ragged:
        canvas.text(left, bottom + 20, f"the same {useful} tokens, ragged", SMALL_PT, color=theme.muted)
        line = Grid(canvas, left, bottom + 56, cell, grid.height, 1, useful)
        whose = [owners[i] for i, row in enumerate(cells) for ok in row if ok]
        line.owners_above(whose, line.y - 16, order)
        line.paint(0, [Style(shade(hue(owner, order), "prompt", theme)) for owner in whose])
        bottom = line.bottom
    alt = f"{title}: {len(cells)} rows of {across} slots, padding hatched; {data}."
    return canvas.picture(bottom, data, alt)
