"""Running a notebook as a learner would, and deciding whether two notebooks are the same.

Executed in the folder where the notebook will lie, in a kernel of this Python, with a fresh MINICB_HOME. What comes
back is made reproducible: no times, no version numbers, no widget state. Whatever would make a stored output
useless is an error: an exception, stderr, a failed check, a folder of this machine.

Pictures are not compared byte by byte (fonts differ); the text beside them is.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import minicb
from minicb.course.source import SourceError

Notebook = Any  # nbformat's own node type is untyped
TIMEOUT_S = 600
WIDGET = "application/vnd.jupyter.widget-view+json"


def execute(notebook: Notebook, target: Path, *, checks_pass: bool = True) -> None:
    """Run every cell and keep the outputs, cleaned. Raises SourceError where they should not be stored.

    target: where the notebook will lie; its folder is the working directory
    checks_pass: every check must end with [ok]
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    target.parent.mkdir(parents=True, exist_ok=True)
    metadata = dict(notebook.metadata)
    resources = {"metadata": {"path": str(target.parent)}}
    client = NotebookClient(
        notebook, timeout=TIMEOUT_S, kernel_name="python3", resources=resources, record_timing=False,
        extra_arguments=["--IPKernelApp.log_level=40"],
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as home:
        try:
            client.execute(env=environment(home))
        except CellExecutionError as error:
            raise SourceError(f"{target.name}: a cell failed.\n{error}") from None
        notebook.metadata = metadata
        for cell in notebook.cells:
            clean(cell)
            for problem in faults(cell, home, checks_pass):
                raise SourceError(f"{target.name}: {problem}\n{cell.source}")


def environment(home: str) -> dict[str, str]:
    """A learner's first day: nothing written yet, and the same plain outputs everywhere."""
    root = str(Path(minicb.__path__[0]).resolve().parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHONWARN")}
    return {**kept, "MINICB_HOME": home, "PYTHONPATH": path, "NO_COLOR": "1"}


def clean(cell: Notebook) -> None:
    """Take out what differs from run to run, and join what was printed in pieces."""
    cell.metadata.pop("execution", None)
    if cell.cell_type != "code":
        return
    if "nbval-ignore-output" in cell.metadata.get("tags", []) and any(
        WIDGET in o.get("data", {}) for o in cell.outputs
    ):
        cell.outputs = []  # a widget without its kernel is an error message on most pages; its static twin stands above
    joined: list[Any] = []
    for output in cell.outputs:
        if output.output_type == "stream" and joined and joined[-1].get("name") == output.name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    cell.outputs = joined


def faults(cell: Notebook, home: str, checks_pass: bool) -> list[str]:
    """Why this cell's outputs must not be stored."""
    if cell.cell_type != "code":
        return []
    tags, text = cell.metadata.get("tags", []), "".join(texts(cell))
    found = []
    if any(output.get("name") == "stderr" for output in cell.outputs):
        found.append(f"a cell wrote to stderr: {text}")
    if checks_pass and "nbval-check-output" in tags and not text.startswith("[ok]"):
        found.append(f"a check failed: {text}")
    places = [home, str(Path.home()), str(Path(minicb.__path__[0]).resolve().parent), tempfile.gettempdir()]
    found += [
        f"an output names a folder of this machine: {place}" for place in places if len(place) > 3 and place in text
    ]
    return found


def texts(cell: Notebook) -> list[str]:
    """Everything readable in a cell's outputs."""
    found = []
    for output in cell.get("outputs", []):
        found.append(output.get("text", ""))
        found += [str(value) for kind, value in output.get("data", {}).items() if not kind.startswith("image/")]
    return found


def first_difference(stored: Notebook, fresh: Notebook, *, outputs: bool) -> str | None:
    """Where two notebooks differ; None if they are the same.

    Same cells, ids and tags; with outputs: also the same words in them, unless they are tagged as varying.
    """
    if stored.metadata != fresh.metadata:
        return "metadata"
    for old, new in zip(stored.cells, fresh.cells, strict=False):
        for key in ("id", "cell_type", "source", "metadata"):
            if old[key] != new[key]:
                return f"{key} of cell {new.id}"
        varying = "nbval-ignore-output" in old.metadata.get("tags", [])
        if outputs and not varying and texts(old) != texts(new):
            return f"outputs of cell {new.id}"
    return None if len(stored.cells) == len(fresh.cells) else f"{len(stored.cells)} cells, not {len(fresh.cells)}"
