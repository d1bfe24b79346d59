"""What a learner can say in a notebook, besides `check`: hints, solutions, looking back, starting afresh.

Each verb prints a few lines and returns nothing. None of them locks, deletes or overwrites: what is put aside
goes to the attic, what is missing is the reference's part to play.
"""

from __future__ import annotations

import inspect
import random
from collections import Counter

from minicb import seams
from minicb.course import work
from minicb.course.attempt import attempt_from_source, body_lines, reference_attempt, standalone, workbench
from minicb.course.report import wrapped
from minicb.course.spec import Exercise, chapters, exercises, find

_rungs: Counter[str] = Counter()  # hints given so far in this session


def start(chapter: int) -> None:
    """Say what a chapter asks for, and what is yours already. Also takes in what other notebooks have saved."""
    if not isinstance(chapter, int):
        raise ValueError(f"write the chapter as a number, as in start(2); this is {chapter!r}")
    if chapter not in chapters():
        raise ValueError(f"there is no chapter {chapter}; there are {', '.join(map(str, chapters()))}")
    work.load()
    this = chapters()[chapter]
    workshop, alone = this.minutes
    print(f"{chapter:02d}  {this.title}: about {alone} minutes on your own, {workshop} in a workshop")
    for one in this.exercises:
        state = {"reference": f"{one.minutes} minutes", "yours": "yours", "catch-up": "a catch-up copy"}[one.seam.owner]
        print(f"    {one.id:<5}{one.name:<18} {state}")
    missing = [one for one in exercises().values() if one.seam.chapter < chapter and one.seam.owner == "reference"]
    if missing:
        names = ", ".join(one.label for one in missing[:4]) + (" and more" if len(missing) > 4 else "")
        print(f"Not yours from before: {names}. The reference stands in; nothing is locked.")


def hint(id: str) -> None:
    """Help in three rungs, one more at each call: a question, the steps, the lines in shuffled order."""
    exercise = find(id)
    _rungs[id] = min(_rungs[id] + 1, 3)
    heads = ("a question", "the steps", "the pieces of a solution, shuffled")
    print(f"{exercise.label}, hint {_rungs[id]} of 3: {heads[_rungs[id] - 1]}.")
    if _rungs[id] == 1:
        print("\n".join(wrapped(exercise.question)))
    elif _rungs[id] == 2:
        print("\n".join(f"  {number}. {step}" for number, step in enumerate(exercise.steps, 1)))
    else:
        print("\n".join(f"  {piece}" for piece in shuffled_pieces(exercise)))
    print(f'solution("{id}") shows it whole.' if _rungs[id] == 3 else f'More? hint("{id}") again.')


def shuffled_pieces(exercise: Exercise) -> list[str]:
    """The pieces of the third hint: given ones, or the lines of the reference, always in the same wrong order."""
    lines = [line.strip() for line in body_lines(reference_attempt(exercise.id).source)]
    right = list(exercise.pieces) or [line for line in lines if line and not line.startswith("#")]
    pieces, dice = list(right), random.Random(exercise.id)
    while len(right) > 1 and pieces == right:
        dice.shuffle(pieces)
    return pieces


def solution(id: str) -> None:
    """The engine's own version, as it stands in the core."""
    exercise = find(id)
    module = inspect.getmodule(exercise.seam.reference)
    print(f"# {exercise.label}, the reference, from {module.__name__ if module else 'minicb'}")
    print(reference_attempt(id).source, end="")


def mine(id: str | None = None) -> None:
    """Your saved version of one exercise, or a list of all that you have."""
    for one in [find(id)] if id else exercises().values():
        text = work.read(one)
        if text is not None:
            print(f".minicb/work/{work.path_of(one).name}  ({work.owner_of(text)})")
        elif id:
            print(f'{one.label}: nothing saved yet. check("{id}") saves it when it is right.')
        if text is not None and id:
            print(text, end="")
    if id is None and not any(work.read(one) for one in exercises().values()):
        print("Nothing saved yet.")


def use_reference(id: str) -> None:
    """Let the engine run the reference in this session; your file stays."""
    exercise = find(id)
    seams.uninstall(id)
    print(
        f"{exercise.label}: the reference runs in this session. "
        f'Your file stays; check("{id}") or a restart brings it back.'
    )


def reset(id: str | None = None) -> None:
    """Start an exercise afresh, or all of them. Your versions move to .minicb/attic; nothing is deleted."""
    moved = 0
    for one in [find(id)] if id else exercises().values():
        workbench.pop(one.id, None)
        seams.uninstall(one.id)
        if work.read(one) is not None:
            target, moved = work.put_away(one), moved + 1
            print(f"{one.label}: not written yet again. What you had is .minicb/attic/{target.name}")
    if not moved:
        print(f"{find(id).label}: nothing was saved." if id else "Nothing was saved.")


def catch_up(chapter: int) -> None:
    """Copy the reference for every exercise before this chapter that you have not done. Yours stays as it is."""
    if not isinstance(chapter, int):
        raise ValueError(f"write the chapter as a number, as in catch_up(2); this is {chapter!r}")
    if not 0 <= chapter <= max(chapters()) + 1:
        raise ValueError(f"there is no chapter {chapter} to catch up to: the last one is {max(chapters())}")
    copied, there = list[str](), list[str]()
    for one in exercises().values():
        text = work.read(one)
        if one.seam.chapter >= chapter or (text is not None and work.owner_of(text) == "yours"):
            continue
        path = work.keep(one, standalone(reference_attempt(one.id)), "catch-up")
        saved = path.read_text(encoding="utf-8")
        seams.install(one.id, attempt_from_source(one.id, saved, str(path)).function, "catch-up")
        (there if saved == text else copied).append(one.label)
    if copied:
        print(f"Copied for you: {', '.join(copied)}.")
        print("They count as catch-up, not as yours; check() puts your own version in their place at any time.")
    elif there:
        copies = "1 catch-up copy is" if len(there) == 1 else f"{len(there)} catch-up copies are"
        print(f"Nothing is missing before chapter {chapter}: {copies} there already.")
    else:
        print(f"Nothing is missing before chapter {chapter}.")


def receipt() -> None:
    """Whose code has run since the last generation began, part by part."""
    lines = seams.receipt()
    for line in lines:
        print(line)
    if not lines:
        print("Nothing has run yet.")
    elif not any(line.name == "scores" for line in lines):
        print("attention: a fast back end, as nothing of it is yours; it calls none of its parts")


def say_fallback(_: seams.Seam) -> None:
    """Said once a session, at the first part that is not the learner's."""
    print("(note: what you have not written yet is the reference's; receipt() lists the parts that ran.)")
