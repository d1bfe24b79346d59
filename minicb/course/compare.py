"""Is the answer right, and if not, what differs? Said in words, and drawn where it is small.

Compares what a function *does*: tensors by shape, kind of number and value (floats with a tolerance),
everything else by its parts, down through lists, dicts and dataclasses. A list where the engine's own
function gives a tuple is no difference, nor is int32 instead of int64: the engine does not care either.

Texts speak to the learner ("yours", "expected") in plain ASCII. No exercise is known here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

MAX_ROWS, MAX_COLUMNS = 6, 12  # of a drawing; a larger answer is described in words only
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """The first difference found: a sentence, and if the values are small, the lines of a drawing.

    open: the sentence tells only shapes, kinds and counts, not the expected value itself.
    """

    text: str
    drawing: tuple[str, ...] = ()
    open: bool = True


def difference(yours: Any, expected: Any, where: str = "") -> Difference | None:
    """None if they are the same. `where` names the part that is being compared ("keys", "item 1")."""
    if isinstance(expected, Tensor):
        return _tensors(yours, expected, where) if isinstance(yours, Tensor) else _kinds(yours, expected, where)
    if _plain_number(expected):
        return _numbers(yours, expected, where) if _plain_number(yours) else _kinds(yours, expected, where)
    if isinstance(expected, (list, tuple, range)) and isinstance(yours, (list, tuple, range)):
        return _sequences(yours, expected, where)
    if type(yours) is not type(expected):
        return _kinds(yours, expected, where)
    parts = _parts(expected)
    if parts is not None:
        return _mappings(_parts(yours) or {}, parts, where)
    same = repr(yours) == repr(expected) if isinstance(expected, BaseException) else yours == expected
    return None if same else Difference(_should(where, repr(expected), repr(yours)), open=False)


def _tensors(yours: Tensor, expected: Tensor, where: str) -> Difference | None:
    if yours.shape != expected.shape:
        drawing = draw(yours, expected) if yours.dim() == expected.dim() == 2 else ()
        return Difference(_should(_of("shape", where), list(expected.shape), list(yours.shape)), drawing)
    if _family(yours.dtype) != _family(expected.dtype):
        kinds = str(expected.dtype).removeprefix("torch."), str(yours.dtype).removeprefix("torch.")
        return Difference(_should(_of("dtype", where), *kinds))
    wrong = ~_close(yours, expected)
    count = int(wrong.sum())
    if not count:
        return None
    nan = ", and yours contains NaN" if yours.is_floating_point() and yours.isnan().any() else ""
    one = "cell" if yours.dtype == torch.bool else "number"
    counted = f"{count} of {yours.numel()} {one}s differ" if yours.numel() > 1 else f"the {one} differs"
    part = f" Drawn: [{', '.join(map(str, _first_wrong(wrong)))}]." if wrong.dim() > 2 else ""
    return Difference(f"{where + ': ' if where else ''}{counted}{nan}.{part}", draw(yours, expected))


def _family(dtype: torch.dtype) -> object:
    """Which dtypes count as the same: all whole-number types; each float type on its own."""
    return dtype if dtype == torch.bool or dtype.is_floating_point else "whole number"


def _close(yours: Tensor, expected: Tensor) -> Tensor:
    if not expected.is_floating_point():
        return yours == expected
    tolerance = TOLERANCE.get(expected.dtype, 1e-4)
    # Expected values hold no NaN; when two answers are compared to see whether they are the same mistake, both may.
    return torch.isclose(yours, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def _numbers(yours: float, expected: float, where: str) -> Difference | None:
    if isinstance(expected, bool) != isinstance(yours, bool) or (
        isinstance(expected, int) and isinstance(yours, float)
    ):
        return _kinds(yours, expected, where)
    same = (
        math.isclose(yours, expected, rel_tol=1e-6, abs_tol=1e-9) if isinstance(expected, float) else yours == expected
    )
    return None if same else Difference(_should(where, expected, yours), open=False)


def _sequences(yours: Sequence[Any], expected: Sequence[Any], where: str) -> Difference | None:
    if len(yours) != len(expected):
        return Difference(
            _should(_of("length", where), len(expected), len(yours)), _beside(repr(yours), repr(expected))
        )
    for i, (mine, theirs) in enumerate(zip(yours, expected, strict=True)):
        found = difference(mine, theirs, f"{where} item {i}".strip())
        if found:
            short = all(_plain_number(item) for item in expected)
            drawing = _beside(repr(yours), repr(expected)) if short else found.drawing
            return Difference(found.text, drawing, found.open)
    return None


def _mappings(yours: Mapping[Any, Any], expected: Mapping[Any, Any], where: str) -> Difference | None:
    if yours.keys() != expected.keys():
        return Difference(_should(_of("names", where), sorted(map(str, expected)), sorted(map(str, yours))))
    for name in expected:
        found = difference(yours[name], expected[name], f"{where} {name}".strip())
        if found:
            return found
    return None


def _parts(value: Any) -> Mapping[Any, Any] | None:
    """The named parts of a dict, a dataclass or a plain object; None for a value that is one piece."""
    if isinstance(value, Mapping):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if type(value).__module__.startswith("minicb.") and hasattr(value, "__dict__"):
        return dict(vars(value))
    return None


def _kinds(yours: Any, expected: Any, where: str) -> Difference:
    if yours is None:
        return Difference(f"{where} is None." if where else "it returns None: is a return missing?")
    return Difference(_should(where, _kind(expected), _kind(yours)))


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"a{'n' * (name[0] in 'aeiouAEIO')} {name}"


def _plain_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def _should(what: str, expected: object, yours: object) -> str:
    return f"{what or 'the answer'} should be {expected}, yours {yours}."


def _of(what: str, where: str) -> str:
    return f"{what} of {where}" if where else what


def _first_wrong(wrong: Tensor) -> tuple[int, ...]:
    """Where the first matrix with a difference stands in the leading dimensions."""
    place: list[int] = []
    while wrong.dim() > 2:
        place.append(int(wrong.flatten(1).any(dim=1).int().argmax()))
        wrong = wrong[place[-1]]
    return tuple(place)


def draw(yours: Tensor, expected: Tensor) -> tuple[str, ...]:
    """Yours, expected and where they differ, side by side; of several matrices the first that differs."""
    if yours.shape != expected.shape:
        blocks = [_rows(yours), _rows(expected)]
    else:
        wrong = ~_close(yours, expected)
        place = _first_wrong(wrong)
        yours, expected, wrong = yours[place], expected[place], wrong[place]
        marks = [
            "".join(".x"[cell] for cell in row) for row in wrong.reshape(-1, wrong.shape[-1] if wrong.dim() else 1)
        ]
        blocks = [_rows(yours), _rows(expected), marks]
    if any(not block or len(block) > MAX_ROWS for block in blocks) or max(yours.shape[-1:] or [1]) > MAX_COLUMNS:
        return ()
    return _columns(blocks)


def _rows(values: Tensor) -> list[str]:
    if values.numel() == 0:
        return []
    if values.dim() == 0:
        values = values[None]
    if values.dtype == torch.bool:
        return ["".join("01"[cell] for cell in row) for row in values.reshape(-1, values.shape[-1]).tolist()]
    whole = not values.is_floating_point() or bool((values == values.round()).all())
    table = [
        [f"{cell:.0f}" if whole else f"{cell:.2f}" for cell in row]
        for row in values.reshape(-1, values.shape[-1]).tolist()
    ]
    width = max((len(cell) for row in table for cell in row), default=0)
    return [" ".join(cell.rjust(width) for cell in row) for row in table]


def _columns(blocks: list[list[str]]) -> tuple[str, ...]:
    columns = [[title, *block] for title, block in zip(("yours", "expected", "difference"), blocks, strict=False)]
    height = max(map(len, columns))
    padded = [[line.ljust(max(map(len, c))) for line in c + [""] * (height - len(c))] for c in columns]
    return tuple("   ".join(row).rstrip() for row in zip(*padded, strict=True))


def _beside(yours: str, expected: str) -> tuple[str, ...]:
    return (f"yours     {yours}", f"expected  {expected}") if max(len(yours), len(expected)) <= 80 else ()
