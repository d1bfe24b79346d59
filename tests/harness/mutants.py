"""Reads `mutants.txt`, and plants one of its faults in a module's source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).with_name("mutants.txt")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault: in this module of minicb, instead of these lines, those."""

    name: str
    module: str
    old: tuple[str, ...]
    new: tuple[str, ...]

    def plant(self, source: str) -> str:
        """The module with the fault in it. Raises ValueError if the old lines do not stand there exactly once."""
        lines = source.splitlines()
        places = [at for at in range(len(lines)) if self.stands_at(lines, at)]
        if len(places) != 1:
            raise ValueError(f"{self.name!r}: {self.old[0]!r} stands {len(places)} times in {self.module}.py, not once")
        at = places[0]
        margin = indentation(lines[at])
        return "\n".join([*lines[:at], *(margin + line for line in self.new), *lines[at + len(self.old) :]]) + "\n"

    def stands_at(self, lines: list[str], at: int) -> bool:
        margin = indentation(lines[at])
        return [margin + line for line in self.old] == lines[at : at + len(self.old)]


def indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def read_mutants(path: Path = LIST) -> list[Mutant]:
    """Every mutant of the list, in order."""
    _, *modules = path.read_text(encoding="utf-8").split("\n@ ")[1:]
    found = []
    for part in modules:
        module, *entries = part.split("\n# ")
        for entry in entries:
            name, *lines = entry.strip("\n").split("\n")
            old = tuple(line[2:] for line in lines if line.startswith("- "))
            new = tuple(line[2:] for line in lines if line.startswith("+ "))
            found.append(Mutant(name, module.strip(), old, new))
    return found
