"""The trophy: one readable file made of the learner's own functions, in the order of the course.

The file imports only what the functions themselves use. A part that calls another part of the learner's finds it
in the same file; one that calls a part which is not theirs imports it from minicb, and the head of the file says so.
It holds functions, not an engine: the model's layers, the cache and the loop stay in minicb.
"""

from __future__ import annotations

import ast
from pathlib import Path

from minicb.course import work
from minicb.course.attempt import plain_source
from minicb.course.spec import Exercise, exercises

FIRST = '"""My engine: the parts that I wrote'
NAME = "my_parts.py"


def export(folder: str | Path = "my_engine") -> Path:
    """Write your functions into one file that imports and runs. Returns its path.

    Raises ValueError if you have none yet, or if the file there is not one that this function wrote.
    """
    parts = [(one, text) for one in exercises().values() if (text := work.read(one)) and one.seam.owner != "reference"]
    if not parts:
        raise ValueError("nothing to export yet: no exercise has passed its check")
    target = Path(folder) / NAME
    if target.exists() and not target.read_text(encoding="utf-8").startswith(FIRST):
        raise ValueError(f"{target} was not written by export(): choose another folder")
    text = compose(parts)
    exec(compile(text, str(target), "exec"), {"__name__": "my_parts"})  # it must stand on its own
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    own = sum(work.owner_of(text) == "yours" for _, text in parts)
    print(
        f"{target}: {own} of {len(exercises())} parts yours"
        + (f", {len(parts) - own} copied" if own < len(parts) else "")
    )
    return target


def compose(parts: list[tuple[Exercise, str]]) -> str:
    """The text of the file."""
    here = {one.name for one, _ in parts}
    imports: set[str] = set()
    borrowed: set[str] = set()
    for _, text in parts:
        for node in ast.parse(text).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("minicb"):
                names = [alias for alias in node.names if alias.asname or alias.name not in here]
                borrowed.update(f"from {node.module} import {_spelled(alias)}" for alias in names)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                imports.add(ast.unparse(node))
    note = "Some parts call others that I have not written; those are imported from minicb." if borrowed else ""
    about = [
        FIRST + ", each checked by minicb.",
        "",
        "The model's layers, the cache and the loop around them stay in minicb.",
        note,
    ]
    head = (
        "\n".join(line for i, line in enumerate(about) if line or i == 1)
        + '\n"""\n\nfrom __future__ import annotations\n'
    )
    blocks = (
        ["\n".join(sorted(imports, key=lambda line: (line.startswith("from"), line)) + sorted(borrowed))]
        if imports or borrowed
        else []
    )
    for one, text in parts:
        copied = " (a copy of the reference)" if work.owner_of(text) == "catch-up" else ""
        blocks.append(f"\n# {one.id}{copied}\n{plain_source(text)}".rstrip())
    return head + "\n" + "\n\n".join(blocks) + "\n"


def _spelled(alias: ast.alias) -> str:
    return f"{alias.name} as {alias.asname}" if alias.asname else alias.name
