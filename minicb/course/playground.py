"""The playground of chapter 07: a few requests, three schedules, side by side.

    compare_schedules([6, 3, 4], [3, 9, 2], places=2, budget=8)     draws and counts them
    playground()                                                  the same with boxes and sliders

Every schedule is what an engine did: the tiny model runs the requests in each way, and its records are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minicb.course.draw import draw_timeline
from minicb.course.serving import workload
from minicb.course.table import Workload, longest_gap, records
from minicb.metrics import StepRecord

SCHEDULES = {"static": "padded", "dynamic": "padded, dynamic", "continuous": "continuous"}  # shown -> in the table
MOST, LONGEST = 8, 30  # requests, and tokens of a prompt or an answer: what a picture can hold
HEAD = (
    f"{'':<12}{'steps':>6}{'tokens computed':>17}{'padding':>9}{'longest gap':>13}{'mean wait':>11}{'longest wait':>14}"
)

PRESETS: Mapping[str, tuple[str, str, int, int]] = {
    "mixed": ("6 3 4 12 3 5", "3 9 2 5 7 3", 3, 8),
    "equal lengths, all at once": ("5 5 5", "6 6 6", 3, 15),
    "one request alone": ("20", "8", 3, 8),
    "a long prompt joins": ("3 3 28", "16 4 4", 2, 6),
    "one long answer": ("4 4 4 4 4 4", "2 20 2 2 2 2", 3, 12),
}


def compare_schedules(reads: Sequence[int], writes: Sequence[int], *, places: int, budget: int) -> None:
    """Serve the requests by static, dynamic and continuous batching; print what each computed, and draw it.

    reads, writes: tokens of the prompts and of the answers   places: requests at a time
    budget: tokens a step, for the continuous one
    """
    work = workload(reads, writes, places, budget)
    runs = run_schedules(work)
    print(HEAD)
    for name, steps in runs.items():
        print(count_row(name, steps))
    title = f"{len(reads)} request{'s' * (len(reads) > 1)}, {places} places, budget {budget}"
    draw_timeline(runs, order=list(work.requests), title=title).show()


def run_schedules(work: Workload) -> dict[str, Sequence[StepRecord]]:
    """The steps of each schedule."""
    return {name: records(method, work) for name, method in SCHEDULES.items()}


def count_row(name: str, steps: Sequence[StepRecord]) -> str:
    """A line under `HEAD`. A wait is counted in tokens that were computed, for whomever, before a first token."""
    computed, useful = sum(step.token_slots for step in steps), sum(step.useful_slots for step in steps)
    waits = list(first_tokens(steps).values())
    return (
        f"{name:<12}{len(steps):>6}{computed:>17,}{computed - useful:>9,}{longest_gap(steps):>13,}"
        f"{sum(waits) / len(waits):>11.1f}{max(waits):>14,}"
    )


def first_tokens(steps: Sequence[StepRecord]) -> dict[str, int]:
    """For each request the tokens that had been computed when its first token came, padding included."""
    done, first = 0, dict[str, int]()
    for step in steps:
        done += step.token_slots
        for entry in step.entries:
            if entry.sampled:
                first.setdefault(entry.request_id, done)
    return first


def read_lengths(name: str, text: str) -> list[int]:
    """Numbers from a text box. Raises ValueError with one line that says what to write."""
    try:
        lengths = [int(word) for word in text.replace(",", " ").split()]
    except ValueError:
        lengths = []
    if not 1 <= len(lengths) <= MOST or not all(1 <= length <= LONGEST for length in lengths):
        raise ValueError(f"{name}: write 1 to {MOST} whole numbers from 1 to {LONGEST}, for example 6 3 4")
    return lengths


def show_typed(prompts: str, answers: str, places: int, budget: int) -> None:
    """`compare_schedules` for typed text; a mistake is one line."""
    try:
        reads, writes = read_lengths("prompts", prompts), read_lengths("answers", answers)
        if len(reads) != len(writes):
            raise ValueError(f"{len(reads)} prompts but {len(writes)} answers: as many of both, please")
    except ValueError as mistake:
        print(mistake)
        return
    compare_schedules(reads, writes, places=places, budget=budget)


def playground() -> Any:
    """Boxes and sliders. As the last line of a notebook cell it shows itself."""
    import ipywidgets as widgets

    look = {"continuous_update": False, "layout": widgets.Layout(width="420px")}
    first = PRESETS["mixed"]
    preset = widgets.Dropdown(options=list(PRESETS), description="example")
    boxes = {
        "prompts": widgets.Text(first[0], description="prompts", **look),
        "answers": widgets.Text(first[1], description="answers", **look),
        "places": widgets.IntSlider(first[2], min=1, max=MOST, description="places", **look),
        "budget": widgets.IntSlider(first[3], min=1, max=48, description="budget", **look),
    }

    output = widgets.Output()
    choosing: list[bool] = []  # while an example fills the boxes, nothing is drawn

    def draw(_: object = None) -> None:
        if not choosing:
            with output:
                output.clear_output(wait=True)
                show_typed(**{name: box.value for name, box in boxes.items()})

    def choose(change: Mapping[str, Any]) -> None:
        choosing.append(True)
        for box, value in zip(boxes.values(), PRESETS[change["new"]], strict=True):
            box.value = value
        choosing.clear()
        draw()

    for box in boxes.values():
        box.observe(draw, names="value")
    preset.observe(choose, names="value")
    draw()
    return widgets.VBox([preset, *boxes.values(), output])
