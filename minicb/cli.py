"""The `minicb` command: one table of subcommands, and one rule for errors.

A subcommand is a module in `minicb/commands/` with `add_arguments(parser)` and `run(args) -> exit code`, and a
line in `COMMANDS`. Only the module that was asked for is imported, so `minicb --help` does not wait for torch.

A user's mistake (`ValueError`, `OSError`) is one line on stderr and exit code 1, a wrong option is exit code 2,
Ctrl-C is 130. Anything else is our bug and keeps its traceback.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Protocol, cast

COMMANDS: tuple[tuple[str, str], ...] = (
    ("download", "fetch the default model once (93 MB) into your cache"),
    ("demo", "the main job: real prompts, padded against continuous, side by side"),
    ("receipts", "claims about scheduling, measured again: tail latency, fairness, stalls"),
    ("bench", "measure this engine against others, on the same token ids"),
    ("chat", "talk with the model"),
    ("play", "step through a run in the browser, forward and back"),
    ("doctor", "say whether everything that minicb needs is here"),
    ("progress", "show the engine's parts, and which of them are yours"),
    ("mine", "list or show what you have written in the course"),
    ("reset", "start an exercise afresh; what you had is kept aside"),
    ("export", "write your engine as one file that runs alone"),
)

ABOUT = """\
Continuous batching from first principles: a small, exact inference engine,
and the notebooks in which you write it.
"""


class Command(Protocol):
    """What a module in `minicb/commands/` offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit code. Here errors become a line and a number."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    never_fail_to_print()
    try:
        return run_command(arguments)
    except KeyboardInterrupt:
        return fail("interrupted", 130)
    except BrokenPipeError:
        # The reader of our output left (`minicb doctor | head -1`). Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except ModuleNotFoundError as error:
        if "--traceback" in arguments or (error.name or "minicb").startswith("minicb"):
            raise
        return fail(f"the Python package {error.name} is missing: install minicb again (see README.md)")
    except (ValueError, OSError) as error:
        if "--traceback" in arguments:
            raise
        return fail(one_line(error))


def run_command(arguments: Sequence[str]) -> int:
    """Import the subcommand that was asked for, parse its options, run it."""
    name = next((word for word in arguments if not word.startswith("-")), "")
    command = load_command(name) if name in dict(COMMANDS) else None
    parser = build_parser(name, command)
    args = parser.parse_args(arguments)
    if command is None:
        parser.print_help(sys.stderr)
        return 2
    return command.run(args)


def build_parser(chosen: str, command: Command | None) -> argparse.ArgumentParser:
    """All the subcommands by name; the arguments of the chosen one only."""
    parser = argparse.ArgumentParser(
        prog="minicb", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"minicb {own_version()}")
    parser.add_argument(
        "--traceback", action="store_true", help="show where an error came from (for a bug report), before the command"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, summary in COMMANDS:
        sub = commands.add_parser(
            name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )
        if command is not None and name == chosen:
            command.add_arguments(sub)
    return parser


def load_command(name: str) -> Command:
    """The module behind a subcommand."""
    return cast(Command, importlib.import_module(f"minicb.commands.{name}"))


def own_version() -> str:
    """The installed version; a bare checkout on PYTHONPATH has none."""
    try:
        return metadata.version("minicb")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def one_line(error: Exception) -> str:
    """An error as one line that a person can act on."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def fail(message: str, code: int = 1) -> int:
    print(f"minicb: {message}", file=sys.stderr)
    return code


def never_fail_to_print() -> None:
    """A console that cannot show a character (cp1252, the C locale) gets a question mark, not a crash."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
