"""What a seam costs: `python -m minicb.course.overhead` measures a call through one against a plain call.

Printed for whoever asks, never asserted: the figure is the machine's.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable

from minicb.seams import SEAMS, install, seam, tell_once

CALLS = 500_000


def plain(first: object, second: object) -> None:
    """As little work as a call can do."""


def nanoseconds(function: Callable[[object, object], object]) -> float:
    """One call, the best of five rounds."""
    return min(timeit.repeat(lambda: function(1, 2), number=CALLS, repeat=5)) / CALLS * 1e9


def main() -> None:
    tell_once(None)  # nothing but figures on the screen
    through = seam("0.0")(plain)
    try:
        direct, reference = nanoseconds(plain), nanoseconds(through)
        install("0.0", plain)
        yours = nanoseconds(through)
    finally:
        del SEAMS["0.0"]
    print(f"a plain call        {direct:6.0f} ns")
    print(f"through a seam      {reference:6.0f} ns  ({reference - direct:+.0f} ns)")
    print(f"the same, yours     {yours:6.0f} ns  ({yours - direct:+.0f} ns)")


if __name__ == "__main__":
    main()
