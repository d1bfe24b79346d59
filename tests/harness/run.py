"""Run one case, whatever kind it is."""

from __future__ import annotations

from collections import Counter

from tests.harness.case import Case
from tests.harness.driver import Driver
from tests.harness.padded import run_padded


def run(case: Case) -> Counter[str]:
    """What the engine survived, counted; AssertionError if anything is not as it has to be."""
    return Driver(case).run() if case.engine == "continuous" else run_padded(case)
