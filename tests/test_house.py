"""The house rules that keep the project installable: versions, imports, encodings, and nothing of one machine.

Every list that stands in two places is compared here, so that it cannot drift.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from minicb import cli
from minicb.commands import doctor

ROOT = Path(__file__).resolve().parents[1]
SKIPPED = {".git", ".venv", ".minicb", "__pycache__", "build", "dist", "minicb-demo", "minicb.egg-info"}
SKIPPED |= {".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".ipynb_checkpoints"}
TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".txt", ".ipynb", ".svg", ".json", ".css", ".html", ".js", ""}


def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return dict(tomllib.load(file)["project"])


def direct_dependencies() -> list[Requirement]:
    extras = project()["optional-dependencies"]
    return [Requirement(line) for lines in (project()["dependencies"], *extras.values()) for line in lines]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    wanted = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(one.name): str(one.specifier) for one in wanted}


def files() -> list[Path]:
    """The files of the project: what git tracks or would track; all of them where there is no git."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    if listed.returncode == 0:
        found = [ROOT / name for name in listed.stdout.decode("utf-8").split("\0") if name]
    else:
        found = [path for path in ROOT.rglob("*") if not SKIPPED & set(path.relative_to(ROOT).parts)]
    return [path for path in found if path.is_file()]


def python_files() -> list[Path]:
    return [path for path in files() if path.suffix == ".py"]


# ---- versions


def test_every_direct_dependency_is_pinned_inside_its_range() -> None:
    for requirement in direct_dependencies():
        pin = pins()[canonicalize_name(requirement.name)]
        assert pin.startswith("=="), requirement.name
        assert requirement.specifier.contains(pin.removeprefix("==")), f"{requirement} against {pin}"


def test_every_pin_is_exact_and_public() -> None:
    for name, pin in pins().items():
        assert re.fullmatch(r"==[0-9][0-9a-z.]*", pin), f"{name}{pin}: a local build such as +cpu is nowhere else"


def test_the_installed_versions_are_the_pinned_ones() -> None:
    """The outputs stored in the notebooks hold for these; another version deserves a look before it is pinned."""
    from importlib import metadata

    for requirement in direct_dependencies():
        installed = Version(metadata.version(requirement.name)).public
        assert f"=={installed}" == pins()[canonicalize_name(requirement.name)], requirement.name


def test_conda_users_get_the_course_extra_at_the_pinned_versions() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    *plain, last = environment["dependencies"]
    python, pip = plain
    assert SpecifierSet(python.removeprefix("python")) == SpecifierSet(project()["requires-python"])
    assert pip == "pip"
    assert last == {"pip": ["--constraint constraints.txt", "--editable .[course]"]}
    assert "course" in project()["optional-dependencies"]


def test_the_python_range_is_the_same_everywhere() -> None:
    low, high = doctor.PYTHONS
    assert SpecifierSet(project()["requires-python"]) == SpecifierSet(f">={low[0]}.{low[1]},<{high[0]}.{high[1]}")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"{low} <= sys.version_info[:2] < {high}" in makefile
    named = re.search(r"set -- \.venv/bin/python python3 ([^\n]+)", makefile)
    assert named is not None
    between = [f"python{low[0]}.{minor}" for minor in range(low[1], high[1])]
    assert sorted(named[1].split()) == between


def test_doctor_looks_at_every_run_time_dependency() -> None:
    assert sorted(doctor.PACKAGES) == sorted(Requirement(line).name for line in project()["dependencies"])


def test_the_version_is_the_same_everywhere() -> None:
    import minicb

    assert minicb.__version__ == project()["version"] == cli.own_version()


def test_every_package_folder_is_installed() -> None:
    """A folder of modules without an __init__.py would be left out of a built wheel without a word."""
    folders = {path.parent for path in python_files() if (ROOT / "minicb") in path.parents}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


# ---- imports


def imported_by(statement: str) -> set[str]:
    """The top-level modules that a fresh Python has loaded after this statement."""
    code = f"{statement}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    return set(run.stdout.split())


