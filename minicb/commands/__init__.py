"""One module a subcommand of `minicb`; the table that lists them is in `minicb/cli.py`."""

from __future__ import annotations

import argparse


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of every command that loads a model."""
    parser.add_argument("--model", metavar="NAME", help="a checkpoint folder or hub name (default: the packaged one)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, mps (default: auto)")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16, float16 (default: auto)")
