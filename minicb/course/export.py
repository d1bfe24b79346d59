"""The trophy: the learner's engine as one readable file that runs alone, without the course and without minicb.

    export()                          my_engine/engine.py beside your .minicb
    python my_engine/engine.py "The capital of France is" "Water boils at" --check

Your functions, and around them the core's own text, as far as they need it (`bundle.py`). What the file leaves out
is said in its head. The same command is `minicb export`.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from pathlib import Path

from minicb.course import work
from minicb.course.bundle import Bundle
from minicb.course.pieces import ROOT, Piece
from minicb.course.report import wrapped
from minicb.course.spec import exercises
from minicb.seams import SEAMS, order

FIRST = '"""My engine: '
NAME = "engine.py"
USE = """\
Answers several prompts by continuous batching. Needs torch, safetensors and tokenizers; it does not need minicb.

    python engine.py "The capital of France is" "Water boils at" --check
    python engine.py --help

Left out, to stay short: sampling (it is greedy), stop texts, logprobs, streams, aborts, sliding windows, stretched
rope, other policies than first come, first served, faults that end one request alone, and the fast attention.
"""


def export(folder: str | Path | None = None) -> Path:
    """Write your engine as one file. Returns its path.

    folder: where to; default: `my_engine` beside your .minicb
    Raises ValueError if nothing is yours yet, or if the file there is not one that this function wrote.
    """
    own = own_sources()
    if not own:
        raise ValueError("nothing to export yet: no exercise has passed its check")
    target = (work.home() / "my_engine" if folder is None else Path(folder)) / NAME
    if target.exists() and not target.read_text(encoding="utf-8", errors="replace").startswith(FIRST):
        raise ValueError(f"{target} was not written by export(): choose another folder")
    text = compose(own)
    must_run(text)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    shown = target.relative_to(work.home()) if target.is_relative_to(work.home()) else target
    print(f"{shown.as_posix()}: {text[len(FIRST) :].splitlines()[0]}")
    print(f'It runs without minicb: python {shown.as_posix()} "The capital of France is" "Water boils at" --check')
    return target


def own_sources() -> dict[str, str]:
    """The saved texts of the functions that are yours and installed, by exercise."""
    yours = [one for one in exercises().values() if one.seam.yours]
    return {one.id: text for one in yours if (text := work.read(one)) is not None}


def compose(own: Mapping[str, str]) -> str:
    """The text of the file. own: exercise id -> the learner's saved file"""
    extra = [(SEAMS[id].reference.__module__.removeprefix("minicb."), SEAMS[id].name) for id in own]
    bundle = Bundle(own, extra)
    sections = list(bundle.sections())
    parts = [piece for _, _, pieces in sections for piece in pieces if piece.seam]
    blocks = ["\n".join([head(own, parts), "", *bundle.import_lines()])]
    for module, about, pieces in sections:
        title = "the engine around them" if module == ROOT else f"{module}.py: {about[0].lower()}{about[1:]}"
        blocks.append(f"# {'-' * 8} {title}")
        for piece in pieces:
            owner = f"# {piece.seam}, {'mine' if piece.seam in own else 'from minicb'}\n" if piece.seam else ""
            blocks.append(owner + bundle.text_of(piece))
    return "\n\n\n".join(blocks) + "\n"


def head(own: Mapping[str, str], parts: list[Piece]) -> str:
    """What the file is, how to use it, whose its parts are."""
    mine = sorted((part for part in parts if part.seam in own), key=lambda part: order(str(part.seam)))
    others = sorted((part for part in parts if part.seam not in own), key=lambda part: order(str(part.seam)))
    lines = [f"{FIRST}{len(mine)} of its {len(parts)} parts are mine", "", *USE.splitlines(), ""]
    for title, some in (("Mine", mine), ("From minicb", others)):
        if some:
            lines += wrapped(f"{title}: " + ", ".join(f"{part.seam} {part.name}" for part in some) + ".", 116)
    return "\n".join([*lines, '"""', "", "from __future__ import annotations"])


def must_run(text: str) -> None:
    """Run the definitions once, as a module of their own. An error here is a bug of export, not the learner's."""
    module = types.ModuleType("my_engine")
    sys.modules["my_engine"] = module  # where dataclasses look for the names in their annotations
    try:
        exec(compile(text, NAME, "exec"), module.__dict__)
    finally:
        del sys.modules["my_engine"]
