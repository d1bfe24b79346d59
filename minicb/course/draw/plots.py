"""Bars and lines with their labels beside them: counts, latencies, and how one depends on another. (Chapter 8)

A bar has its number at its end, a line its name at its last point; there is no legend to look up. The
part of a bar that was wasted is hatched, as padding is everywhere. A limit is a thin ink line with its
name on it. Logarithmic axes say so in their label.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from minicb.course.draw.canvas import MARGIN, Canvas, Style, text_width
from minicb.course.draw.palette import DPI, FULL, HUES, LIGHT, SMALL_PT, TEXT_PT, Theme, letter
from minicb.course.draw.picture import FONT, Picture

BAR = 22  # pixels: the height of a bar
Series = Mapping[str, tuple[Sequence[float], Sequence[float]]]


def draw_bars(
    values: Mapping[str, float],
    wasted: Mapping[str, float] | None = None,
    *,
    unit: str = "",
    digits: int = 0,
    limit: tuple[float, str] | None = None,
    colors: Mapping[str, str] | None = None,
    title: str = "Counts",
    data: str | None = None,
    width: float = FULL,
    theme: Theme = LIGHT,
) -> Picture:
    """Level bars, one a name, from 0.

    values: the length of each bar   wasted: how much of it was for nothing (hatched, at its end)
    limit: a value and its name   colors: a hue for a name (default: all the first hue)
    """
    wasted = wasted or {}
    shown = {name: f"{value:,.{digits}f}" for name, value in values.items()}
    data = data or "; ".join(f"{name}: {number}" for name, number in shown.items()) + (f" {unit}" if unit else "")
    canvas = Canvas(width, theme)
    top = canvas.header(title, data) + (16 if limit else 0)
    left = MARGIN + round(max(text_width(name, TEXT_PT) for name in values)) + 10
    room = canvas.width - left - MARGIN - max(text_width(number, SMALL_PT) for number in shown.values()) - 10
    scale = room / max(*values.values(), limit[0] if limit else 0, 1e-12)
    line = round(left + scale * limit[0]) + 0.5 if limit else 0.0
    y = top
    for name, value in values.items():
        whole, waste = round(scale * value), round(scale * wasted.get(name, 0))
        canvas.text(left - 9, y + BAR / 2, name, TEXT_PT, ha="right")
        canvas.fill(left, y, whole - waste, BAR, (colors or {}).get(name, HUES[0]))
        if waste:
            canvas.hatch(left + whole - waste + 1, y, waste - 1, BAR)
        end = float(left + whole)
        if end < line < end + 7 + text_width(shown[name], SMALL_PT):
            end = line  # the number stands behind the limit, not under it
        canvas.text(end + 7, y + BAR / 2, shown[name], SMALL_PT)
        y += BAR + 7
    canvas.stroke([(left - 0.5, top - 4), (left - 0.5, y - 3)], theme.ink)
    if limit:
        _limit_bar(canvas, line, top, y - 3, limit[1])
    if any(wasted.values()):
        useful = Style(theme.slate if colors else HUES[0])
        y = canvas.key(left, y + 3, [("useful", useful), ("wasted", Style(hatch=True))])
    return canvas.picture(y - 4, data, f"{title}: level bars; {data}.")


def _limit_bar(canvas: Canvas, x: float, top: float, bottom: float, name: str) -> None:
    """A thin ink line across the bars, its name on top."""
    canvas.stroke([(x, top - 6), (x, bottom)], canvas.theme.ink, 1, 3)
    canvas.text(x, top - 14, name, SMALL_PT, ha="right" if x > canvas.width * 0.7 else "left")


def draw_lines(
    series: Series,
    *,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
    limit: tuple[float, str] | None = None,
    limits: Series | None = None,
    colors: Mapping[str, str] | None = None,
    title: str = "How one depends on the other",
    data: str | None = None,
    width: float = FULL,
    theme: Theme = LIGHT,
) -> Picture:
    """Lines with a dot at each point and their name at the end.

    series: {name: (xs, ys)}   x_label, y_label: with units   limit: a y value and its name
    limits: limits that depend on x, {name: (two xs, two ys)}: straight pieces, their names along them
    """
    data = data or "; ".join(f"{name}: from {ys[0]:.4g} to {ys[-1]:.4g}" for name, (_, ys) in series.items())
    hues = {name: (colors or {}).get(name, HUES[i % len(HUES)]) for i, name in enumerate(series)}
    canvas = Canvas(width, theme)
    top = canvas.header(title, data)
    canvas.text(MARGIN, top + 2, y_label + (", log scale" if log_y else ""), SMALL_PT, color=theme.muted)
    tail = max(text_width(name, TEXT_PT, bold=True) for name in series) + 14
    left, height = MARGIN + 44, 250 if width > 6 else 190
    box = (left, top + 18, canvas.width - left - MARGIN - tail, height)

    def paint(axes: Any) -> None:
        _style(axes, theme, log_x, log_y)
        for name, (xs, ys) in series.items():
            axes.plot(xs, ys, color=hues[name], linewidth=1.8, marker="o", markersize=4, clip_on=False)
        for xs, ys in (limits or {}).values():
            axes.plot(xs, ys, color=theme.ink, linewidth=72 / DPI, zorder=1)
        _settle(axes, series, log_x, log_y)
        for name, (xs, ys) in (limits or {}).items():
            _name_limit(axes, name, xs, ys, theme)
        if limit:
            axes.axhline(limit[0], color=theme.ink, linewidth=72 / DPI)
            look = {"family": FONT, "fontsize": SMALL_PT, "color": theme.ink, "transform": axes.get_yaxis_transform()}
            axes.text(0.01, limit[0], limit[1], va="bottom", **look)
        _name_lines(axes, series, {name: letter(color, theme) for name, color in hues.items()}, 16 / height)

    canvas.plot(box, paint)
    bottom, below = top + 18 + height + 38, x_label + (", log scale" if log_x else "")
    canvas.text(left + box[2], bottom - 4, below, SMALL_PT, ha="right", color=theme.muted)
    return canvas.picture(bottom, data, f"{title}: lines of {y_label} over {x_label}; {data}.")


def _settle(axes: Any, series: Series, log_x: bool, log_y: bool) -> None:
    """Fix the scales before anything is placed by them: from 0 where that is honest, ticks at the points."""
    marks = sorted({x for xs, _ in series.values() for x in xs})
    if log_x and len(marks) <= 9:
        axes.set_xticks(marks, labels=[f"{x:g}" for x in marks])
        axes.set_xticks([], minor=True)
    axes.get_xlim()  # asking settles it
    low, high = axes.get_ylim()
    if log_y and high < 500 * low:  # so few powers of ten that one alone would have to carry the scale
        ticks = [
            n * 10.0**k for k in range(math.floor(math.log10(low)), math.ceil(math.log10(high))) for n in (1, 2, 5)
        ]
        axes.set_yticks([tick for tick in ticks if low <= tick <= high])
    if not log_y and min(y for _, ys in series.values() for y in ys) >= 0:
        low = 0
    axes.set_ylim(bottom=low)


def _name_limit(axes: Any, name: str, xs: Sequence[float], ys: Sequence[float], theme: Theme) -> None:
    """On the line and turned with it; a level piece is named at its end, where a roof has its room."""
    (x0, y0), (x1, y1) = axes.transData.transform(list(zip(xs, ys, strict=True)))
    level = abs(y1 - y0) < 1
    at = (xs[-1], ys[-1]) if level else axes.transData.inverted().transform(((x0 + x1) / 2, (y0 + y1) / 2))
    look = {"family": FONT, "fontsize": SMALL_PT, "color": theme.ink, "rotation_mode": "anchor"}
    turned = math.degrees(math.atan2(y1 - y0, x1 - x0))
    axes.annotate(
        name, at, (0, 4), textcoords="offset points", rotation=turned, ha="right" if level else "center", va="bottom",
        annotation_clip=False, **look,
    )  # fmt: skip


def _name_lines(axes: Any, series: Series, colors: Mapping[str, str], apart: float) -> None:
    """The name of each line at the height of its last point, moved apart where two would touch."""
    ends = {}
    for name, (xs, ys) in series.items():
        ends[name] = axes.transAxes.inverted().transform(axes.transData.transform((xs[-1], ys[-1])))[1]
    for name, y in spread(ends, apart).items():
        where = {"xy": (1, y), "xycoords": "axes fraction", "xytext": (8, 0), "textcoords": "offset points"}
        look = {"fontsize": TEXT_PT, "weight": "bold", "family": FONT, "color": colors[name]}
        axes.annotate(name, va="center", annotation_clip=False, **where, **look)


def _style(axes: Any, theme: Theme, log_x: bool, log_y: bool) -> None:
    """Two thin axes, plain numbers, nothing else."""
    axes.set_facecolor(theme.paper)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set(color=theme.ink, linewidth=72 / DPI)
    axes.set_xscale("log" if log_x else "linear")
    axes.set_yscale("log" if log_y else "linear")
    for axis, log in ((axes.xaxis, log_x), (axes.yaxis, log_y)):
        if log:
            axis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_minor_formatter(lambda *_: "")
    axes.tick_params(colors=theme.ink, labelsize=SMALL_PT, labelfontfamily=FONT, width=72 / DPI)


def spread(ends: Mapping[str, float], apart: float) -> dict[str, float]:
    """Move labels up until no two are closer than `apart`; their order stays."""
    placed: dict[str, float] = {}
    last = float("-inf")
    for name, y in sorted(ends.items(), key=lambda item: item[1]):
        last = placed[name] = max(y, last + apart)
    return placed
