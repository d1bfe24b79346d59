"""A learner's function together with its source text: what a notebook cell holds, and what gets saved.

`@exercise("2.2")` makes an `Attempt` of the function below it and puts it on the workbench, where `check`
finds it. To be saved, an attempt must stand on its own: names that are modules or importable objects become
import lines; a name that lives only in the notebook is an error that names it.

Here is text, syntax and names. Whether the function is right is the business of `check.py`.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import re
import symtable
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from minicb.course.spec import Function, find
from minicb.seams import SEAMS

# Where to look for a name whose object does not say where it comes from (torch.softmax, math.inf, torch.float64).
HOMES = ("torch", "math", "torch.nn.functional", "typing", "collections.abc")
MARK = "__minicb_exercise__"


class NotebookOnlyError(Exception):
    """The function uses a name that the saved file would not have."""

    def __init__(self, name: str) -> None:
        super().__init__(f"name '{name}' exists only in the notebook: put it inside the function.")
        self.name = name


@dataclass(frozen=True, slots=True)
class Attempt:
    """One version of one exercise: the function, its text without decorators, and where its lines are found."""

    id: str
    function: Function
    source: str
    filename: str

    @property
    def node(self) -> ast.FunctionDef:
        return only_function(self.source)

    @property
    def code_lines(self) -> int:
        """Lines of code in the body: no docstring, no comments, no blank lines."""
        text = dict(enumerate(self.source.splitlines(), 1))
        spans = [range(part.lineno, (part.end_lineno or part.lineno) + 1) for part in _body(self.node)]
        return len({n for span in spans for n in span if text[n].strip() and not text[n].strip().startswith("#")})


workbench: dict[str, Attempt] = {}  # the latest attempt at each exercise in this session


def exercise(id: str) -> Any:
    """Decorator: the function below is my attempt at this exercise. It stays an ordinary function."""
    find(id)

    def wrap(function: Function) -> Function:
        if not inspect.isfunction(function):
            raise ValueError(f"@exercise stands above a function; this is a {type(function).__name__}")
        try:
            lines = inspect.getsource(function)
        except OSError:
            raise ValueError(
                "the text of this function cannot be found: write it in a notebook cell or a file"
            ) from None
        workbench[id] = Attempt(id, function, plain_source(lines), inspect.unwrap(function).__code__.co_filename)
        setattr(function, MARK, id)
        return function

    return wrap


def unreadable(id: str) -> SyntaxError | None:
    """What Python cannot read in the newest notebook cell of this exercise: then the workbench holds an older one."""
    head = re.compile(rf"""^\s*@exercise\(["']{re.escape(id)}["']\)""", re.MULTILINE)
    newest = next((cell for cell in reversed(cells_run()) if head.search(cell)), "")
    try:
        ast.parse(newest)
    except SyntaxError as error:
        return error
    return None


def cells_run() -> list[str]:
    """The texts of the notebook's cells, in the order in which they were run. None outside a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return [str(cell) for cell in shell.user_ns.get("In", ())] if shell else []


def attempt_from_source(id: str, source: str, filename: str | None = None) -> Attempt:
    """Run the text of a saved file in a namespace of its own and take its function."""
    name = filename or f"<{id} {only_function(source).name}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": f"minicb_work_{id.replace('.', '_')}"}
    exec(compile(source, name, "exec"), namespace)
    node = only_function(source)
    return Attempt(id, namespace[node.name], plain_source(source), name)


def plain_source(text: str) -> str:
    """The text from `def` on: without decorators, without indentation, comments kept."""
    text = textwrap.dedent(text).expandtabs(4)
    node = only_function(text)
    lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
    return "\n".join(lines) + "\n"


def only_function(source: str) -> ast.FunctionDef:
    """The function that a text defines; ValueError unless there is exactly one."""
    found = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    if len(found) != 1:
        raise ValueError(f"expected one function, found {len(found)}")
    return found[0]


def is_blank(node: ast.FunctionDef) -> bool:
    """Is something still to be filled in: a `...`, or nothing but a docstring? `x[..., 0]` is not a blank."""
    body = _body(node)
    return all(isinstance(part, ast.Pass) for part in body) or any(any(_holes(part)) for part in body)


def _holes(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Constant) and node.value is ...:
        yield node
    for name, child in ast.iter_fields(node):
        if isinstance(node, ast.Subscript) and name == "slice":
            continue
        for part in child if isinstance(child, list) else [child]:
            if isinstance(part, ast.AST):
                yield from _holes(part)


def _body(node: ast.FunctionDef) -> list[ast.stmt]:
    return node.body[1:] if ast.get_docstring(node) is not None else node.body


def standalone(attempt: Attempt) -> str:
    """The text of a file that defines this function and imports what it uses; NotebookOnlyError if it cannot."""
    known = _namespace(attempt.function)
    found = {line for name in global_names(attempt.source) if (line := _import_line(attempt, name, known))}
    imports = sorted(found, key=lambda line: (line.startswith("from"), line))
    return "\n".join([*imports, "", "", attempt.source] if imports else [attempt.source])


def _namespace(function: Function) -> Mapping[str, Any]:
    """Every name the function can see outside itself."""
    function = inspect.unwrap(function)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {**function.__globals__, **{name: cell.cell_contents for name, cell in cells}}


def global_names(source: str) -> set[str]:
    """The names that a function takes from outside, those of inner functions, defaults and hints included."""
    names: set[str] = set()
    tables = [symtable.symtable(source, "<cell>", "exec")]
    while tables:
        table = tables.pop()
        tables.extend(table.get_children())
        top = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (not symbol.is_assigned() if top else symbol.is_global()):
                names.add(symbol.get_name())
    return names


def _import_line(attempt: Attempt, name: str, known: Mapping[str, Any]) -> str | None:
    if name == attempt.node.name or name not in known:
        return None  # a name that is nowhere will be a NameError in the learner's own line
    value = known[name]
    if getattr(builtins, name, None) is value:
        return None
    if isinstance(value, ModuleType):
        return f"import {value.__name__}" if value.__name__ == name else f"import {value.__name__} as {name}"
    other = getattr(value, MARK, None)
    if other is not None:  # an earlier exercise: in the engine that is the function behind the seam
        return _from(SEAMS[other].reference.__module__, SEAMS[other].name, name)
    for home in (getattr(value, "__module__", None), *HOMES):
        original = getattr(value, "__name__", name)
        for spelled in (original, name):
            if home != "__main__" and getattr(sys.modules.get(home or ""), spelled, None) is value:
                return _from(str(home), spelled, name)
    raise NotebookOnlyError(name)


def _from(module: str, original: str, name: str) -> str:
    return f"from {module} import {original}" + (f" as {name}" if name != original else "")


def reference_attempt(id: str) -> Attempt:
    """The reference as if a learner had written it: what catch-up copies and solution cells hold."""
    point = SEAMS[id]
    source = plain_source(inspect.getsource(point.reference))
    return Attempt(id, point.reference, source, str(inspect.getsourcefile(point.reference)))


def body_lines(source: str) -> list[str]:
    """The lines of the function's body without its docstring."""
    body = _body(only_function(source))
    first = body[0].lineno if body else 0
    # Comments above the first statement belong to it.
    lines = source.splitlines()
    while first and lines[first - 2].strip().startswith("#"):
        first -= 1
    return lines[first - 1 :] if first else []
