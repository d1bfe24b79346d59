"""For the tests of the course: a home of their own, and no exercise done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minicb import seams
from minicb.course.attempt import workbench


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A learner's first day: an empty home, an empty workbench, references everywhere."""
    monkeypatch.setenv("MINICB_HOME", str(tmp_path))
    workbench.clear()
    with seams.references_only():
        seams.begin_receipt()
        yield tmp_path
    workbench.clear()
