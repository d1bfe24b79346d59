"""The course: everything a notebook needs, in one import.

    from minicb.course import *

    start(2)                      what this chapter asks for, and what is yours already
    @exercise("2.2")              above your function, in a cell of its own
    check("2.2")                  is it right? then the engine runs it from now on, and it is saved
    hint("2.2")                   a question; again: the steps; again: the lines, shuffled
    solution("2.2")               the engine's own version
    mine("2.2")                   your saved version
    run_anyway("2.2", prompt)     your latest version in the engine for once, right or wrong
    use_reference("2.2")          the reference for this session
    reset("2.2")                  start afresh; what you had moves to .minicb/attic
    catch_up(6)                   copies of the reference for what is missing before chapter 6
    predict("2.P1", 21)           your guess, before you run;  measured("2.P1", value) shows both
    progress()                    the engine map, your parts filled in
    receipt()                     whose code has just run
    answer(prompt)                the real model, through your parts
    graduate()                    is the engine yours? the real model, strictly by your parts
    export("my_engine/")          your engine as one file that runs without minicb

Importing this package installs what you have saved; from then on the engine runs it.
"""

from minicb import seams
from minicb.course import work
from minicb.course.answer import answer, run_anyway
from minicb.course.attempt import exercise
from minicb.course.check import check
from minicb.course.export import export
from minicb.course.graduate import graduate
from minicb.course.predict import measured, predict
from minicb.course.progress import progress
from minicb.course.verbs import (
    catch_up,
    hint,
    mine,
    receipt,
    reset,
    say_fallback,
    solution,
    start,
    use_reference,
)

__all__ = [
    "answer",
    "catch_up",
    "check",
    "exercise",
    "export",
    "graduate",
    "hint",
    "measured",
    "mine",
    "predict",
    "progress",
    "receipt",
    "reset",
    "run_anyway",
    "solution",
    "start",
    "use_reference",
]

work.load()
seams.tell_once(say_fallback)
