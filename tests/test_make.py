"""`make setup`: the virtual environment is made once, renewed when it must be, and each failure is one clear line.

The Python here is a small shell script that notes what it is asked to do, so nothing is fetched or installed. The
checkout lies in a folder with a space and an umlaut in its name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FAKE_PYTHON = """#!/bin/sh
# Plays Python {version}: enough of it for the Makefile.
case "$*" in
    *"sys.exit(not"*) exit {fits} ;;
    *"%d.%d"*) echo {version} ;;
    *_base_executable*) echo "{path}" ;;
    "-m venv"*) echo venv >> "$CALLS"; {venv}; mkdir -p .venv/bin && cp "{path}" .venv/bin/python ;;
    "-m pip"*) echo "pip $*" >> "$CALLS"; {pip} ;;
    *) echo "$*" >> "$CALLS" ;;
esac
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")


class Checkout:
    """A checkout with a fake Python beside it."""

    def __init__(self, root: Path) -> None:
        self.folder, self.calls_file, self.bin = root / "a checkout ü", root / "calls", root / "bin dir"
        self.folder.mkdir()
        self.bin.mkdir()
        for name in ("Makefile", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, self.folder / name)
        self.python = self.bin / "python3"
        self.plays("3.12")

    def plays(self, version: str, *, venv: str = ":", pip: str = ":") -> None:
        fits = 0 if version in ("3.11", "3.12", "3.13") else 1
        script = FAKE_PYTHON.format(version=version, fits=fits, path=self.python, venv=venv, pip=pip)
        self.python.write_text(script, encoding="utf-8")
        self.python.chmod(0o755)

    def make(self, *arguments: str) -> tuple[int, str, str, list[str]]:
        """Exit code, stdout, stderr without make's own last line, and what Python was asked to do."""
        self.calls_file.unlink(missing_ok=True)
        environment = {
            key: value for key, value in os.environ.items() if key not in ("PYTHON", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
        }
        environment |= {"PATH": f"{self.bin}:/usr/bin:/bin", "CALLS": str(self.calls_file), "LC_ALL": "C"}
        run = subprocess.run(
            ["make", *(arguments or ("setup",))],
            cwd=self.folder, env=environment, capture_output=True, encoding="utf-8", check=False,
        )  # fmt: skip
        err = "".join(line for line in run.stderr.splitlines(keepends=True) if not line.startswith("make"))
        calls = self.calls_file.read_text(encoding="utf-8").splitlines() if self.calls_file.exists() else []
        return run.returncode, run.stdout, err, calls


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_first_run_installs_everything_at_the_pinned_versions(checkout: Checkout) -> None:
    code, out, err, calls = checkout.make()
    assert (code, err) == (0, "")
    assert "about 350 MB" in out
    assert calls[0] == "venv"
    assert len(calls) == 3
    for call in calls[1:]:
        assert " install --progress-bar off -c constraints.txt " in call
    assert calls[2].endswith(" --editable .[course,bench,dev]")


def test_the_second_run_installs_nothing_and_says_nothing(checkout: Checkout) -> None:
    checkout.make()
    assert checkout.make() == (0, "", "", [])


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_changed_wishes_are_installed_into_the_same_environment(checkout: Checkout, name: str) -> None:
    checkout.make()
    with (checkout.folder / name).open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    code, out, _, calls = checkout.make()
    assert code == 0
    assert "up to date" in out
    assert [call.split()[0] for call in calls] == ["pip", "pip"]
    assert checkout.make()[3] == []


def test_a_touched_file_with_the_same_content_changes_nothing(checkout: Checkout) -> None:
    checkout.make()
    os.utime(checkout.folder / "pyproject.toml", (2_000_000_000, 2_000_000_000))
    assert checkout.make()[3] == []


def test_a_checkout_that_moved_gets_a_new_environment(checkout: Checkout) -> None:
    checkout.make()
    checkout.folder = checkout.folder.rename(checkout.folder.with_name("moved"))
    assert checkout.make()[3][0] == "venv"
    assert checkout.make()[3] == []


def test_a_broken_environment_is_made_anew(checkout: Checkout) -> None:
    checkout.make()
    (checkout.folder / ".venv" / "bin" / "python").write_text("#!/no/such/python\n", encoding="utf-8")
    code, _, _, calls = checkout.make()
    assert code == 0
    assert calls[0] == "venv"


def test_asking_for_another_python_makes_the_environment_anew(checkout: Checkout) -> None:
    checkout.make()
    checkout.plays("3.13")
    code, out, _, calls = checkout.make("setup", f"PYTHON={checkout.python}")
    assert code == 0
    assert calls[0] == "venv"
    assert "Python 3.13" in out


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.14"])
def test_a_python_that_does_not_fit_is_refused_with_both_numbers(checkout: Checkout, version: str) -> None:
    checkout.plays(version)
    code, _, err, calls = checkout.make("setup", f"PYTHON={checkout.python}")
    assert code != 0
    assert err.count("\n") == 1
    assert "Python 3.11, 3.12 or 3.13 is needed" in err
    assert f"is {version}." in err
    assert calls == []


def test_a_python_that_is_not_there_is_named(checkout: Checkout) -> None:
    code, _, err, _ = checkout.make("setup", "PYTHON=no-such-python")
    assert code != 0
    assert err.count("\n") == 1
    assert "no-such-python is missing" in err


def test_a_python_without_venv_is_told_what_to_install(checkout: Checkout) -> None:
    checkout.plays("3.12", venv="exit 1")
    code, _, err, _ = checkout.make()
    assert code != 0
    assert err.count("\n") == 1
    assert "no venv or no pip" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("WARNING: Retrying (Retry(total=0)) after connection broken", "cannot reach the package index"),
        ("ERROR: Could not install packages: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: No matching distribution found for torch==2.13.0", "No matching distribution found for torch==2.13.0"),
    ],
)
def test_a_failed_installation_is_one_line_and_the_next_run_tries_again(
    checkout: Checkout, words: str, told: str
) -> None:
    checkout.plays("3.12", pip=f'echo "{words}" >&2; exit 1')
    code, _, err, _ = checkout.make()
    assert code != 0
    assert err.count("\n") == 1
    assert told in err
    assert ".venv/install.log" in err
    checkout.plays("3.12")
    assert checkout.make()[0] == 0
    assert checkout.make()[3] == []


