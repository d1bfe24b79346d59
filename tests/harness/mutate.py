"""Plants known faults in copies of the core and reports what kills each: `python -m tests.harness.mutate`.

Every mutant runs in a process of its own, in a temporary copy of the package and the tests: a few rules, random cases,
then the other fast tests, until the first failure. Exit code 0 only if all are killed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.harness.mutants import Mutant, read_mutants

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 120
LIMIT_S = 180.0  # a mutant that runs longer hangs, which is a way to be noticed
TESTS = ("tests/test_rules.py", "tests/test_policy.py", "tests/test_determinism.py", "tests/test_load.py")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant. killer: what noticed it, empty if nothing did."""

    mutant: Mutant
    killer: str
    seconds: float

    def __str__(self) -> str:
        fate = "killed  " if self.killer else "passes  " if self.mutant is CLEAN else "SURVIVED"
        return f"{fate} {self.seconds:5.1f} s  {self.mutant.module:<15} {self.mutant.name:<46} {self.killer}"


def copy_project(folder: Path) -> None:
    for name in ("minicb", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)


def try_mutant(mutant: Mutant | None) -> Verdict:
    """Run the tests against this mutant; None: against the core as it is, which has to pass."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="minicb-mutant-") as name:
        folder = Path(name)
        copy_project(folder)
        if mutant is not None:
            file = folder / "minicb" / f"{mutant.module}.py"
            file.write_text(mutant.plant(file.read_text(encoding="utf-8")), encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            run = subprocess.run(
                [sys.executable, "-m", "tests.harness.kill", str(SEEDS), *TESTS],
                cwd=folder, env=environment, capture_output=True, encoding="utf-8", timeout=LIMIT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Verdict(mutant or CLEAN, f"it does not end within {LIMIT_S:.0f} s", time.perf_counter() - began)
    lines = run.stdout.strip().splitlines() or [""]
    killer = "" if run.returncode == 0 else lines[-1] if run.returncode == 1 and lines[-1] else crash(run.stderr)
    return Verdict(mutant or CLEAN, killer, time.perf_counter() - began)


CLEAN = Mutant("nothing is changed", "-", (), ())


def crash(stderr: str) -> str:
    return f"it does not start: {(stderr.strip().splitlines() or ['without a word'])[-1][:90]}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.harness.mutate", description=__doc__)
    parser.add_argument("--only", default="", help="mutants whose name or module contains this")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: all cores")
    options = parser.parse_args(arguments)
    chosen = [m for m in read_mutants() if options.only in m.name or options.only in m.module]
    began = time.perf_counter()
    with ThreadPoolExecutor(options.processes) as pool:
        verdicts = []
        for verdict in pool.map(try_mutant, [None, *chosen]):
            print(verdict, flush=True)
            verdicts.append(verdict)
    clean, *others = verdicts
    if clean.killer:
        print("the unchanged core does not pass: nothing can be said about the mutants")
        return 1
    alive = [verdict for verdict in others if not verdict.killer]
    print(f"{len(others) - len(alive)} of {len(others)} mutants killed in {time.perf_counter() - began:.0f} s")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
