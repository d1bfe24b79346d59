"""A tiny engine for the last probe of a check: three requests must get the same tokens as alone.

The model has random weights, so large that a wrong mask, position or share moves its logits far, in float64,
so that no tie depends on rounding. Each request runs alone (in chunks) and all run together (in one go, and
with a small budget): between them every function of the attention path is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

from minicb import seams
from minicb.course.spec import MismatchError
from minicb.course.trial import one_thread
from minicb.engine import Engine
from minicb.metrics import StepRecord
from minicb.model import Model
from minicb.sampling import SamplingParams
from minicb.weights import random_model, tiny_config

# The course's running example: prompts of 3, 9 and 4 tokens.
PROMPTS: Mapping[str, Sequence[int]] = {"A": (3, 1, 4), "B": (1, 5, 9, 2, 6, 5, 3, 5, 8), "C": (9, 7, 9, 3)}
NEW_TOKENS = 4
Answers = dict[str, tuple[int, ...]]


def same_tokens() -> str:
    """Run the three requests alone and together; MismatchError if any token differs from the reference's."""
    expected = alone_by_reference()
    for name in PROMPTS:
        compare({name: expected[name]}, run({name: PROMPTS[name]}, budget=4), "alone")
    for budget in (64, 5):
        compare(expected, run(PROMPTS, budget), "beside the others")
    return f"{len(PROMPTS)} requests, same tokens as alone"


@cache
def alone_by_reference() -> Answers:
    """What each request says by itself, when every part is the reference."""
    with seams.references_only():
        return {name: run({name: prompt}, budget=64)[name] for name, prompt in PROMPTS.items()}


@cache
def model() -> Model:
    return random_model(tiny_config(), std=0.4, dtype="float64")


@one_thread()
def run(
    prompts: Mapping[str, Sequence[int]], budget: int, on_step: Callable[[StepRecord], None] | None = None
) -> Answers:
    """The token ids of each answer, computed together in one engine by the plainest back end."""
    engine = Engine(
        model(), attention="reference", max_num_batched_tokens=budget, max_num_seqs=4, max_model_len=32,
        kv_cache_memory_bytes=1 << 24, on_step=on_step,
    )  # fmt: skip
    for name, prompt in prompts.items():
        engine.add_request(prompt, SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True), request_id=name)
    answers: Answers = {}
    while engine.has_unfinished_requests:
        for event in engine.step():
            if event.output is None:
                continue
            if event.output.error:
                raise MismatchError(f"request {event.request_id} ended with {event.output.error}")
            answers[event.request_id] = event.output.token_ids
    return answers


def compare(expected: Answers, yours: Answers, how: str) -> None:
    """MismatchError for the first request whose tokens are not the expected ones."""
    for name, right in expected.items():
        if yours[name] != right:
            said, wanted = " ".join(map(str, yours[name])), " ".join(map(str, right))
            raise MismatchError(f"request {name}, {how}, got the tokens {said} instead of {wanted}.")
