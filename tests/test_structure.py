"""The house rules of the core as tests: order of imports, size, and what `import minicb` may not bring along.

The core is the flat modules of `minicb/`. A module imports only modules above it in `ORDER`, which is the order in
which the course teaches them. Rooms beside the core may import it; the core imports no room, but for `seams.py`
(everybody) and `kernels` (the engine, to ask for the fastest back end).
"""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "minicb"
ORDER = (
    "attention", "masks", "model", "checkpoint", "weights", "sampling", "stopping", "naive", "cache", "request",
    "policy", "batch", "reference", "outputs", "metrics", "padding", "scheduler", "interrupts", "step", "engine", "llm",
)  # fmt: skip
BESIDE = {"__init__", "__main__", "cli", "seams"}
ROOMS_ALLOWED = {"engine": {"kernels"}, "llm": {"kernels"}}
MAX_CODE_LINES, MAX_FILE_LINES, MAX_FUNCTION_LINES = 2_400, 250, 45


def parse(name: str) -> ast.Module:
    return ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8"))


def own_imports(tree: ast.Module) -> set[str]:
    """First names under `minicb.` that are imported at run time, at whatever depth; not those for type checkers."""
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("minicb."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.ImportFrom) and node.module == "minicb":
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            found.update(alias.name.split(".")[1] for alias in node.names if alias.name.startswith("minicb."))
    return found


def code_lines(name: str) -> int:
    """Lines with code on them: no blanks, comments, docstrings."""
    source = (PACKAGE / f"{name}.py").read_text(encoding="utf-8")
    docs = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docs.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = set()
    skip = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skip:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docs)


def test_the_order_names_every_core_module() -> None:
    files = {path.stem for path in PACKAGE.glob("*.py")}
    assert files - BESIDE == set(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_a_core_module_imports_only_modules_above_it(name: str) -> None:
    allowed = set(ORDER[: ORDER.index(name)]) | {"seams"} | ROOMS_ALLOWED.get(name, set())
    assert own_imports(parse(name)) <= allowed


def test_the_import_reader_sees_through_functions_and_past_type_checking() -> None:
    tree = ast.parse(
        "from minicb.cache import Pool\n"
        "if TYPE_CHECKING:\n    from minicb.engine import Engine\n"
        "def f():\n    import minicb.kernels.grouped\n    from minicb import bench\n"
    )
    assert own_imports(tree) == {"cache", "kernels", "bench"}


def test_the_core_can_be_read_in_an_evening() -> None:
    assert sum(map(code_lines, ORDER)) <= MAX_CODE_LINES


@pytest.mark.parametrize("name", ORDER)
def test_no_core_file_and_no_function_needs_scrolling(name: str) -> None:
    assert len((PACKAGE / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= MAX_FILE_LINES
    for node in ast.walk(parse(name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{name}.{node.name} has {length} lines"


@pytest.mark.parametrize("name", ORDER)
def test_every_core_module_opens_with_its_idea(name: str) -> None:
    assert len((ast.get_docstring(parse(name)) or "").splitlines()) >= 1


def test_transformers_is_touched_in_two_files_only() -> None:
    """The adapter of checkpoints, and the peer that is measured and asked for the right answer."""
    touching = {
        str(path.relative_to(PACKAGE).as_posix())
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "transformers")
        or (isinstance(node, ast.Import) and any(a.name.split(".")[0] == "transformers" for a in node.names))
    }
    assert touching == {"checkpoint.py", "bench/peers.py"}


def test_no_device_is_named_outside_its_one_function() -> None:
    """The core asks `weights.pick_device`; only the memory reader and lazily backed zeros tell devices apart."""
    allowed = {"weights", "cache"}
    for name in set(ORDER) - allowed:
        for node in ast.walk(parse(name)):
            literal = isinstance(node, ast.Constant) and node.value in {"cuda", "mps", "cuda:0"}
            assert not literal, f"{name}.py line {getattr(node, 'lineno', 0)} names a device"
