"""What a long-running command shows: bars and a live timeline on a terminal, plain lines anywhere else.

`rich` does the drawing. Not a terminal (a pipe, a log, CI) means: no control codes, no redrawing, a line when
something starts and a line when it ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from minicb.metrics import StepRecord, timeline_text

# The course's hues, a request each, in order of arrival.
HUES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#56B4E9")
REDRAWS_PER_S = 8
SHAPES = {"#": "\u2588", "=": "\u2592", ".": "\u00b7", "x": "\u2591"}  # full, shaded, dot, light


class Screen:
    """Everything that a command says."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        if not self.console.is_terminal:
            self.console = console or Console(highlight=False, width=140, no_color=True)

    def say(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)

    @contextmanager
    def progress(self, name: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar while the block runs; its function takes the number that are done."""
        began = time.perf_counter()
        if not self.console.is_terminal:
            self.say(f"{name}: {total} requests ...")
            yield lambda _: None
        else:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            with Progress(*columns, console=self.console, transient=True) as bar:
                task = bar.add_task(name, total=total)
                yield lambda done: bar.update(task, completed=done)
        self.say(f"{name}: {total} requests in {time.perf_counter() - began:.1f} s")

    @contextmanager
    def timeline(self, name: str, records: Sequence[StepRecord]) -> Iterator[Callable[[StepRecord], None]]:
        """The engine's timeline, live; on anything but a terminal a line for each request that ends."""
        began = time.perf_counter()
        if self.console.is_terminal:
            with Live(console=self.console, refresh_per_second=REDRAWS_PER_S, transient=False) as live:
                last = [0.0]

                def redraw(record: StepRecord) -> None:
                    now = time.perf_counter()
                    if now - last[0] > 1 / REDRAWS_PER_S or not record.num_waiting + len(record.entries):
                        last[0] = now
                        live.update(self.draw(records))

                yield redraw
                live.update(self.draw(records))
        else:

            def line(record: StepRecord) -> None:
                for request, why in record.finished:
                    self.say(f"  {time.perf_counter() - began:6.1f} s  step {record.step:4d}  {request} ended ({why})")

            yield line
            for row in timeline_text(records, self.console.width - 14):
                self.say(row)
        self.say(f"{name}: {len(records)} steps in {time.perf_counter() - began:.1f} s")

    def draw(self, records: Sequence[StepRecord]) -> Text:
        """The timeline in colour, a request a line; what the terminal cannot print stays a letter."""
        label = max((len(name) for record in records for name in record.arrived), default=0)
        lines = timeline_text(records, max(20, self.console.width - label - 2))
        if "utf" in (self.console.encoding or "").lower():
            lines = [
                line[:label] + line[label:].translate({ord(letter): shape for letter, shape in SHAPES.items()})
                for line in lines
            ]
        text = Text(no_wrap=True, overflow="crop")
        for i, line in enumerate(lines):
            text.append(line + "\n", style=HUES[i % len(HUES)])
        return text

    def table(self, title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
        """A table; the last column is cut to the screen's width."""
        table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for i, head in enumerate(heads):
            table.add_column(head, justify="right" if i in right else "left", no_wrap=True, header_style="dim")
        taken = sum(max(map(len, (heads[i], *(row[i] for row in rows)))) + 2 for i in range(len(heads) - 1))
        room = max(20, self.console.width - taken)
        for row in rows:
            *first, last = row
            table.add_row(*map(Text, first), Text(last if len(last) <= room else last[: room - 3] + "..."))
        self.console.print()
        self.console.print(table)
