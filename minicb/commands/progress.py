"""`minicb progress`: the engine map as text, your parts marked, and what comes next."""

from __future__ import annotations

import argparse

ABOUT = """\
Show the engine's parts and which of them are yours: the exercises of the
notebooks that have passed their check. Computed from the files in
.minicb/work (below MINICB_HOME if that is set), and from nothing else.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ABOUT


def run(args: argparse.Namespace) -> int:  # noqa: ARG001
    from minicb.course import progress

    print(progress())
    return 0
