"""Which token budget? Measure a few on the loaded model, and take the largest that keeps a limit.

    python -m minicb.bench.budget --limit 0.2      on the packaged model, from a terminal

    tries = try_budgets(model, (16, 64, 256))
    recommend(tries, limit_s=0.2)

What is measured is the case that a budget is for: some answers are being written when a long prompt arrives. A large
budget reads the prompt in few steps (its first token comes soon), and each of these steps is long (the others wait).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minicb.engine import Engine
from minicb.metrics import choose_budget
from minicb.model import Model
from minicb.outputs import Event, RequestOutput
from minicb.sampling import SamplingParams

STREAM_PROMPT = 4  # tokens: too short to matter


@dataclass(frozen=True, slots=True)
class Try:
    """What one budget gave. Seconds of the engine's clock."""

    budget: int
    ttft_s: float  # of the long prompt
    longest_gap_s: float  # between two tokens of an answer that was being written
    steps: int  # from the long prompt's arrival to its first token


def try_budgets(
    model: Model, budgets: Sequence[int], *, streams: int = 3, prompt_tokens: int = 256, **options: Any
) -> list[Try]:
    """Serve a prompt of `prompt_tokens` among `streams` running answers, once with each budget.

    options: those of `Engine`, such as `clock`
    Raises ValueError for a budget that leaves nothing for the prompt: each stream takes a token a step.
    """
    for budget in budgets:
        if budget <= streams:
            raise ValueError(f"a budget of {budget} leaves no token a step for the prompt beside {streams} streams")
    return [try_budget(model, budget, streams, prompt_tokens, options) for budget in budgets]


def try_budget(model: Model, budget: int, streams: int, prompt_tokens: int, options: dict[str, Any]) -> Try:
    """One budget, on an engine of its own."""
    steps = -(-prompt_tokens // (budget - streams))
    written = SamplingParams(max_tokens=steps + STREAM_PROMPT * streams + 4, ignore_eos=True)  # to the end and beyond
    room = max(prompt_tokens + 1, STREAM_PROMPT + (written.max_tokens or 0))
    engine = Engine(
        model, max_num_batched_tokens=budget, max_num_seqs=streams + 1, max_model_len=max(room, 2), **options
    )
    names = [engine.add_request(some_ids(model, STREAM_PROMPT, i), written) for i in range(streams)]
    events: list[Event] = []
    while len({event.request_id for event in events}) < streams:
        events += engine.step()
    before = engine.steps
    engine.add_request(
        some_ids(model, prompt_tokens, streams), SamplingParams(max_tokens=1, ignore_eos=True), request_id="long"
    )
    while "long" in engine.requests:
        events += engine.step()
    taken = engine.steps - before
    events += [event for name in names if (event := engine.abort_request(name))]
    metrics = {event.request_id: must_be_whole(event.output).metrics for event in events if event.output}
    return Try(budget, metrics["long"].ttft_s or 0.0, max(gap for name in names for gap in metrics[name].itl_s), taken)


def must_be_whole(output: RequestOutput) -> RequestOutput:
    """An answer that ended with an error has no latency that means anything."""
    if output.error:
        raise RuntimeError(f"request {output.request_id} ended with {output.error}")
    return output


def some_ids(model: Model, count: int, seed: int) -> list[int]:
    """Ids of a text that nobody will read."""
    return [(7 + 31 * seed + 13 * i + i * i) % model.config.vocab_size for i in range(count)]


def recommend(tries: Sequence[Try], limit_s: float) -> Try:
    """The try with the budget to take: the largest whose longest gap keeps the limit; the smallest if none does."""
    chosen = choose_budget({one.budget: one.longest_gap_s for one in tries}, limit_s)
    return next(one for one in tries if one.budget == chosen)


def main() -> None:
    """Measure on the packaged model and recommend."""
    from minicb.weights import load

    parser = argparse.ArgumentParser(prog="python -m minicb.bench.budget", description="Recommend a token budget.")
    parser.add_argument("--limit", type=float, default=0.2, help="seconds a stream may stop, at most (default: 0.2)")
    parser.add_argument("--streams", type=int, default=3, help="answers under way (default: 3)")
    parser.add_argument("--prompt-tokens", type=int, default=256, help="length of the prompt (default: 256)")
    parser.add_argument("--budgets", type=int, nargs="+", default=[16, 32, 64, 128, 256, 512], metavar="TOKENS")
    args = parser.parse_args()
    model, _ = load()
    try_budgets(
        model, args.budgets[:1], streams=args.streams, prompt_tokens=16
    )  # first calls have reasons of their own
    tries = try_budgets(model, args.budgets, streams=args.streams, prompt_tokens=args.prompt_tokens)
    for one in tries:
        waits = f"first token after {one.ttft_s:.2f} s, longest gap {one.longest_gap_s:.3f} s"
        print(f"{one.budget:>5} tokens a step: {waits}")
    chosen = recommend(tries, args.limit)
    kept = "keeps" if chosen.longest_gap_s <= args.limit else "is the smallest; none keeps"
    print(f"max_num_batched_tokens={chosen.budget} {kept} the limit of {args.limit:g} s")


if __name__ == "__main__":
    main()
