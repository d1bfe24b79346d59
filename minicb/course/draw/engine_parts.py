"""The parts of the engine, in the order in which a step visits them, and which exercise lives where.

The one list behind both forms of the engine map: the figure (`engine_map.py`) and the text for
terminals, which is here. An exercise that the table does not name goes to its chapter's part, so a new
one can be late on the map but never missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Exercise(NamedTuple):
    """One cell of the map. owner: "yours", "catch-up" (a copy was installed), "reference" or "later"."""

    id: str
    name: str
    owner: str


class Part(NamedTuple):
    key: str
    title: str
    caption: str


PARTS = (
    Part("queue", "Queue", "waiting, running"),
    Part("scheduler", "Scheduler", "a plan: who, how many"),
    Part("pack", "Pack", "one ragged row"),
    Part("heads", "Q, K, V", "per head"),
    Part("cache", "KV cache", "keys and values of all earlier tokens"),
    Part("scores", "Scores", "Q K\u1d40"),
    Part("mask", "Mask", "who sees whom"),
    Part("weights", "Weights", "softmax"),
    Part("mix", "Mix", "weights V"),
    Part("mlp", "MLP", "token by token"),
    Part("logits", "Logits", "rows somebody reads"),
    Part("sample", "Sample", "a token each"),
    Part("commit", "Commit", "advance, finish, free"),
    Part("padding", "Baselines", "what the engine replaces"),
    Part("measure", "Measure", "steps, slots, waiting"),
)
LAYER = ("heads", "cache", "scores", "mask", "weights", "mix", "mlp")  # inside every layer of the model
BESIDE = ("padding", "measure")  # not on the way from prompt to tokens

BY_CHAPTER = {
    0: "sample", 1: "heads", 2: "mask", 3: "cache", 4: "scheduler", 5: "padding", 6: "pack", 7: "scheduler",
    8: "measure", 9: "scheduler", 10: "cache", 11: "scheduler", 12: "sample", 13: "mlp",
}  # fmt: skip
BY_ID = {
    "1.1": "scores", "1.2": "weights", "1.3": "mix", "3.1": "padding", "3.5": "pack", "4.3": "mask",
    "4.4": "measure", "5.3": "measure", "6.2": "mask", "6.3": "logits", "6.4": "mix", "7.1": "queue",
    "7.3": "commit", "7.4": "pack", "7.5": "queue", "9.1": "queue", "9.2": "queue",
    "9.3": "queue", "9.4": "queue", "9.5": "measure",
}  # fmt: skip


def place(exercises: Iterable[Sequence[str]]) -> dict[str, list[Exercise]]:
    """The exercises of each part, by id."""
    placed: dict[str, list[Exercise]] = {part.key: [] for part in PARTS}
    for one in sorted((Exercise(*e) for e in exercises), key=lambda e: [int(n) for n in e.id.split(".")]):
        chapter = int(one.id.split(".")[0])
        placed[BY_ID.get(one.id) or BY_CHAPTER.get(chapter, "measure")].append(one)
    return placed


def count_yours(exercises: Iterable[Sequence[str]]) -> str:
    """The data line of the map: "3 of 21 parts yours, 10 in later chapters"."""
    owners = [Exercise(*e).owner for e in exercises]
    now, later = [owner for owner in owners if owner != "later"], owners.count("later")
    line = f"{now.count('yours')} of {len(now)} parts yours"
    return line + (f", {later} in later chapters" if later else "")


MARKS = {"yours": "[ok]", "catch-up": "[cp]", "reference": "[  ]", "later": " .. "}
COLUMN = 24  # characters for a mark, an id and a name


def engine_map_text(parts: Iterable[Sequence[str]]) -> str:
    """The engine map for a terminal: plain ASCII, at most 79 columns.

    parts: (exercise id, name, owner), owner "yours", "catch-up", "reference" or "later"
    """
    exercises = list(parts)
    placed = place(exercises)
    copied = "   [cp] copied to catch up" if any(e[2] == "catch-up" for e in exercises) else ""
    lines = [count_yours(exercises), f"[ok] yours{copied}   [  ] reference    ..  a later chapter", ""]
    lines += ["     prompt > tokenizer", "  +--> |"]
    for part in PARTS:
        if part.key in BESIDE:
            continue
        if part.key == LAYER[0]:
            lines += ["  |  v  Model, in each layer"]
        lines += _text_part(part, placed[part.key], "  |  :    " if part.key in LAYER else "  |  v  ")
    lines += ["  |    |", "  +----+---> tokens > stream   (and back to the queue until all have finished)", ""]
    for part in PARTS:
        if part.key in BESIDE and placed[part.key]:
            lines += _text_part(part, placed[part.key], "     -  ")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _text_part(part: Part, exercises: list[Exercise], lead: str) -> list[str]:
    """The part's name, then its exercises, two a line."""
    head = f"{lead}{part.title}".ljust(20)
    rest = lead.replace("v", "|").replace("-", " ").ljust(20)
    cells = [f"{MARKS[e.owner]} {e.id} {e.name}"[: COLUMN + 5].ljust(COLUMN + 5) for e in exercises]
    rows = ["".join(cells[i : i + 2]) for i in range(0, len(cells), 2)] or [f"({part.caption})".replace("\u1d40", "'")]
    return [(head if i == 0 else rest) + row for i, row in enumerate(rows)]
