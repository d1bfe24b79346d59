"""`minicb reset`: start an exercise afresh, or all of them."""

from __future__ import annotations

import argparse

ABOUT = """\
Start an exercise afresh: its saved version moves to .minicb/attic and the
engine runs the reference again. Nothing is deleted.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ABOUT
    parser.add_argument("exercise", nargs="?", help="its id, such as 2.2")
    parser.add_argument("--all", action="store_true", help="every exercise")


def run(args: argparse.Namespace) -> int:
    from minicb.course import reset

    if bool(args.exercise) == args.all:
        raise ValueError("say which exercise, such as: minicb reset 2.2; or minicb reset --all")
    reset(args.exercise)
    return 0
