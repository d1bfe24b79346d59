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
from dataclasses import replace

from minicb.course.attempt import only_function, plain_source
from minicb.course.pieces import ROOT, Piece, names_in, path_of, read_module, said_in, take_import

# The modules that may be in the file, in the order of the course. Whatever else a piece names is an error.
ORDER = (
    "attention", "masks", "model", "checkpoint", "weights", "sampling", "naive", "cache", "request", "policy", "batch",
    "reference", "outputs", "metrics", "padding", "scheduler", "step", "course.minimal",
)  # fmt: skip
REMARK = re.compile(r"  # (type: ignore|noqa)\b.*$", re.MULTILINE)  # notes to tools that do not read the new file


class Bundle:
    """The chosen pieces. own: exercise id -> the text of the learner's saved file"""

    def __init__(self, own: Mapping[str, str], extra: Iterable[tuple[str, str]] = ()) -> None:
        self.own = own
        self.modules = {name: read_module(name) for name in ORDER if path_of(name).is_file()}
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
            elif name in module.inner and name != "seam":  # the decorator has gone
                self.take(*self.find(*module.inner[name], f"{piece.module}.{piece.name}"))
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
