"""The race: every engine in a process of its own, the same job for all, in turns, and what it came to.

Turns (A B C, A B C, ...) and not blocks, because a shared machine is faster in one minute than in the next; the
first turn warms up and is not counted. A ratio is taken within each turn; the median of these is reported.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from minicb.bench.workers.protocol import Answers, Job

WORKERS = Path(__file__).with_name("workers")
LIMIT_S = 3600.0  # a worker that has said nothing for so long is ended


class EngineError(RuntimeError):
    """This engine cannot take part. The message is the reason, in one line."""


@dataclass(slots=True)
class Result:
    """One engine's part. Times in seconds."""

    name: str
    version: str
    dtype: str
    ready_s: float
    runs_s: list[float] = field(default_factory=list)
    output_tokens_per_s: float = 0.0  # of the median run
    peak_rss_bytes: int | None = None
    same_answers: int = 0  # requests answered as the first engine of the race answers them


class Worker:
    """An engine in a process of its own."""

    def __init__(self, name: str, command: Sequence[str], job: Job) -> None:
        self.name = name
        self.log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - lives as long
        began = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, encoding="utf-8"
        )
        self.version = str(self.ask(json.dumps(asdict(job)))["ready"])
        self.ready_s = time.perf_counter() - began

    def run(self) -> dict[str, Any]:
        """One run: seconds, answers, peak_rss_bytes."""
        return self.ask("go")

    def ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        timer = threading.Timer(LIMIT_S, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except OSError:
            answer = ""
        finally:
            timer.cancel()
        if not answer:
            self.end()
            raise EngineError(self.last_words())
        reply: dict[str, Any] = json.loads(answer)
        return reply

    def last_words(self) -> str:
        """Why it died, as far as its own output says."""
        self.log.seek(0)
        lines = [line.strip() for line in self.log.read().splitlines() if line.strip()]
        return (lines or [f"it ended with code {self.process.returncode} and said nothing"])[-1]

    def end(self) -> None:
        """Let it go; killed if it does not."""
        try:
            self.process.communicate("", timeout=20)
        except (subprocess.TimeoutExpired, OSError, ValueError):
            self.process.kill()
            self.process.wait()


def own_command(name: str) -> list[str]:
    return [sys.executable, "-m", "minicb.bench.workers.own", name]


def foreign_command(python: str, script: str) -> list[str]:
    return [python, str(WORKERS / script)]


def race(
    commands: Mapping[str, Sequence[str]], job: Job, rounds: int, say: Callable[[str], None]
) -> tuple[list[Result], list[dict[str, str]]]:
    """Run all engines in turn. Returns the results, and the engines that could not take part with the reason."""
    workers: list[Worker] = []
    skipped: list[dict[str, str]] = []
    results: dict[str, Result] = {}
    first: Answers | None = None
    try:
        for name, command in commands.items():
            try:
                workers.append(Worker(name, command, job))
                say(f"{name} {workers[-1].version} is ready after {workers[-1].ready_s:.1f} s")
            except (EngineError, OSError) as error:
                skipped.append({"name": name, "why": str(error)})
                say(f"{name} is skipped: {error}")
        for turn in range(rounds + 1):
            for worker in list(workers):
                try:
                    reply = worker.run()
                except EngineError as error:
                    workers.remove(worker)
                    results.pop(worker.name, None)
                    skipped.append({"name": worker.name, "why": str(error)})
                    say(f"{worker.name} is out: {error}")
                    continue
                first = first or reply["answers"]
                own = results.setdefault(
                    worker.name, Result(worker.name, worker.version, job.dtype, round(worker.ready_s, 3))
                )
                own.peak_rss_bytes = reply["peak_rss_bytes"]
                own.same_answers = sum(a == b for a, b in zip(reply["answers"], first, strict=True))
                if turn:  # the first one warms up
                    own.runs_s.append(round(reply["seconds"], 4))
                    speed = sum(job.max_tokens) / reply["seconds"]
                    say(f"{worker.name:<22}{reply['seconds']:8.2f} s{speed:9.1f} tokens/s")
    finally:
        for worker in workers:
            worker.end()
    for own in results.values():
        own.output_tokens_per_s = round(sum(job.max_tokens) / median(own.runs_s), 2)
    return list(results.values()), skipped


def ratios(results: Sequence[Result]) -> dict[str, float]:
    """How many times as fast the first engine is as each other one: the median over the turns."""
    if not results:
        return {}
    head, *others = results
    return {
        f"{head.name}/{other.name}": round(median(b / a for a, b in zip(head.runs_s, other.runs_s, strict=True)), 3)
        for other in others
    }
