"""Guess first, then run: `predict("2.P2", 18)` keeps a guess, `measured("2.P2", cells)` shows it beside the truth.

Guesses are kept in `.minicb/predictions.json`, so that they survive a restart. None is "no guess yet" and never
an error: a blank notebook runs from top to bottom.
"""

from __future__ import annotations

import json
import math
from typing import Any

from minicb.course import work
from minicb.metrics import write_whole

Guess = int | float | str | bool | list[Any] | None


def predict(id: str, guess: Guess) -> None:
    """Keep a guess. With None: say that there is none yet, or repeat the one from before."""
    guesses = _read()
    if guess is None and guesses.get(id) is None:
        print(f"{id}  no guess yet: write yours instead of None. A wrong one teaches more than none.")
        return
    if guess is None:
        print(f"{id}  your guess from before: {guesses[id]}. Run on and see.")
        return
    _write({**guesses, id: guess})
    print(f"{id}  your guess: {guess}. Run on and see.")


def measured(id: str, value: Any) -> None:
    """Show the value beside the guess."""
    value = value.tolist() if hasattr(value, "tolist") else value  # tensors and numpy numbers
    guess = _read().get(id)
    print(f"{id}  measured: {value}   {_verdict(guess, value)}")


def _verdict(guess: Guess, value: Any) -> str:
    if guess is None:
        return "(you made no guess)"
    numbers = isinstance(guess, (int, float)) and isinstance(value, (int, float))
    if _plain(guess) == _plain(value) or (numbers and math.isclose(float(guess), float(value), rel_tol=0.005)):  # type: ignore[arg-type]
        return f"your guess: {guess}, right"
    if not numbers or isinstance(value, bool):
        return f"your guess: {guess}"
    away = float(value) - float(guess)  # type: ignore[arg-type]
    return f"your guess: {guess}, {abs(away):g} too {'low' if away > 0 else 'high'}"


def _plain(value: Any) -> Any:
    """Words count without their capitals and their full stop."""
    return value.strip().rstrip(".").lower() if isinstance(value, str) else value


def _read() -> dict[str, Guess]:
    path = work.home() / ".minicb" / "predictions.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}  # a damaged file costs the guesses, not the lesson


def _write(guesses: dict[str, Guess]) -> None:
    path = work.home() / ".minicb" / "predictions.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(guesses, indent=1, sort_keys=True))
