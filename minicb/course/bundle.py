"""One file out of many modules: the learner's functions, and of the core exactly what they need.

The text is the modules' own, piece by piece: a function, a class, a constant with the comments above it. Starting
from `minimal.py`, a piece is taken if a taken piece names it, a method if anybody says its name; so the file can
neither drift from the core nor drag along what nobody calls. Imports between modules of minicb fall away, because
all names stand in one file; seams lose their decorator, and a learner's function takes the reference's place.

Here is text and names only. What is exported, and where to, is the business of `export.py`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import minicb
from minicb.course.attempt import only_function, plain_source

# The modules that may be in the file, in the order of the course. Whatever else a piece names is an error.
ORDER = (
    "attention", "masks", "model", "checkpoint", "weights", "sampling", "naive", "cache", "request", "policy", "batch",
    "reference", "outputs", "metrics", "padding", "scheduler", "step", "course.minimal",
)  # fmt: skip
ROOT = "course.minimal"
REMARK = re.compile(r"  # (type: ignore|noqa)\b.*$", re.MULTILINE)  # notes to tools that do not read the new file


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
    path = Path(minicb.__path__[0]).joinpath(*name.split(".")).with_suffix(".py")
    text = path.read_text(encoding="utf-8")
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


# ---- choosing


class Bundle:
    """The chosen pieces. own: exercise id -> the text of the learner's saved file"""

    def __init__(self, own: Mapping[str, str], extra: Iterable[tuple[str, str]] = ()) -> None:
        self.own = own
        self.modules = {name: read_module(name) for name in ORDER if exists(name)}
        self.taken: dict[tuple[str, str], Piece] = {}
        self.imports: dict[str, tuple[str, str]] = {}
        self.said: set[str] = set()
        self.take(ROOT, ROOT)  # the line that starts main(); everything else is named on the way from there
        for module, name in extra:
            self.take(module, name)
        self.settle()

    def take(self, module: str, name: str) -> None:
        """Take a piece, and everything that it names."""
        if name in self.modules[ROOT].pieces:
            module = ROOT  # it stands in for the core's
        if (module, name) in self.taken:
            return
        piece = self.modules[module].pieces[name]
        others = [other for other, taken in self.taken if taken == name]
        assert not others, f"{name} is defined in {module} and in {others[0]}: one of them needs another name"
        if piece.seam in self.own:
            piece = self.learners(piece)
        self.taken[module, name] = piece
        self.follow(piece)

    def learners(self, piece: Piece) -> Piece:
        """The learner's function in the place of a reference, its imports settled."""
        source, label = self.own[str(piece.seam)], f"{piece.seam} {piece.name}"
        outer: dict[str, tuple[str, str]] = {}
        inner: dict[str, tuple[str, str]] = {}
        for node in ast.parse(source).body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                take_import(node, outer, inner)
        text, within = without_own_imports(plain_source(source).rstrip())
        modules = {alias: module for alias, (module, original) in {**inner, **within}.items() if not original}
        text, reached = without_modules(text, modules)
        names = [target for target in (*inner.values(), *within.values()) if target[1]]
        for module, name in (*names, *reached):
            self.take(*self.find(module, name, label))
        lines = [f"{alias} = {name}" for alias, (_, name) in {**within, **inner}.items() if name and name != alias]
        used = names_in(ast.walk(ast.parse(text)))
        for bound, target in outer.items():
            if bound not in used:
                continue
            taken = any(bound in module.pieces for module in self.modules.values())
            if taken or self.imports.setdefault(bound, target) != target:
                lines.append(import_line(bound, target))
        text = with_first_lines(text, lines)
        return replace(piece, text=text, names=frozenset(), said=said_in(ast.walk(ast.parse(text))))

    def find(self, module: str, name: str, label: str) -> tuple[str, str]:
        """Where a name is defined that a module of minicb offers, be it an import there."""
        here = self.modules.get(module)
        if here is None or (name not in here.pieces and name not in here.inner):
            raise ValueError(f"{label} uses {name} of minicb.{module}, which export cannot take along")
        return (module, name) if name in here.pieces else self.find(*here.inner[name], label)

    def follow(self, piece: Piece) -> None:
        """Take what a piece names: its neighbours, what its module imports from minicb, imports from elsewhere."""
        module = self.modules[piece.module]
        self.said |= piece.said
        for name in sorted(piece.names):
            if name in self.modules[ROOT].pieces:
                self.take(ROOT, name)
            elif name in module.pieces:
                self.take(piece.module, name)
            elif name in module.inner and (home := module.inner[name][0]) in self.modules:
                self.take(home, name)
            elif name in module.imports:
                before = self.imports.setdefault(name, module.imports[name])
                assert before == module.imports[name], f"{name} means {before} and {module.imports[name]}"

    def settle(self) -> None:
        """Methods that somebody names come along, with what they name; until nothing is added any more."""
        done: set[tuple[str, str, str]] = set()
        while True:
            fresh = [
                (key, method)
                for key, piece in self.taken.items()
                for method in piece.methods
                if method.name in self.said and (*key, method.name) not in done
            ]
            if not fresh:
                return
            for key, method in fresh:
                done.add((*key, method.name))
                self.follow(method)

    # ---- writing

    def text_of(self, piece: Piece) -> str:
        """A piece as it stands in the file: without the methods that nobody names."""
        text = piece.text
        for method in piece.methods:
            if method.name not in self.said:
                text = text.replace("\n\n" + method.text, "", 1)
        return REMARK.sub("", text)

    def sections(self) -> Iterator[tuple[str, str, list[Piece]]]:
        """The modules in order: name, what it is about, and what was taken from it in its own order."""
        stand_ins = {name: self.taken[ROOT, name] for name in self.modules[ROOT].pieces if (ROOT, name) in self.taken}
        for name, module in self.modules.items():
            pieces = [self.taken[name, piece] for piece in module.pieces if (name, piece) in self.taken]
            if name == ROOT:
                pieces = [piece for piece in pieces if piece.name in stand_ins]
            else:  # a stand-in belongs where the original would be, below what it may be made of
                pieces += [stand_ins.pop(piece) for piece in list(stand_ins) if piece in module.pieces]
            if pieces:
                yield name, module.about, pieces

    def import_lines(self) -> list[str]:
        """All imports, Python's own first; the names of a module in one line."""
        groups: dict[str, list[str]] = {}
        for bound, (home, original) in self.imports.items():
            names = groups.setdefault(import_line(bound, (home, "")) if not original else f"from {home} import ", [])
            names += [original if original == bound else f"{original} as {bound}"] if original else []
        lines = [start + ", ".join(sorted(names)) for start, names in groups.items()]
        lines.sort(key=lambda line: (line.startswith("from"), line))
        foreign = [line for line in lines if line.split()[1].split(".")[0] not in sys.stdlib_module_names]
        return [line for line in lines if line not in foreign] + [""] + foreign


