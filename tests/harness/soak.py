"""Many seeds on all cores: `python -m tests.harness.soak --seeds 2000 [--start 0]`.

Prints what the engine survived, and exit code 0 only if every seed was clean. A failure prints its seed and a small
case that still fails, as a line to paste: `python -m tests.harness.soak --case '...'`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch

from tests.harness.case import Case, draw_case, from_json
from tests.harness.run import run
from tests.harness.shrink import shrink

CHUNK = 10  # seeds a task
ENOUGH = 3  # failures: more would tell little
TOTALS = ("seeds", "steps", "requests", "tokens", "aborts", "faults")
ENDINGS = ("stop", "length", "abort", "error")
FAULTS = ("model faults", "interrupts", "callback faults", "sampler faults", "decoder faults")


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong, and a small case in which it still does."""

    seed: int
    error: str
    case: str

    def __str__(self) -> str:
        command = f"python -m tests.harness.soak --case '{self.case}'"
        return f"seed {self.seed} fails: {self.error}\nsmallest case found:\n  {command}"


def reason(case: Case) -> str | None:
    """Why this case fails; None if it does not."""
    try:
        run(case)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = str(error).strip() or place.line or ""
        return f"{type(error).__name__}: {text[:500]} ({Path(place.filename).name}:{place.lineno})"
    return None


def examine(case: Case, seconds: float = 60.0) -> Failure | None:
    """Run a case; if it fails, find a smaller one."""
    error = reason(case)
    if error is None:
        return None
    kind = error.split(":")[0]  # a smaller case that is merely refused would tell nothing
    small = shrink(case, lambda c: (reason(c) or "").startswith(kind), seconds)
    return Failure(case.seed, reason(small) or error, small.to_json())


def run_seeds(seeds: Iterable[int], seconds: float = 60.0) -> tuple[Counter[str], list[Failure]]:
    """All that these seeds survived, and the first failure among them."""
    total: Counter[str] = Counter()
    for seed in seeds:
        case = draw_case(seed)
        try:
            total += run(case)
        except Exception as error:
            failure = examine(case, seconds)
            return total, [failure or Failure(seed, f"only once: {error!r}", case.to_json())]
    return total, []


def use_one_thread() -> None:
    torch.set_num_threads(1)


def soak(start: int, seeds: int, processes: int) -> tuple[Counter[str], list[Failure]]:
    """Spread the seeds over the cores; stops early after a few failures."""
    total: Counter[str] = Counter()
    failures: list[Failure] = []
    chunks = [range(at, min(at + CHUNK, start + seeds)) for at in range(start, start + seeds, CHUNK)]
    with ProcessPoolExecutor(processes, get_context("spawn"), use_one_thread) as pool:
        for done in as_completed([pool.submit(run_seeds, chunk) for chunk in chunks]):
            counts, failed = done.result()
            total += counts
            failures += failed
            if sys.stderr.isatty():
                print(f"\r{total['seeds']} of {seeds} seeds", end="", file=sys.stderr, flush=True)
            if len(failures) >= ENOUGH:
                pool.shutdown(cancel_futures=True)
                break
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return total, failures


def report(total: Counter[str], seconds: float) -> str:
    """The counts in four lines."""
    total = total + Counter(faults=sum(total[name] for name in FAULTS))
    lines = [", ".join(f"{total[name]:,} {name}" for name in TOTALS) + f", {seconds:.0f} s"]
    lines.append("ended by " + ", ".join(f"{name} {total[name]:,}" for name in ENDINGS))
    lines.append("faults: " + ", ".join(f"{name} {total[name]:,}" for name in FAULTS))
    aborts = sorted(name for name in total if name.startswith("aborts "))
    lines.append(
        ", ".join(f"{name} {total[name]:,}" for name in aborts) + f"; refused at the door {total['refused']:,}"
    )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.harness.soak", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many (default 200)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: all cores")
    parser.add_argument("--case", help="run this one case instead, as a failure prints it")
    options = parser.parse_args(arguments)
    if options.case:
        error = reason(from_json(options.case))
        print(error or "this case is clean")
        return 1 if error else 0
    began = time.perf_counter()
    total, failures = soak(options.start, options.seeds, options.processes)
    for failure in failures:
        print(f"{failure}\n")
    print(report(total, time.perf_counter() - began))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