def test_import_minicb_is_light() -> None:
    loaded = imported_by("import minicb")
    assert "minicb" in loaded
    assert loaded & {"transformers", "matplotlib", "IPython", "ipywidgets", "gguf", "accelerate", "pandas"} == set()


def test_every_third_party_import_is_declared() -> None:
    """Whatever minicb imports is a dependency or in an extra; nothing works only by luck.

    Rivals that a benchmark compares with are optional, and belong to whoever has them.
    """
    declared = {canonicalize_name(one.name) for one in direct_dependencies()}
    ours = {"minicb"} | {path.stem for path in python_files()} | {path.parent.name for path in python_files()}
    comes_with = {"IPython": "ipykernel", "PIL": "matplotlib", "huggingface_hub": "transformers", "triton": "torch"}
    comes_with |= {"tokenizers": "transformers", "yaml": "pyyaml", "traitlets": "ipykernel"}
    found: dict[str, str] = {}
    for path in python_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name in imported_names(node):
                found.setdefault(name, str(path.relative_to(ROOT)))
    known = sys.stdlib_module_names | ours
    strangers = {name: where for name, where in found.items() if name not in known}
    strangers = {n: w for n, w in strangers.items() if canonicalize_name(comes_with.get(n, n)) not in declared}
    workers = Path("minicb", "bench", "workers")
    assert strangers == {"vllm": str(workers / "vllm_worker.py"), "llama_cpp": str(workers / "llama_worker.py")}


