"""From `native.cpp` to functions: compiled at first use, in seconds, and kept. A C++ compiler is all that it wants."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from minicb.checkpoint import packaged_model_folder

COMPILERS = ("c++", "g++", "clang++")
# Sums may be reordered, as vectors need it. Not -ffast-math, which makes the whole process flush small numbers to zero.
FLAGS = "-O3 -march=native -std=c++17 -shared -fPIC -fopenmp -fno-math-errno -fno-trapping-math -fno-signed-zeros"
FLAGS += " -fassociative-math -freciprocal-math"


@cache
def library() -> ctypes.CDLL:
    """The compiled functions. Raises ValueError, with what to do, where they cannot be built."""
    source = Path(__file__).with_name("native.cpp")
    compiler = find_compiler()
    made_from = (source.read_bytes(), FLAGS, compiler, processor())
    name = hashlib.sha256(repr(made_from).encode()).hexdigest()[:16]
    folder = packaged_model_folder().parent / "native"
    target = folder / f"{name}.so"
    if not target.is_file():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                built = Path(scratch, target.name)
                run = subprocess.run(
                    [*compiler, *FLAGS.split(), str(source), "-o", str(built)],
                    check=False, capture_output=True, encoding="utf-8", errors="replace",
                )  # fmt: skip
                if run.returncode:
                    raise ValueError(cannot(first_error(run.stderr)))
                built.replace(target)  # in one move: another process may be building it too
        except OSError as error:
            raise ValueError(cannot(str(error))) from error
    try:
        return ctypes.CDLL(str(target))
    except OSError as error:
        raise ValueError(cannot(str(error))) from error


def find_compiler() -> list[str]:
    """$CXX, or the first compiler there is, as the words of a command."""
    asked = os.environ.get("CXX")
    found = shlex.split(asked) if asked else [name for name in COMPILERS if shutil.which(name)][:1]
    if not found:
        raise ValueError(cannot("there is no C++ compiler"))
    return found


def processor() -> str:
    """What this processor can do: the compiled file is for no other, though a home may be shared by many."""
    return cpuinfo("flags", "Features") or f"{platform.machine()} {platform.processor()}"


def cpuinfo(*names: str) -> str:
    """What Linux says of the processor under one of these names; empty where it says nothing."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(names)), "")


def first_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "the compiler said nothing")


def cannot(why: str) -> str:
    return f"the compiled extra cannot be built ({why}): install g++, or name a compiler in CXX, or go without it"
