"""`minicb export`: your functions as one file."""

from __future__ import annotations

import argparse

ABOUT = """\
Write the functions that you have written in the course into one readable
file, in the order of the course, with the imports that they need.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ABOUT
    parser.add_argument("folder", nargs="?", default="my_engine", help="where the file goes (default: my_engine)")


def run(args: argparse.Namespace) -> int:
    from minicb.course import export

    export(args.folder)
    return 0
