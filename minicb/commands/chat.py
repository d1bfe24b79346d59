"""`minicb chat`: talk with the model; the answer streams as it is written."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from minicb.commands import add_model_arguments

if TYPE_CHECKING:
    from minicb.checkpoint import Message
    from minicb.llm import LLM
    from minicb.sampling import SamplingParams

ABOUT = """\
Talk with the model. Each answer streams as it is written; Ctrl-C stops an
answer, an empty line or Ctrl-D ends the talk. The whole talk is sent each time.
`/new` starts a new one.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ABOUT
    add_model_arguments(parser)
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default)")
    parser.add_argument(
        "--top-p", type=float, default=1.0, help="keep the likeliest tokens up to this sum (default: 1)"
    )
    parser.add_argument("--seed", type=int, help="fix the answers of a temperature above 0")
    parser.add_argument("--max-tokens", type=int, default=256, help="longest answer, in tokens (default: 256)")
    parser.add_argument("--system", metavar="TEXT", help="what the model is told first")


def run(args: argparse.Namespace) -> int:
    from minicb.llm import LLM
    from minicb.sampling import SamplingParams

    params = SamplingParams(
        temperature=args.temperature, top_p=args.top_p, seed=args.seed, max_tokens=args.max_tokens
    )  # before the model is loaded: a value out of range is said at once
    llm = LLM(args.model, device=args.device, dtype=args.dtype, native=args.native, max_num_seqs=1)
    first: list[Message] = [{"role": "system", "content": args.system}] if args.system else []
    talk = list(first)
    interactive = sys.stdin.isatty()
    while (line := read_line(interactive)) is not None:
        if line == "/new":
            talk = list(first)
            continue
        talk.append({"role": "user", "content": line})
        try:
            answer = stream_answer(llm, talk, params)
        except ValueError as error:  # the talk has grown past the context: say so and go on without it
            print(f"minicb: {error}; starting a new talk", file=sys.stderr)
            talk = list(first)
            continue
        talk.append({"role": "assistant", "content": answer})
    return 0


def read_line(interactive: bool) -> str | None:
    """The user's next line; None at the end."""
    try:
        line = input("you> " if interactive else "").strip()
    except EOFError:
        line = ""
    except KeyboardInterrupt:
        print()
        line = ""
    return line or None


def stream_answer(llm: LLM, talk: list[Message], params: SamplingParams) -> str:
    """Print the answer piece by piece. Ctrl-C ends it and keeps what was said."""
    pieces: list[str] = []
    stream = llm.stream(talk, params)
    try:
        for event in stream:
            pieces.append(event.text)
            print(event.text, end="", flush=True)
    except KeyboardInterrupt:
        print(" [stopped]", end="")
    finally:
        stream.close()
    print()
    return "".join(pieces)
