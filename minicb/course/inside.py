"""Looking inside while the engine runs: the tensors that went into a part, and what came out of it.

    with watch("1.2") as calls:
        answer("The capital of France is", attention="reference")
    calls[0].args, calls[0].result     the first layer's scores and mask, and its weights

A lesson draws these instead of an example of its own. Whoever's part it is goes on running and being counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from minicb.course.spec import find
from minicb.seams import SEAMS


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a part. A tensor that the engine changes afterwards is kept as it was."""

    args: tuple[Any, ...]
    result: Any


@contextmanager
def watch(id: str) -> Iterator[list[Call]]:
    """Inside, every call of this part is added to the list that is handed out."""
    find(id)
    point, calls = SEAMS[id], list[Call]()
    installed, owner = point.installed, point.owner
    inner = installed or point.reference

    def look(*args: Any, **kwargs: Any) -> Any:
        kept = tuple(map(_copy, (*args, *kwargs.values())))
        result = inner(*args, **kwargs)
        calls.append(Call(kept, _copy(result)))
        return result

    point.put(look, owner)
    try:
        yield calls
    finally:
        if point.installed is look:  # unless a check inside has put in something else
            point.put(installed, owner)


def _copy(value: Any) -> Any:
    return value.clone() if hasattr(value, "clone") else value