def imported_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.split(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        yield node.module.split(".")[0]


# ---- the command line


def test_help_lists_every_command_and_each_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    overview = capsys.readouterr().out
    for name, summary in cli.COMMANDS:
        assert name in overview
        assert summary in " ".join(overview.split())
        with pytest.raises(SystemExit, match="0"):
            cli.main([name, "--help"])
        assert len(capsys.readouterr().out.splitlines()) > 7, f"minicb {name} --help says too little"


def test_every_command_that_is_written_is_in_the_table() -> None:
    sources = (ROOT / "minicb" / "commands").glob("*.py")
    written = {path.stem for path in sources if "def add_arguments(" in path.read_text(encoding="utf-8")}
    assert written == {name for name, _ in cli.COMMANDS}


@pytest.mark.parametrize("arguments", [["downlod"], ["download", "--no-such-option"], ["--no-such-option"]])
def test_a_wrong_option_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert "Traceback" not in capsys.readouterr().err


def test_no_command_prints_the_help_and_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "download" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("max_tokens is 0:\nit must be at least 1"), 1, "minicb: max_tokens is 0: it must be at least 1\n"),
        (FileNotFoundError(2, "No such file or directory", "prompts.txt"), 1, "prompts.txt: No such file or directory"),
        (ModuleNotFoundError("No module named 'gguf'", name="gguf"), 1, "the Python package gguf is missing"),
        (KeyboardInterrupt(), 130, "minicb: interrupted\n"),
    ],
)
def test_a_users_mistake_is_one_line(
    error: BaseException,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(_: object) -> int:
        raise error

    monkeypatch.setattr(doctor, "run", fails)
    assert cli.main(["doctor"]) == code
    err = capsys.readouterr().err
    assert line in err
    assert err.count("\n") == 1


def test_our_own_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> int:
        raise TypeError("a bug")

    monkeypatch.setattr(doctor, "run", fails)
    with pytest.raises(TypeError, match="a bug"):
        cli.main(["doctor"])


def test_traceback_shows_where_an_error_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> int:
        raise ValueError("a mistake")

    monkeypatch.setattr(doctor, "run", fails)
    with pytest.raises(ValueError, match="a mistake"):
        cli.main(["--traceback", "doctor"])


def test_a_console_that_knows_only_ascii_is_served() -> None:
    code = "import sys; from minicb import cli; cli.never_fail_to_print(); print('\\u2192 \\U0001f600 ok')"
    environment = {"PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, encoding="ascii", check=True
    )
    assert run.stdout.strip() == "? ? ok"


def test_a_reader_that_leaves_early_gets_no_traceback() -> None:
    writer = subprocess.Popen(
        [sys.executable, "-m", "minicb", "doctor"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert writer.stdout is not None
    writer.stdout.close()
    _, err = writer.communicate()
    assert writer.returncode == 141
    assert b"Traceback" not in err
    assert b"Exception ignored" not in err


# ---- portable files


def test_every_text_file_is_opened_with_its_encoding() -> None:
    """Without one, a machine whose default is not UTF-8 (Windows) fails on the first letter beyond ASCII."""
    assert [line for path in python_files() for line in opened_without_encoding(path)] == []


def opened_without_encoding(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and needs_encoding(node):
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"


def needs_encoding(call: ast.Call) -> bool:
    """A call that reads or writes text and does not say in which encoding."""
    function = call.func
    name = (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )
    keywords = {one.arg: one.value for one in call.keywords}
    if "encoding" in keywords or None in keywords:
        return False
    if name in ("read_text", "write_text", "NamedTemporaryFile", "TemporaryFile"):
        return name.endswith("text") or is_text_mode(keywords.get("mode"), default=False)
    if name in ("run", "Popen", "check_output", "call", "check_call"):
        return "text" in keywords or "universal_newlines" in keywords
    if name != "open":
        return False
    owner = ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""
    if owner in ("os", "webbrowser", "archive", "zipfile", "Image"):
        return False
    # open(path, mode) as a function, path.open(mode) as a method
    at = 1 if not owner or owner in ("io", "gzip", "codecs") else 0
    mode = call.args[at] if len(call.args) > at else keywords.get("mode")
    return is_text_mode(mode, default=True)


def is_text_mode(mode: ast.expr | None, *, default: bool) -> bool:
    if mode is None:
        return default
    return isinstance(mode, ast.Constant) and "b" not in str(mode.value)


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("open(p)", True),
        ("open(p, 'rb')", False),
        ("open(p, 'w', encoding='utf-8')", False),
        ("p.open()", True),
        ("p.open('wb')", False),
        ("io.open(p, 'w')", True),
        ("p.read_text()", True),
        ("p.read_text(encoding='utf-8')", False),
        ("p.write_text(x)", True),
        ("NamedTemporaryFile('w')", False),
        ("NamedTemporaryFile(mode='w')", True),
        ("subprocess.run(x, text=True)", True),
        ("subprocess.run(x)", False),
        ("os.open(p, os.O_RDONLY)", False),
    ],
)
def test_the_encoding_check_knows_right_from_wrong(source: str, wrong: bool) -> None:
    call = ast.parse(source).body[0]
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    assert needs_encoding(call.value) is wrong


# Written in pieces, so that this file does not hold what it looks for.
MACHINE = re.compile(
    "|".join(
        (
            "py" + r"pi\.org",
            "python" + r"hosted\.",
            "conda" + r"\.anaconda",
            r"\.a-seed" + r"-",
            r"(?<![\w.~}])/(?:home|Users)/(?!you\b|me\b)\w",
            r"(?<![\w.])/" + r"root\b",
            r"(?<![\w.])/" + r"work/",
            r"[A-Z]:\\+Users\\",
        )
    )
)


def test_no_file_names_a_registry_or_a_place_of_one_machine() -> None:
    found = []
    for path in files():
        if path.suffix in TEXT:
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if match := MACHINE.search(line):
                    found.append(f"{path.relative_to(ROOT)}:{number}: {match[0]}")
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "see https://py" + "pi.org/project/x",
        "/ho" + "me/anna/x",
        "open('/ro" + "ot/.cache')",
        "C:\\Us" + "ers\\anna",
        " /wo" + "rk/main",
    ],
)
def test_the_machine_check_finds_what_it_looks_for(line: str) -> None:
    assert MACHINE.search(line)


def test_file_names_work_on_every_system() -> None:
    names = [str(path.relative_to(ROOT)) for path in files()]
    assert [name for name in names if re.search(r'[<>:"\\|?*\x00-\x1f~ ]', name)] == []
    assert len({name.lower() for name in names}) == len(names)