def exists(name: str) -> bool:
    return Path(minicb.__path__[0]).joinpath(*name.split(".")).with_suffix(".py").is_file()


def import_line(bound: str, target: tuple[str, str]) -> str:
    home, original = target
    if not original:
        return f"import {home}" if bound in (home, home.split(".")[0]) else f"import {home} as {bound}"
    return f"from {home} import {original}" + (f" as {bound}" if bound != original else "")


def with_first_lines(text: str, lines: list[str]) -> str:
    """The function with these lines at the beginning of its body, below the docstring."""
    if not lines:
        return text
    node = only_function(text)
    body = node.body[1:] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body
    first = body[0]
    old = text.splitlines()
    return "\n".join(
        [*old[: first.lineno - 1], *(" " * first.col_offset + line for line in lines), *old[first.lineno - 1 :]]
    )


def without_own_imports(text: str) -> tuple[str, dict[str, tuple[str, str]]]:
    """The function without the imports from minicb in its body, and what they bound."""
    found: dict[str, tuple[str, str]] = {}
    lines: list[str | None] = list(text.splitlines())
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Import, ast.ImportFrom)) and "minicb" in ast.unparse(node):
            take_import(node, {}, found)
            lines[node.lineno - 1 : node.end_lineno] = [None] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    return "\n".join(line for line in lines if line is not None), found


def without_modules(text: str, modules: Mapping[str, str]) -> tuple[str, list[tuple[str, str]]]:
    """`masks.causal_mask(n)` becomes `causal_mask(n)`. modules: name in the text -> module of minicb

    returns: the new text, and what it reached, as (module, name)
    """
    found = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules
    ]
    lines = [line.encode() for line in text.splitlines()]
    for node in sorted(found, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        line, value = lines[node.lineno - 1], node.value
        lines[node.lineno - 1] = line[: value.col_offset] + line[(value.end_col_offset or 0) + 1 :]
    return "\n".join(line.decode() for line in lines), [
        (modules[node.value.id], node.attr) for node in found if isinstance(node.value, ast.Name)
    ]
