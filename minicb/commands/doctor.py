"""`minicb doctor`: is everything here that minicb needs?

One line a finding. FAIL is said only of what truly breaks, and only FAIL makes the exit code 1; a `note` is
something to know (no GPU, little memory, an extra that is not installed).
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

if TYPE_CHECKING:
    import torch

ABOUT = """\
Say whether everything that minicb needs is here: Python, packages, device,
memory, disk, the default model. FAIL marks what truly breaks, and how to mend
it; a note is good to know. The exit code is 1 if there is a FAIL, else 0.
"""
PYTHONS = ((3, 11), (3, 14))
# Loose lower bounds for a checkout that is not installed; pyproject.toml has the real ones.
PACKAGES = (
    "torch",
    "transformers",
    "safetensors",
    "gguf",
    "accelerate",
    "numpy",
    "rich",
    "filelock",
    "packaging",
    "psutil",
)
EXTRAS = (
    ("jupyterlab", "the course's notebooks", "course"),
    ("matplotlib", "figures", "course"),
    ("nbval", "the tests of the notebooks", "dev"),
    ("triton", "the GPU kernel (it comes with torch's CUDA build)", ""),
)
COMFORT_BYTES = 2_000_000_000  # the default model in float32, torch itself, and a cache


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. level: "ok", "note" or "FAIL"."""

    level: str
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ABOUT


def run(args: argparse.Namespace) -> int:  # noqa: ARG001
    failures = 0
    for finding in findings():
        failures += finding.level == "FAIL"
        print(f"{finding.level:<5} {finding.text}", flush=True)
    print()
    print(f"{failures} broken: see FAIL above." if failures else "Nothing is broken.")
    return 1 if failures else 0


def findings() -> Iterator[Finding]:
    """The whole report, in the order in which things depend on each other."""
    yield check_python()
    yield from check_packages()
    yield from check_device()
    yield check_memory()
    yield from check_model()
    yield from check_extras()
    yield from check_compiler()


def check_python() -> Finding:
    low, high = PYTHONS
    text = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    if low <= sys.version_info[:2] < high:
        return Finding("ok", text)
    return Finding("FAIL", f"{text}: minicb needs Python {low[0]}.{low[1]} to {high[0]}.{high[1] - 1}")


