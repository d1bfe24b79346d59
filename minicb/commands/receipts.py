"""`minicb receipts`: claims about scheduling, measured again in front of you."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from minicb.bench.receipts import NAMES, Options, load_receipt, text

ABOUT = "Measure a claim about scheduling again: a table, and with --out a picture.\n\n" + "\n".join(
    f"  {name:<6}{title}" for name, title in NAMES.items()
)
MORE = """

All but `real` run the engine's own scheduler in simulated time and print the same
on every machine. --trace takes a CSV in the format of the Azure LLM inference
traces (github.com/Azure/AzurePublicDataset); without it, R1, R3 and R4 imitate
that trace from its published quantiles. `real` needs the model and a quiet machine.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ABOUT + MORE
    parser.add_argument("names", nargs="+", metavar="NAME", help=f"{', '.join(NAMES)}, or all (without real)")
    parser.add_argument("--trace", type=Path, metavar="CSV", help="a trace in the Azure format")
    parser.add_argument("--requests", type=int, metavar="N", help="only so many requests")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    parser.add_argument(
        "--cpu-time", action="store_true", help="real: the process's own seconds, for a machine that is busy otherwise"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="also draw, as FOLDER/NAME-*.svg and .png")


def run(args: argparse.Namespace) -> int:
    names = [name for name in NAMES if name != "real"] if args.names == ["all"] else args.names
    for option in ("requests", "workers"):
        if (value := getattr(args, option)) is not None and value < 1:
            raise ValueError(f"--{option} must be at least 1, not {value}")
    receipts = {name: load_receipt(name) for name in names}  # before the work: a wrong name is said at once
    options = Options(args.trace, args.workers, args.requests, args.cpu_time)
    results = {}
    for name, receipt in receipts.items():
        print(f"{name}: {NAMES[name]}", flush=True)
        began = time.perf_counter()
        results[name] = data = receipt.measure(options)
        if "clock" in data:
            print(f"the clock: {data['clock']}")
        for table in receipt.tables(data):
            print(f"\n{text(table)}")
        print(f"\nmeasured in {time.perf_counter() - began:.1f} s\n", flush=True)
        if args.out:
            for label, picture in receipt.pictures(data).items():
                for path in picture.save(args.out, f"{name}-{label}"):
                    print(f"saved {path}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(f"saved {args.json}")
    return 0
