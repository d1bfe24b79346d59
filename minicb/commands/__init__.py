"""One module a subcommand of `minicb`; the table that lists them is in `minicb/cli.py`."""

from __future__ import annotations

import argparse
from typing import Any


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of every command that loads a model."""
    parser.add_argument("--model", metavar="NAME", help="a checkpoint folder or hub name (default: the packaged one)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, mps (default: auto)")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16, float16 (default: auto)")
    parser.add_argument(
        "--native", action="store_true", help="compile an extra for CPUs at first use (seconds; needs a C++ compiler)"
    )


STEP_ORDERS = ("stall_free", "prefill_first")
POLICIES = ("fcfs", "priority", "shortest_prefill_first", "sjf_aging", "hrrn", "vtc")


def add_scheduling_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of every command that runs the engine: its scheduler's knobs, under their own names."""
    group = parser.add_argument_group("scheduling")
    group.add_argument("--max-num-seqs", type=int, default=32, help="requests at a time (default: 32)")
    group.add_argument("--max-num-batched-tokens", type=int, default=512, help="token budget a step (default: 512)")
    group.add_argument("--policy", choices=POLICIES, default="fcfs", help="who of the waiting is next (default: fcfs)")
    group.add_argument(
        "--aging-tokens-per-s", type=float, default=200.0, metavar="A",
        help="of sjf_aging: a second of waiting makes a request so many tokens smaller (default: 200)",
    )  # fmt: skip
    group.add_argument(
        "--step-order", choices=STEP_ORDERS, default="stall_free",
        help="running streams first, or prompts first (default: stall_free)",
    )  # fmt: skip
    group.add_argument(
        "--enable-chunked-prefill", action=argparse.BooleanOptionalAction, default=True,
        help="cut long prompts to the budget (default), or wait for a step that holds all of it",
    )  # fmt: skip
    group.add_argument(
        "--long-prefill-token-threshold", type=int, default=0, metavar="N",
        help="tokens of one request in a step, at most (default: 0, no such limit)",
    )  # fmt: skip
    group.add_argument(
        "--backfill", type=int, default=0, metavar="N",
        help="so many may pass a request that found no room (default: 0)",
    )  # fmt: skip


def scheduling(args: argparse.Namespace) -> dict[str, Any]:
    """What `add_scheduling_arguments` read, as keywords of `Engine`. Raises ValueError for a value out of range."""
    from minicb.cache import SlotPool
    from minicb.scheduler import Scheduler

    names = (
        "max_num_seqs", "max_num_batched_tokens", "policy", "aging_tokens_per_s", "step_order",
        "enable_chunked_prefill", "long_prefill_token_threshold", "backfill",
    )  # fmt: skip
    knobs = {name: getattr(args, name) for name in names}
    Scheduler(SlotPool(1, 1), **knobs)  # so that a mistake is said before a model is loaded
    return knobs
