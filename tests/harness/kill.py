"""Runs random cases and then tests, until the first failure, and says what failed. Started by `mutate.py`.

`python -m tests.harness.kill SEEDS TEST_FILE ...`: exit code 1 and the killer's name in the last line, or 0.
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


def main() -> int:
    torch.set_num_threads(1)
    killer = first_failing_seed(int(sys.argv[1]))
    if not killer and sys.argv[2:]:
        first = FirstFailure()
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *sys.argv[2:]], plugins=[first])
        killer = first.name if code == 1 else f"pytest ended with {code}" if code else ""
    print(f"\n{killer}")
    return 1 if killer else 0


if __name__ == "__main__":
    sys.exit(main())
