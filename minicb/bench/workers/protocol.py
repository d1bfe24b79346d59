"""How a worker talks: JSON lines. A job comes in, "ready" goes out; each "go" is answered with one timed run.

Standard library only, as it also runs where minicb is not installed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Answers = list[list[int]]


@dataclass
class Job:
    """What every engine is given. Answers have exactly `max_tokens` tokens: nothing ends early."""

    model: str  # folder of the checkpoint
    dtype: str
    device: str
    prompts: list[list[int]]
    max_tokens: list[int]
    options: dict[str, Any]


def serve(start: Callable[[Job], tuple[str, Callable[[], Answers]]]) -> None:
    """Run a worker. start: from the job to the engine's version and its run, which returns the answers' ids."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever libraries print does not mix with ours
    version, run = start(Job(**json.loads(sys.stdin.readline())))
    say(out, {"ready": version})
    for line in sys.stdin:
        if line.strip() != "go":
            break
        began = time.perf_counter()
        answers = run()
        say(out, {"seconds": time.perf_counter() - began, "answers": answers, "peak_rss_bytes": peak_rss_bytes()})


def say(out: Any, message: dict[str, Any]) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()


def peak_rss_bytes() -> int | None:
    """The most memory that this process ever had; None where the system does not say (Windows)."""
    try:
        import resource
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
