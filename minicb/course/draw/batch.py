"""One step from the inside: the ragged row that is fed, and the cache that it is written to. (Chapters 3 and 6)

`draw_batch` shows the tensors of a batch one under the other: each token with its owner, its position
in its own request, the slot where its keys and values go, and a mark where a logit row is read.
`draw_cache` shows slots or pages: whose they are, what was there before and what this step wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from minicb.course.draw.canvas import MARGIN, Canvas, Style, text_width
from minicb.course.draw.grid import LABEL_MIN, Grid, label, plain
from minicb.course.draw.palette import DPI, FULL, HALF, LIGHT, SMALL_PT, TEXT_PT, Theme, hue, letter, shade
from minicb.course.draw.picture import Picture

NAMES = {"tokens": "token", "positions": "position", "slots": "slot", "sample_at": "sampled"}


def draw_batch(
    batch: Any,
    owners: Sequence[object],
    tokens: Sequence[object] | None = None,
    roles: Sequence[str] | None = None,
    *,
    order: Sequence[object] = (),
    title: str = "One step, one ragged row",
    data: str | None = None,
    width: float | None = None,
    theme: Theme = LIGHT,
) -> Picture:
    """The ragged row of a step.

    batch: anything with the fields q_start [N+1], positions [T], slots [T], sample_at [M], tokens [T]
    owners: the N requests   tokens: words to print instead of ids   roles: [T], default "prompt"
    """
    starts = plain(batch.q_start)
    count = starts[-1]
    words = [label(t) for t in (tokens if tokens is not None else plain(batch.tokens))]
    lines = {"positions": list(map(str, plain(batch.positions))), "slots": list(map(str, plain(batch.slots)))}
    whose = [owner for owner, (a, b) in zip(owners, pairwise(starts), strict=True) for _ in range(b - a)]
    kinds = list(roles or ["prompt"] * count)
    read = set(plain(batch.sample_at))
    data = data or f"{count} tokens of {len(owners)} requests, {len(read)} rows sampled, 0 padding"
    widest = max(text_width(w, SMALL_PT) for w in [*words, *lines["positions"], *lines["slots"]]) + 9
    left = MARGIN + 66
    room = {w: (w * DPI - left - MARGIN) / count for w in (HALF, FULL)}
    width = width or (HALF if room[HALF] >= max(widest, 20) else FULL)
    cell = int(min(max(widest, 30), (width * DPI - left - MARGIN) / count))
    canvas = Canvas(width, theme)
    top = canvas.header(title, data) + 30
    grid = Grid(canvas, left, top, cell, 30, 1, count)
    grid.owners_above(whose, top - 20, order)
    colors = [shade(hue(owner, order), kind, theme) for owner, kind in zip(whose, kinds, strict=True)]
    grid.paint(0, [Style(color) for color in colors])
    fits = cell >= widest - 5 and cell >= LABEL_MIN
    for col in range(count if fits else 0):
        grid.write(0, col, words[col], colors[col])
    y = _numbers(grid, lines, fits)
    y = _sample_marks(grid, read, y + 19)
    y = _starts(grid, starts, y + 25)
    return canvas.picture(y + 8, data, f"{title}: a row of cells for {', '.join(map(str, owners))}; {data}.")


def _numbers(grid: Grid, lines: dict[str, list[str]], fits: bool) -> float:
    """Positions and slots under the tokens, each line with its name at the left."""
    canvas, y = grid.canvas, grid.bottom - 1
    canvas.text(grid.x - 10, grid.mid(0, 0)[1], NAMES["tokens"], SMALL_PT, ha="right", color=canvas.theme.muted)
    for name, numbers in lines.items() if fits else ():
        y += 19
        canvas.text(grid.x - 10, y, NAMES[name], SMALL_PT, ha="right", color=canvas.theme.muted)
        for col, number in enumerate(numbers):
            canvas.text(grid.mid(0, col)[0], y, number, SMALL_PT, ha="center")
    return y


def _sample_marks(grid: Grid, read: set[int], y: float) -> float:
    """An ink square under each row whose logits somebody will read."""
    canvas = grid.canvas
    canvas.text(grid.x - 10, y, NAMES["sample_at"], SMALL_PT, ha="right", color=canvas.theme.muted)
    for col in range(grid.cols):
        x = round(grid.mid(0, col)[0])
        if col in read:
            canvas.fill(x - 4, y - 4, 8, 8, canvas.theme.ink)
        else:
            canvas.fill(x - 1, y - 1, 2, 2, canvas.theme.rule)
    return y


def _starts(grid: Grid, starts: Sequence[int], y: float) -> float:
    """q_start as a ruler: a tick at each boundary with its number."""
    canvas = grid.canvas
    canvas.text(grid.x - 10, y - 4, "q_start", SMALL_PT, ha="right", color=canvas.theme.muted)
    canvas.stroke([(grid.x, y - 9.5), (grid.right + 1, y - 9.5)], canvas.theme.ink, 1, 3)
    for start in starts:
        x = grid.x + start * grid.width + 0.5
        canvas.stroke([(x, y - 13), (x, y - 6)], canvas.theme.ink, 1, 3)
        canvas.text(x, y + 3, str(start), SMALL_PT, ha="center")
    return y


def draw_cache(
    pages: Sequence[tuple[object, int, int]],
    page_size: int,
    *,
    dummy: int | None = None,
    unit: str = "slot",
    order: Sequence[object] = (),
    title: str = "The cache",
    data: str | None = None,
    width: float | None = None,
    theme: Theme = LIGHT,
) -> Picture:
    """The cache as rows of slots or pages.

    pages: for each slot or page (owner or None, tokens that were there, tokens that this step writes)
    page_size: tokens in one   dummy: the index of the page where padding is written   unit: what one is called
    """
    used, new = sum(old + fresh for _, old, fresh in pages), sum(fresh for _, _, fresh in pages)
    real = len(pages) - (dummy is not None)
    data = (
        data or f"{real} {unit}s of {page_size}: {used} of {real * page_size} places in use, {new} written in this step"
    )
    left = MARGIN + round(text_width(f"{unit} {len(pages) - 1}", SMALL_PT)) + 34
    width = width or (HALF if (HALF * DPI - left - MARGIN) / page_size >= 14 else FULL)
    cell = min(26, (width * DPI - left - MARGIN) / page_size)
    cell = int(cell) if cell >= 3 else cell
    canvas = Canvas(width, theme)
    height = max(14, min(26, int(cell))) if len(pages) <= 12 else 14
    y = canvas.header(title, data)
    for index, (owner, old, fresh) in enumerate(pages):
        grid = Grid(canvas, left, y, cell, height, 1, page_size)
        grid.paint(0, _page_styles(owner, old, fresh, page_size, index == dummy, order, theme))
        grid.border()
        middle = grid.mid(0, 0)[1]
        canvas.text(left - 30, middle, f"{unit} {index}", SMALL_PT, ha="right", color=theme.muted)
        if owner is not None and index != dummy:
            canvas.text(
                left - 14, middle, str(owner), TEXT_PT, bold=True, ha="center", color=letter(hue(owner, order), theme)
            )
        y = grid.bottom + 5
    items = [("from the cache", Style(shade(theme.slate, "cached", theme))), ("written now", Style(theme.slate))]
    items += [("free", Style(hairline=True))] + ([("dummy", Style(hatch=True))] if dummy is not None else [])
    y = canvas.key(left, y + 5, items)
    return canvas.picture(y, data, f"{title}: {len(pages)} rows, one a {unit}; {data}.")


def _page_styles(
    owner: object, old: int, fresh: int, size: int, dummy: bool, order: Sequence[object], theme: Theme
) -> list[Style]:
    if dummy:
        return [Style(hatch=True)] * size
    color = hue(owner, order)
    was, now = Style(shade(color, "cached", theme)), Style(shade(color, "new", theme))
    return [was] * old + [now] * fresh + [Style(hairline=True)] * (size - old - fresh)
