"""Runs tests and random cases until the first failure, and says what failed. Started by `mutate.py`.

`python -m tests.harness.kill SEEDS FIRST_FILE MORE_FILES ...`: the seeds come after the first file. Exit code 1 and
the killer's name in the last line, or 0.
"""

from __future__ import annotations

import sys
import traceback

import pytest
import torch

from tests.harness.case import draw_case
from tests.harness.run import run


class FirstFailure:
    """Remembers the name of the first test that fails."""

    def __init__(self) -> None:
        self.name = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.name:
            self.name = f"{report.nodeid} (cannot be imported)"


def first_failing_seed(seeds: int) -> str:
    """The first seed that fails, and where; empty if none does."""
    for seed in range(seeds):
        try:
            run(draw_case(seed))
        except Exception as error:
            *_, last = traceback.extract_tb(error.__traceback__)
            return f"soak seed {seed}: {(str(error).splitlines() or [last.line or ''])[0][:90]}"
    return ""


def first_failing_test(files: list[str]) -> str:
    """The first test of these files that fails; empty if none does."""
    first = FirstFailure()
    code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *files], plugins=[first])
    return first.name or (f"pytest ended with {code}" if code else "")


def main() -> int:
    torch.set_num_threads(1)
    seeds, first, *more = sys.argv[1:]
    killer = first_failing_test([first]) or first_failing_seed(int(seeds)) or first_failing_test(more)
    print(f"\n{killer}")
    return 1 if killer else 0


if __name__ == "__main__":
    sys.exit(main())
