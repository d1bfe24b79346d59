"""Where bfloat16 leaves float32, and why: `python -m tests.harness.precision`.

The packaged model answers the same prompts greedily in both types. At each prompt's first different token the report
shows the two tokens and how far apart their logits are in float32: a hair, so rounding chose, and no bug. Then, over
every position of the float32 answers, how often the two types prefer different tokens, and by what margin at most.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minicb.checkpoint import Tokenizer
from minicb.engine import Engine
from minicb.model import Model
from minicb.sampling import SamplingParams
from minicb.weights import load
from tests.harness.threads import one_thread

# Logits of float32 that lie closer than this may change places in bfloat16: its eight bits place a number near 16 only
# to the nearest 0.06 to 0.12, in every layer again. Over the prompts below the largest such margin was 0.25.
BOUND = 0.5
PROMPTS = (
    "The capital of France is", "Once upon a time", "def fibonacci(n):", "The three primary colours are",
    "Water boils at", "To be or not to be,", "The largest planet of the solar system is", "1, 1, 2, 3, 5, 8,",
    "Dear Sir or Madam,", "The opposite of hot is", "A recipe for pancakes: take", "In the year 1969",
    "import numpy as np\n", "The mitochondria is", "Roses are red,", "My favourite book is", "The moon is",
    "Q: What is 7 times 6?\nA:", "Photosynthesis is the process by which", "Once the rain had stopped, the children",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fork:
    """The first place where one prompt's answers differ. margin: logit of `wide` over `narrow`, in float32."""

    prompt: str
    position: int  # of the answer; tokens before it are equal
    wide: int  # float32's token
    narrow: int  # bfloat16's
    margin: float


@dataclass(frozen=True, slots=True)
class Report:
    """What the comparison found. Margins are differences of float32 logits."""

    forks: list[Fork]
    tokens: int  # positions compared
    flips: list[float]  # margins where the two types prefer different tokens after the same text
    largest_error: float  # of a logit in bfloat16


def answers(model: Model, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """Greedy continuations, by continuous batching."""
    engine = Engine(model, max_model_len=256, kv_cache_memory_bytes=1 << 30, attention="auto")
    names = [engine.add_request(ids, SamplingParams(max_tokens=count, ignore_eos=True)) for ids in prompts]
    found: dict[str, list[int]] = {name: [] for name in names}
    while engine.has_unfinished_requests:
        for event in engine.step():
            if event.token_id is not None:
                found[event.request_id].append(event.token_id)
    return [found[name] for name in names]


def logits_after(model: Model, ids: Sequence[int], start: int) -> Tensor:
    """What the model says at every position from `start` on, in one chunk of one request: float32 [len - start, V]"""
    rows: list[Tensor] = []
    original = model.logits
    engine = Engine(model, max_model_len=len(ids) + 1, max_num_batched_tokens=len(ids), max_num_seqs=1)

    class Spy:
        """The same model; it remembers all logits."""

        config, device, dtype = model.config, model.device, model.dtype

        def __call__(self, *arguments: object) -> Tensor:
            hidden = model(*arguments)
            rows.append(original(hidden[start:]).float())
            return hidden

        logits = staticmethod(original)

    engine.model = Spy()  # type: ignore[assignment]
    engine.add_request(ids, SamplingParams(max_tokens=1, ignore_eos=True))
    engine.step()
    return rows[0]


@torch.inference_mode()
def compare(wide: Model, narrow: Model, tokenizer: Tokenizer, count: int, prompts: Sequence[str] = PROMPTS) -> Report:
    """Answer every prompt in both types, and look at where they part."""
    ids = [tokenizer.encode(prompt) for prompt in prompts]
    pairs = zip(prompts, ids, answers(wide, ids, count), answers(narrow, ids, count), strict=True)
    forks, flips, largest = list[Fork](), list[float](), 0.0
    for prompt, own, one, other in pairs:
        whole = [*own, *one]
        exact, rounded = (logits_after(model, whole, len(own) - 1)[:-1] for model in (wide, narrow))
        largest = max(largest, float((exact - rounded).abs().max()))
        margins = exact.max(dim=-1).values - exact.gather(-1, rounded.argmax(dim=-1, keepdim=True))[:, 0]
        flips += [margin for margin in margins.tolist() if margin > 0]
        at = next((i for i in range(count) if one[i] != other[i]), None)
        if at is not None:
            forks.append(Fork(prompt, at, one[at], other[at], float(exact[at, one[at]] - exact[at, other[at]])))
    return Report(forks, count * len(prompts), flips, largest)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.harness.precision", description=__doc__)
    parser.add_argument("--tokens", type=int, default=48, help="tokens an answer (default 48)")
    options = parser.parse_args(arguments)
    wide, tokenizer = load(None, "cpu", "float32")
    narrow, _ = load(None, "cpu", "bfloat16")
    with one_thread():
        report = compare(wide, narrow, tokenizer, options.tokens)
    print(f"{'prompt':<44}{'at':>4}  {'float32':<14}{'bfloat16':<14}{'margin in float32':>18}")
    for fork in report.forks:
        texts = [repr(tokenizer.decode([token])) for token in (fork.wide, fork.narrow)]
        print(f"{fork.prompt!r:<44}{fork.position:>4}  {texts[0]:<14}{texts[1]:<14}{fork.margin:>18.3f}")
    print(f"\n{len(report.forks)} of {len(PROMPTS)} answers part within {options.tokens} tokens.")
    print(f"After the same text the types prefer different tokens at {len(report.flips)} of {report.tokens} positions,")
    print(f"where float32 prefers its own by {max(report.flips, default=0):.3f} at most (bound: {BOUND}).")
    print(f"The largest error of any logit is {report.largest_error:.3f}.")
    return int(max([0.0, *report.flips, *(fork.margin for fork in report.forks)]) > BOUND)


if __name__ == "__main__":
    sys.exit(main())
