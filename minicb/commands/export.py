"""`minicb export`: your engine as one file."""

from __future__ import annotations

import argparse

ABOUT = """\
Write your engine as one readable file that runs alone: the functions that
you have written in the course, and of minicb only what they need.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ABOUT
    parser.add_argument("folder", nargs="?", default="my_engine", help="where the file goes (default: my_engine)")


def run(args: argparse.Namespace) -> int:
    from minicb.course import export

    export(args.folder)
    return 0
