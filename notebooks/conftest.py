"""For `pytest --nbval notebooks/...`: every notebook runs like a first one, whatever you have written yourself."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

HOMES = pytest.StashKey[dict[Path, "tempfile.TemporaryDirectory[str]"]]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before a notebook's kernel starts, with its first cell, the notebook gets a MINICB_HOME of its own."""
    homes = item.config.stash.setdefault(HOMES, {})
    if item.path.suffix == ".ipynb" and item.path not in homes:
        homes[item.path] = tempfile.TemporaryDirectory()
        os.environ["MINICB_HOME"] = homes[item.path].name
        os.environ["NO_COLOR"] = "1"
        os.environ.pop("PYTHONWARNDEFAULTENCODING", None)  # it would make Jupyter's own files warn in our cells


def pytest_unconfigure(config: pytest.Config) -> None:
    for home in config.stash.get(HOMES, {}).values():
        home.cleanup()
