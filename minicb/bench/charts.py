"""The pictures of `minicb bench`, drawn from its report: who was how fast, and how a decode step grows."""

from __future__ import annotations

from typing import Any

from minicb.course.draw import draw_bars, draw_lines
from minicb.course.draw.palette import HUES, LIGHT, Theme
from minicb.course.draw.picture import Picture


def draw_race(report: dict[str, Any], theme: Theme = LIGHT) -> Picture:
    """A bar an engine: useful tokens a second, of the median run."""
    engines = {one["name"]: one["output_tokens_per_s"] for one in report["engines"] if one["name"] != "gemm-floor"}
    floor = [one["output_tokens_per_s"] for one in report["engines"] if one["name"] == "gemm-floor"]
    first = next(iter(engines))
    work = report["workload"]
    return draw_bars(
        engines,
        unit="tokens/s",
        digits=1,
        limit=(floor[0], "torch's products alone") if floor else None,
        colors={name: HUES[0] if name == first else theme.muted for name in engines},
        title=f"{work['name']}, {report['dtype']}: {work['requests']} requests, {work['output_tokens']:,} to write",
        theme=theme,
    )


def draw_growth(report: dict[str, Any], theme: Theme = LIGHT) -> Picture:
    """Tokens a second of a decode step against the batch, under the roofline of the machine."""
    limits, points = report["growth"]["machine"], report["growth"]["batch"]
    sizes = [point["batch"] for point in points]
    alone_s = limits["weight_bytes"] / limits["read_bytes_per_s"]
    roof = limits["flops_per_s"] / limits["weight_flops"]
    extra = ", with the compiled extra" if report["growth"].get("native") else ""
    ridge = roof * alone_s  # the batch at which both limits meet
    ends = sorted({sizes[0], min(max(ridge, sizes[0]), sizes[-1]), sizes[-1]})
    lines = {"reading the weights": (ends[:2], [x / alone_s for x in ends[:2]])}
    if ridge < sizes[-1]:
        lines["the products"] = (ends[-2:], [roof, roof])
    return draw_lines(
        {"measured": (sizes, [point["batch"] / point["step_s"] for point in points])},
        x_label="requests in the step",
        y_label="tokens/s",
        log_x=True,
        log_y=True,
        limits=lines,
        title=f"A decode step by its number of requests, {report['dtype']}{extra}",
        theme=theme,
    )