def check_packages() -> Iterator[Finding]:
    """Each run-time dependency: is it there, in the range that pyproject.toml asks for?"""
    try:
        yield Finding("ok", f"minicb {metadata.version('minicb')}")
        wanted = [Requirement(line) for line in metadata.requires("minicb") or []]
        wanted = [one for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    except metadata.PackageNotFoundError:
        yield Finding("note", "minicb runs from a folder and is not installed: versions are not compared")
        wanted = [Requirement(name) for name in PACKAGES]
    for requirement in wanted:
        yield check_package(requirement)


def check_package(requirement: Requirement) -> Finding:
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return Finding("FAIL", f"{requirement.name} is missing: pip install '{requirement}'")
    if requirement.specifier.contains(version, prereleases=True):
        return Finding("ok", f"{requirement.name} {version}")
    return Finding("FAIL", f"{requirement.name} {version} is not {requirement.specifier}: pip install '{requirement}'")


def check_device() -> Iterator[Finding]:
    """The device and number type that "auto" picks, proven by one small product there."""
    try:
        import torch

        from minicb.weights import pick_device, pick_dtype

        device = pick_device()
        dtype = pick_dtype("auto", device)
        ones = torch.ones(4, 4, device=device, dtype=dtype)
        if float((ones @ ones).sum()) != 64.0:
            raise RuntimeError("a 4 x 4 product came out wrong")
    except Exception as error:
        # Whatever it is, a driver or a broken install: nothing runs without it, and the report must go on.
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        yield Finding("FAIL", f"torch does not compute here: {reason}")
        return
    yield Finding("ok", f"device {device} ({device_name(device)}), dtype {str(dtype).removeprefix('torch.')}")
    yield bf16_support(device)
    yield from device_memory(device)


def device_name(device: torch.device) -> str:
    import torch

    properties = getattr(getattr(torch, device.type), "get_device_properties", None)
    if properties is not None:
        return str(properties(device).name)
    return f"{os.cpu_count()} cores, {torch.get_num_threads()} threads"


def bf16_support(device: torch.device) -> Finding:
    """Does the hardware itself multiply bfloat16? Software does it anywhere, slowly."""
    import torch

    from minicb.kernels.fused import multiplies_bfloat16

    backend = getattr(torch, device.type)
    if hasattr(backend, "is_bf16_supported"):
        native: bool | None = bool(backend.is_bf16_supported(including_emulation=False))
    elif hasattr(backend, "get_capabilities"):  # of CPUs only
        native = multiplies_bfloat16()
    else:
        native = None
    if native is None:
        return Finding("note", f"bfloat16: this torch does not tell about {device.type}")
    if native:
        return Finding("ok", "bfloat16: in hardware")
    return Finding("note", "bfloat16: not in hardware, only emulated (right, but slow)")


def device_memory(device: torch.device) -> Iterator[Finding]:
    import torch

    told = getattr(getattr(torch, device.type), "mem_get_info", None)
    if told is not None:
        free, total = told(device)
        yield Finding("ok", f"device memory: {free / 1e9:.1f} GB free of {total / 1e9:.1f}")


def check_memory() -> Finding:
    try:
        import psutil
    except ModuleNotFoundError:
        return Finding("note", "memory: unknown without psutil")
    memory = psutil.virtual_memory()
    text = f"memory: {memory.available / 1e9:.1f} GB free of {memory.total / 1e9:.1f}"
    if memory.available >= COMFORT_BYTES:
        return Finding("ok", text)
    return Finding("note", f"{text}: the default model is at ease with {COMFORT_BYTES / 1e9:.0f} GB")


def check_model() -> Iterator[Finding]:
    """The default model, and room for it where it is not there yet."""
    try:
        from minicb.checkpoint import packaged_model_folder
        from minicb.commands.download import WHEEL_BYTES, WORK_BYTES, mb, model_problem, size_of
    except ModuleNotFoundError as error:
        yield Finding("FAIL", f"the model cannot be looked for without {error.name}")
        return
    folder = packaged_model_folder()
    free = shutil.disk_usage(nearest_existing(folder)).free
    problem = model_problem(folder)
    if problem is None:
        yield Finding("ok", f"model: complete, {mb(size_of(folder))} in {folder}")
    else:
        yield Finding("FAIL", f"model: {problem} ({folder}): run `minicb download` ({mb(WHEEL_BYTES)})")
    text = f"disk: {free / 1e9:.1f} GB free for {folder.parent}"
    if problem is not None and free < WORK_BYTES:
        yield Finding("note", f"{text}: the model needs {mb(WORK_BYTES)} while it is unpacked")
    else:
        yield Finding("ok", text)


def check_extras() -> Iterator[Finding]:
    for name, purpose, extra in EXTRAS:
        try:
            yield Finding("ok", f"{name} {metadata.version(name)}: {purpose}")
        except metadata.PackageNotFoundError:
            how = f": pip install -e '.[{extra}]'" if extra else ""
            yield Finding("note", f"{name} is not installed, for {purpose}{how}")


def check_compiler() -> Iterator[Finding]:
    purpose = "the compiled extra for CPUs (--native)"
    try:
        from minicb.kernels.compiler import find_compiler

        yield Finding("ok", f"{' '.join(find_compiler())}: {purpose}")
    except ValueError:
        yield Finding("note", f"there is no C++ compiler, for {purpose}")
    except ModuleNotFoundError:
        return  # a package that is missing is said above


def nearest_existing(path: Path) -> Path:
    """The folder itself or the first parent that exists: where its bytes would go."""
    return next(parent for parent in (path, *path.absolute().parents) if parent.exists())
