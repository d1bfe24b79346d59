"""`minicb doctor`: FAIL only for what truly breaks, with what to do about it; exit code 1 exactly then."""

from __future__ import annotations

import json
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
import torch
from packaging.requirements import Requirement

from minicb import cli
from minicb.commands import doctor, download


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a complete default model."""
    monkeypatch.setenv("MINICB_CACHE", str(tmp_path))
    folder = tmp_path / "smollm2-135m-instruct"
    folder.mkdir()
    (folder / "config.json").write_text("{}", encoding="utf-8")
    listing = {"gguf_sha256": download.GGUF_SHA256, "files": {"config.json": 2}}
    (folder / "minicb.json").write_text(json.dumps(listing), encoding="utf-8")
    return folder


def report(capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str], list[str]]:
    """Exit code, the lines that FAIL, the notes."""
    code = cli.main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    fails = [line for line in lines if line.startswith("FAIL")]
    assert code == (1 if fails else 0)
    return code, fails, [line for line in lines if line.startswith("note")]


@pytest.mark.usefixtures("model")
def test_a_sound_machine_passes(capsys: pytest.CaptureFixture[str], no_network: list[str]) -> None:
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "FAIL" not in out
    assert f"torch {torch.__version__}" in out
    for word in ("Python 3.", "transformers 5.", "dtype float", "bfloat16", "memory:", "disk:", "model: complete"):
        assert word in out
    assert no_network == []


def test_a_missing_model_fails_and_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MINICB_CACHE", str(tmp_path / "not" / "made" / "yet"))
    code, fails, _ = report(capsys)
    assert code == 1
    assert len(fails) == 1
    assert "minicb download" in fails[0]
    assert str(tmp_path) in fails[0]


def test_an_incomplete_model_fails_and_names_the_file(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model / "config.json").unlink()
    code, fails, _ = report(capsys)
    assert code == 1
    assert "config.json is missing" in fails[0]


@pytest.mark.parametrize(("version", "good"), [((3, 10), False), ((3, 11), True), ((3, 13), True), ((3, 14), False)])
def test_python_is_judged_by_its_version(monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], good: bool) -> None:
    monkeypatch.setattr(sys, "version_info", (*version, 0, "final", 0))
    finding = doctor.check_python()
    assert finding.level == ("ok" if good else "FAIL")
    assert good or "3.11 to 3.13" in finding.text


def test_a_missing_package_fails_with_the_command_that_mends_it() -> None:
    finding = doctor.check_package(Requirement("no-such-package>=1.2"))
    assert finding.level == "FAIL"
    assert "pip install 'no-such-package>=1.2'" in finding.text


def test_a_package_outside_its_range_fails_with_both_versions() -> None:
    installed = metadata.version("torch")
    finding = doctor.check_package(Requirement("torch>=999"))
    assert finding.level == "FAIL"
    assert installed in finding.text
    assert ">=999" in finding.text


def test_a_device_that_does_not_compute_fails_and_the_report_goes_on(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no kernel image is available\nand more of this")

    monkeypatch.setattr(torch, "ones", broken)
    assert cli.main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "FAIL  torch does not compute here: no kernel image is available\n" in out
    assert f"in {model}" in out


class Memory(NamedTuple):
    available: int
    total: int


@pytest.mark.usefixtures("model")
def test_little_memory_and_missing_extras_are_notes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(500_000_000, 4_000_000_000))
    monkeypatch.setattr(doctor, "EXTRAS", (("no-such-package", "dreaming", "course"),))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    code, fails, notes = report(capsys)
    assert (code, fails) == (0, [])
    assert any("0.5 GB free of 4.0" in note for note in notes)
    assert any("no-such-package is not installed, for dreaming: pip install -e '.[course]'" in note for note in notes)
    assert any("there is no C++ compiler, for the compiled extra" in note for note in notes)


@pytest.mark.parametrize(
    ("told", "level"),
    [({"avx512_bf16": True}, "ok"), ({"amx_bf16": True}, "ok"), ({"avx512_bf16": False}, "note"), ({}, "note")],
)
def test_bfloat16_counts_only_in_hardware(monkeypatch: pytest.MonkeyPatch, told: dict[str, bool], level: str) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: told, raising=False)
    assert doctor.bf16_support(torch.device("cpu")).level == level
