"""The folder of passing sources: the learner's only state.

`.minicb/work/2.2_chunk_mask.py` holds the version of `chunk_mask` that passed its check. Progress is computed
from these files and so cannot drift; notebooks are disposable. Nothing is ever deleted: what is replaced or
reset moves to `.minicb/attic/`. The folder lies under MINICB_HOME, else in the repository's root.

A file that no longer reads, runs or passes is reported in one line and left out; it stays where it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import minicb
from minicb import seams
from minicb.course.attempt import attempt_from_source
from minicb.course.spec import Exercise, exercises
from minicb.course.trial import LIMIT_S, TooLong, describe, limited

if TYPE_CHECKING:
    from minicb.seams import Owner

CATCH_UP = "# catch-up: "


def home() -> Path:
    """Where `.minicb` is: MINICB_HOME, else the repository, else (minicb installed as a package) this folder."""
    if os.environ.get("MINICB_HOME"):
        return Path(os.environ["MINICB_HOME"]).expanduser()
    repository = Path(minicb.__path__[0]).resolve().parent
    return repository if (repository / "notebooks").is_dir() else Path.cwd()


def folder(name: str = "work") -> Path:
    return home() / ".minicb" / name


def path_of(exercise: Exercise) -> Path:
    return folder() / f"{exercise.id}_{exercise.name}.py"


def read(exercise: Exercise) -> str | None:
    """The saved source, None if there is none."""
    path = path_of(exercise)
    return path.read_text(encoding="utf-8") if path.is_file() else None


def owner_of(text: str) -> Owner:
    return "catch-up" if text.startswith(CATCH_UP) else "yours"


def keep(exercise: Exercise, source: str, owner: Owner = "yours") -> Path:
    """Save a source that passed. An earlier one that is different moves to the attic."""
    about = f"# {exercise.label}, which passed its check. minicb runs this file.\n"
    if owner == "catch-up":
        about = f'{CATCH_UP}{exercise.label}, a copy of the reference. check("{exercise.id}") puts yours here.\n'
    text, before = f"{about}\n{source}", read(exercise)
    if before == text:
        return path_of(exercise)
    if before is not None:
        put_away(exercise)
    path = path_of(exercise)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)  # at no moment is there half a file
    return path


def put_away(exercise: Exercise) -> Path:
    """Move the saved source to the attic, beside whatever is there already."""
    attic, number = folder("attic"), 1
    attic.mkdir(parents=True, exist_ok=True)
    while (target := attic / f"{exercise.id}_{exercise.name}.{number}.py").exists():
        number += 1
    path_of(exercise).replace(target)
    return target


def load() -> None:
    """Install every saved source that still passes; say in one line each which do not."""
    for exercise in exercises().values():
        trouble = load_one(exercise)
        if trouble:
            print(f"note: .minicb/work/{path_of(exercise).name} is left out, the reference stands in: {trouble}")
    for path in strangers():
        print(f"note: .minicb/work/{path.name} belongs to no exercise and is left out.")


def load_one(exercise: Exercise) -> str | None:
    """Install the saved source of one exercise, if there is one. Returns what is wrong with it, if anything."""
    from minicb.course.check import still_passes  # check.py saves with this module

    try:
        text = read(exercise)
        if text is None:
            return None
        attempt = limited(partial(attempt_from_source, exercise.id, text, str(path_of(exercise))), LIMIT_S)
        trouble = still_passes(exercise, attempt)
    except (Exception, SystemExit, TooLong) as error:
        return describe(error)
    if trouble is None:
        seams.install(exercise.id, attempt.function, owner_of(text))
    return trouble


def strangers() -> Iterator[Path]:
    """Files in the work folder that are no exercise's."""
    known = {path_of(exercise).name for exercise in exercises().values()}
    return (path for path in sorted(folder().glob("*.py")) if path.name not in known)