def test_a_half_done_update_is_not_taken_for_the_old_state(checkout: Checkout) -> None:
    checkout.make()
    constraints = checkout.folder / "constraints.txt"
    before = constraints.read_bytes()
    constraints.write_bytes(before + b"# changed\n")
    checkout.plays("3.12", pip="exit 1")
    shutil.copy(checkout.python, checkout.folder / ".venv" / "bin" / "python")
    assert checkout.make()[0] != 0
    constraints.write_bytes(before)
    checkout.plays("3.12")
    shutil.copy(checkout.python, checkout.folder / ".venv" / "bin" / "python")
    assert [call.split()[0] for call in checkout.make()[3]][-2:] == ["pip", "pip"]


def test_the_tests_are_not_started_when_the_set_up_failed(checkout: Checkout) -> None:
    checkout.plays("3.12", pip="exit 1")
    code, _, _, calls = checkout.make("test")
    assert code != 0
    assert not any("pytest" in call for call in calls)


def test_make_test_runs_every_kind_of_check(checkout: Checkout) -> None:
    code, _, _, calls = checkout.make("test")
    assert code == 0
    for command in ("-m ruff check .", "-m ruff format --check .", "-m mypy", "-m minicb download", "-m pytest"):
        assert command in calls


def test_make_demo_and_lab_set_up_fetch_the_model_and_start(checkout: Checkout) -> None:
    assert checkout.make("demo")[3][-2:] == ["-m minicb download", "-m minicb demo"]
    calls = checkout.make("lab", "LAB_FLAGS=--no-browser")[3]
    assert calls[-2] == "-m minicb download"
    assert calls[-1].startswith("-m jupyterlab ")
    assert calls[-1].endswith(" --no-browser")


def test_clean_keeps_the_learners_work(checkout: Checkout) -> None:
    checkout.make()
    work = checkout.folder / ".minicb" / "work"
    work.mkdir(parents=True)
    checkout.make("clean")
    assert work.is_dir()
    assert not (checkout.folder / ".venv").exists()


def test_make_alone_says_what_there_is(checkout: Checkout) -> None:
    _, out, _, calls = checkout.make("help")
    for target in ("demo", "test", "lab", "lint", "clean"):
        assert f"make {target}" in out
    assert calls == []
