"""Breaks things on purpose, at the planned moments."""

from __future__ import annotations

from collections.abc import Iterable

from tests.harness.case import Fault


class InjectedFault(RuntimeError):  # noqa: N818 - reads as what happened
    """The model, or a callback, breaks on purpose."""


class InjectedInterrupt(KeyboardInterrupt):
    """Ctrl-C, on purpose."""


class Breaker:
    """The faults that are still to come. Each strikes once, at the first fitting moment from its step on."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = list(faults)

    def strike(self, step: int, place: str, *, late: bool = False) -> None:
        """Raise if a fault is planned here and now. place: model | callback; late: the model has written its rows"""
        for fault in self.faults:
            if fault.step <= step and fits(fault, place, late):
                self.faults.remove(fault)
                raise InjectedInterrupt if fault.kind == "interrupt" else InjectedFault(fault.kind)


def fits(fault: Fault, place: str, late: bool) -> bool:
    if place == "callback":
        return fault.kind == "callback"
    return fault.kind in ("model", "interrupt") and fault.late == late
