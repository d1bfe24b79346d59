"""Calling a learner's function safely: a time limit, copies of its inputs, and its own line if it fails.

Whatever the function does, a trial ends with an `Outcome` and never with our stack on the screen.

The limit works on every system and in every thread: a watching thread raises an exception in the calling
one, and again twice a second. It interrupts any Python code, tight loops included. It cannot interrupt a single
long call into compiled code (`time.sleep(1000)`, one huge matrix product) before the call returns, nor a loop that
catches everything for ever (`except: pass` around the whole of its work): restart the kernel there.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import io
import linecache
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from minicb.course.compare import difference
from minicb.course.spec import Case, Function

LIMIT_S = 5.0  # for one call
AGAIN_S = 0.5  # a learner's bare `except:` may swallow the first interruption


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch computes in one thread. For tiny tensors a second one only waits, long on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class TooLong(BaseException):
    """Raised inside code that ran past its limit. Not an Exception, so that `except Exception` lets it pass."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one call came to: a value, or the exception; and its arguments as they were left."""

    value: Any
    error: BaseException | None
    args: tuple[Any, ...]

    def same(self, other: Outcome) -> bool:
        """Is this the same answer? How a mistake is recognised."""
        if self.error or other.error:
            return type(self.error) is type(other.error) and str(self.error) == str(other.error)
        return difference(self.value, other.value) is None and difference(self.args, other.args) is None


def attempt_call(function: Function, case: Case, *, quiet: bool = True) -> Outcome:
    """Call the function with copies of the case's arguments. quiet: do not show what it prints."""
    args = copy.deepcopy(case.args)
    silence = contextlib.redirect_stdout(io.StringIO()) if quiet else contextlib.nullcontext()
    try:
        with silence, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # 20 cases would warn 20 times
            call = functools.partial(function, *args, **copy.deepcopy(case.kwargs))
            return Outcome(limited(call, LIMIT_S), None, args)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # exit() in a learner's function must not end the kernel either
        return Outcome(None, error, args)


def limited(function: Function, seconds: float) -> Any:
    """function(), or TooLong when the seconds are over."""
    watch = _Watch(seconds)
    try:
        try:
            return function()
        finally:
            watch.stop()
    except TooLong:
        watch.stop()  # once more: the interruption may have come in the middle of the first stop()
        raise


class _Watch:
    """Interrupts the thread that made it, again and again, until it is stopped."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._target = ctypes.c_ulong(threading.get_ident())
        self._over = threading.Event()
        self._fired = False
        self._lock = threading.Lock()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        pause = self._seconds
        while not self._over.wait(pause):
            with self._lock:
                if not self._over.is_set():
                    self._interrupt()
            pause = AGAIN_S

    def _interrupt(self) -> None:
        self._fired = True
        ctypes.pythonapi.PyThreadState_SetAsyncExc(self._target, ctypes.py_object(TooLong))

    def stop(self) -> None:
        """Nothing more is raised after this, and nothing is left on its way.

        An interruption cannot be taken back cleanly (CPython keeps its flag set, which slows every call and hangs
        a debugger); so a last one is sent and let in, here, where it does no harm.
        """
        sent = False
        while True:
            try:
                self._over.set()
                with self._lock:  # whoever holds it knows that the watcher is not raising just now
                    if sent or not self._fired:
                        return
                    sent = True
                    self._interrupt()
                while True:
                    pass
            except TooLong:
                continue


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the learner's own code."""

    number: int
    text: str


def learner_line(error: BaseException, filename: str) -> Place | None:
    """The innermost line of the learner's file on the way to the error; None if it has no part in it."""
    place, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            place = Place(trace.tb_lineno, linecache.getline(filename, trace.tb_lineno).strip())
        trace = trace.tb_next
    return place


def describe(error: BaseException) -> str:
    """An exception in one line: "KeyError: 'k'"."""
    first = str(error).strip().splitlines()
    return f"{type(error).__name__}: {first[0]}" if first else type(error).__name__
