"""`minicb mine`: what you have written so far."""

from __future__ import annotations

import argparse

ABOUT = """\
List the exercises that you have saved, or show your version of one.
A version is saved by check() in the notebook when it is right.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ABOUT
    parser.add_argument("exercise", nargs="?", help="its id, such as 2.2; without one: a list")


def run(args: argparse.Namespace) -> int:
    from minicb.course import mine

    mine(args.exercise)
    return 0
