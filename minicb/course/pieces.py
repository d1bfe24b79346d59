"""The core's modules in pieces: a function, a class, a constant, each with its own text and the names that it uses.

`bundle.py` chooses among them. Here is text and syntax only; nothing is imported and nothing is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import minicb

ROOT = "course.minimal"


@dataclass(frozen=True, slots=True)
class Piece:
    """One definition at the top of a module, or one method of a class there."""

    module: str
    name: str
    text: str
    names: frozenset[str]  # that it takes from outside, or may
    said: frozenset[str]  # attributes that it names
    seam: str | None = None  # its exercise
    methods: tuple[Piece, ...] = ()  # of a class: what can be left out of `text`


@dataclass(slots=True)
class Module:
    name: str
    about: str  # the beginning of its docstring
    pieces: dict[str, Piece] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)  # name -> (module, name there, "" for a module)
    inner: dict[str, tuple[str, str]] = field(default_factory=dict)  # the same for imports from minicb


@cache
def read_module(name: str) -> Module:
    """A module of minicb in pieces."""
    text = path_of(name).read_text(encoding="utf-8")
    tree, lines = ast.parse(text), text.splitlines()
    module = Module(name, re.split(r"[.:,]( |$)", (ast.get_docstring(tree) or name).splitlines()[0])[0])
    end = 0
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            take_import(node, module.imports, module.inner)
        for piece in pieces_of(node, name, lines, end):
            module.pieces[piece.name] = piece
        end = node.end_lineno or end
    return module


def take_import(
    node: ast.Import | ast.ImportFrom, outer: dict[str, tuple[str, str]], inner: dict[str, tuple[str, str]]
) -> None:
    """Note what an import binds: names of minicb's modules in `inner`, all others in `outer`."""
    for alias in node.names:
        home, original = (node.module or "", alias.name) if isinstance(node, ast.ImportFrom) else (alias.name, "")
        if home == "__future__":
            continue
        if home == "minicb":  # `from minicb import masks`: a module
            home, original = f"minicb.{alias.name}", ""
        bound = alias.asname or (original or home).split(".")[0]
        if home.startswith("minicb."):
            inner[alias.asname or original or alias.name.split(".")[-1]] = (home.removeprefix("minicb."), original)
        else:
            outer[bound] = (home, original)


def pieces_of(node: ast.stmt, module: str, lines: list[str], end: int) -> Iterator[Piece]:
    """The definitions that a statement makes. end: the line where the statement before it ends"""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        names = [node.name]
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
    elif isinstance(node, ast.If) and "__main__" in ast.unparse(node.test):
        names = [ROOT]
    else:
        return
    methods = tuple(methods_of(node, module, lines)) if isinstance(node, ast.ClassDef) else ()
    seam = seam_of(node)
    rest = [n for n in ast.walk(node) if not inside(n, methods_in(node))] if methods else list(ast.walk(node))
    for name in names:
        yield Piece(module, name, text_of(node, lines, end), names_in(rest), said_in(rest), seam, methods)


def methods_in(node: ast.stmt) -> list[ast.FunctionDef]:
    """The methods of a class that can be left out if nobody names them."""
    body = node.body if isinstance(node, ast.ClassDef) else []
    return [part for part in body if isinstance(part, ast.FunctionDef) and not called_by_others(part.name)]


def called_by_others(name: str) -> bool:
    """Methods that Python or torch call, so that nobody needs to say their name."""
    return name.startswith("__") or name == "forward"


def methods_of(node: ast.ClassDef, module: str, lines: list[str]) -> Iterator[Piece]:
    for part in methods_in(node):
        before = max([node.lineno, *(other.end_lineno or 0 for other in node.body if other.lineno < part.lineno)])
        every = list(ast.walk(part))
        yield Piece(module, part.name, text_of(part, lines, before), names_in(every), said_in(every))


def inside(node: ast.AST, parts: Iterable[ast.FunctionDef]) -> bool:
    line = getattr(node, "lineno", 0)
    return any(first_line(part) <= line <= (part.end_lineno or 0) for part in parts)


def first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def text_of(node: ast.stmt, lines: list[str], end: int) -> str:
    """The lines of a statement, with the comments right above it and without the seam's decorator."""
    first = first_line(node)
    while first - 2 >= end and lines[first - 2].strip().startswith("#"):
        first -= 1
    taken = lines[first - 1 : node.end_lineno]
    return "\n".join(line for line in taken if not line.startswith("@seam("))


def seam_of(node: ast.stmt) -> str | None:
    """The id in `@seam("3.2")`."""
    for decorator in getattr(node, "decorator_list", []):
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "seam":
            return str(ast.literal_eval(decorator.args[0]))
    return None


def names_in(nodes: Iterable[ast.AST]) -> frozenset[str]:
    return frozenset(node.id for node in nodes if isinstance(node, ast.Name))


def said_in(nodes: Iterable[ast.AST]) -> frozenset[str]:
    return frozenset(node.attr for node in nodes if isinstance(node, ast.Attribute))


def path_of(name: str) -> Path:
    """The file of a module of minicb."""
    return Path(minicb.__path__[0]).joinpath(*name.split(".")).with_suffix(".py")
