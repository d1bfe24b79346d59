"""`minicb play`: traces as a page to step through."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path

from minicb.metrics import StepRecord, read_trace

ABOUT = """\
Make one HTML file from one or more traces and open it in the browser: a
timeline to move through, and for each step the queue, the tokens, the mask
and the cache. The file needs no network and can be kept or sent.

A trace is what `minicb demo` saves (trace.jsonl and padded.jsonl), or what
write_trace in minicb/metrics.py writes. Several traces of the same requests
stand in one page, with a switch; their names are the file names, or NAME=FILE:

  minicb play minicb-demo/padded.jsonl continuous=minicb-demo/trace.jsonl
  minicb play first=a.jsonl second=b.jsonl --out compare.html
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ABOUT
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="a trace file, or NAME=FILE")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: beside the first trace, as .html")
    parser.add_argument("--title", default="Step by step", help="what stands over the page")
    parser.add_argument("--no-open", action="store_true", help="only write the file")


def run(args: argparse.Namespace) -> int:
    runs: dict[str, list[StepRecord]] = {}
    for word in args.traces:
        name, path = named(word)
        if name in runs:
            raise ValueError(f"two traces are called {name!r}: name them, as in first={path} second=...")
        runs[name] = read_trace(path)
        if not runs[name]:
            raise ValueError(f"{path} is empty: a trace has one line a step")
    from minicb.course.player import make_player

    player = make_player(runs, title=args.title)
    saved = player.save(args.out or named(args.traces[0])[1].with_suffix(".html"))
    print(player.line)
    print(f"saved {saved}")
    if not args.no_open and not webbrowser.open(saved.resolve().as_uri()):
        print("no browser was found here: open the file in one")
    return 0


def named(word: str) -> tuple[str, Path]:
    """NAME=FILE, or a file that is named after itself; a trace.jsonl after its folder."""
    name, equals, path = word.partition("=")
    if equals and name and not Path(word).exists():
        return name, Path(path)
    file = Path(word)
    return (file.stem if file.stem != "trace" else file.resolve().parent.name), file
