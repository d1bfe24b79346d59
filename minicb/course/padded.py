"""The padded baseline at work: `PaddedRunner` on the lessons' models, through the parts that are installed.

    answers, steps = baseline({"A": ((3, 1, 4), 5), "B": ((1, 5), 2)})      ids and counts, tiny random model
    padded({"A": "The capital of France is", "B": "Hello"})                 texts, the real model

The engine itself never pads, so `same_tokens` cannot say anything about the parts of chapter 5: the last probes of
their checks are here. (Chapter 5)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Literal

from torch import Tensor

from minicb import seams
from minicb.course import tiny
from minicb.course.answer import packaged_model, whose
from minicb.course.spec import MismatchError
from minicb.course.tiny import PROMPTS, alone_by_reference, compare
from minicb.course.trial import one_thread
from minicb.metrics import StepRecord, summarise
from minicb.model import Model
from minicb.outputs import RequestOutput
from minicb.padding import PAD_ID, PaddedAttention, PaddedRunner, left_pad, padded_positions
from minicb.request import Limits, open_request
from minicb.sampling import SamplingParams
from minicb.stopping import Decode

Kind = Literal["static", "dynamic"]
Side = Literal["left", "right"]
Requests = Mapping[str, tuple[Sequence[int], int]]  # name -> (ids of the prompt, tokens of the answer)
Positions = Callable[[Tensor, Tensor], Tensor]
Answers = dict[str, tuple[int, ...]]
LENGTHS = {"A": 2, "B": 4, "C": 3}  # of the answers in a check: rows end one by one, and one is dragged along


class RightPaddedRunner(PaddedRunner):
    """The same with the padding on the right: `left_pad` in a mirror."""

    def pad(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        ids, real = left_pad([list(row)[::-1] for row in rows], PAD_ID)
        return ids.flip(1), real.flip(1)


def baseline(
    requests: Requests,
    *,
    rows: int = 8,
    kind: Kind = "static",
    side: Side = "left",
    attention: PaddedAttention | None = None,
    positions: Positions | None = None,
    model: Model | None = None,
) -> tuple[Answers, list[StepRecord]]:
    """Serve the requests in padded rectangles. Returns the answers, and a record a step.

    side: where the padding is   attention, positions: others than `PaddedAttention` and `padded_positions`
    model: None, a tiny random one
    """
    threads = one_thread() if model is None else nullcontext()
    # The part itself is a door to whatever is installed: behind its own door it would go round in circles.
    with threads, nullcontext() if positions in (None, padded_positions) else seams.swapped("5.2", positions):
        outputs, records = _run(model or tiny.model(), requests, rows, kind, side, None, attention)
    return {out.request_id: out.token_ids for out in outputs}, records


def padded(
    prompts: Mapping[str, str],
    *,
    max_tokens: int = 6,
    kind: Kind = "static",
    side: Side = "left",
    rows: int = 8,
    attention: PaddedAttention | None = None,
) -> None:
    """Let the real model answer all prompts in padded rectangles, greedily; print the answers and the slots."""
    weights, tokenizer = packaged_model()
    requests = {name: (tokenizer.encode(prompt), max_tokens) for name, prompt in prompts.items()}
    seams.begin_receipt()
    outputs, records = _run(weights, requests, rows, kind, side, tokenizer.decode, attention)
    for out in outputs:
        print(f"{out.request_id}  {prompts[out.request_id]!r} -> {out.text!r}")
    slots, useful = sum(r.token_slots for r in records), sum(r.useful_slots for r in records)
    print(f"{len(records)} steps, {slots} slots, {slots - useful} of them padding")
    print(whose())


def _run(
    weights: Model,
    requests: Requests,
    rows: int,
    kind: Kind,
    side: Side,
    decode: Decode | None,
    attention: PaddedAttention | None,
) -> tuple[list[RequestOutput], list[StepRecord]]:
    longest = max(len(prompt) + length for prompt, length in requests.values())
    limits = Limits(weights.config.vocab_size, longest, weights.config.end_ids)
    opened = [
        open_request(name, list(prompt), _params(length, decode), limits, decode, 0, 0.0)
        for name, (prompt, length) in requests.items()
    ]
    runner = (RightPaddedRunner if side == "right" else PaddedRunner)(
        weights, kind=kind, batch_size=min(rows, len(opened)), max_model_len=longest
    )
    if attention is not None:
        runner.attention = attention
    outputs = runner.run(opened)
    broken = [out for out in outputs if out.error]
    if broken:
        raise MismatchError(f"request {broken[0].request_id} ended with {broken[0].error}")
    return outputs, runner.records


def _params(length: int, decode: Decode | None) -> SamplingParams:
    return SamplingParams(max_tokens=length, ignore_eos=decode is None)


# ---- the last probes of the checks


def same_tokens_padded() -> str:
    """Three requests in left-padded rectangles, static and dynamic; MismatchError if a token differs from alone."""
    _check_side("left")
    return "3 requests in padded rectangles, same tokens as alone"


def same_tokens_on_either_side() -> str:
    """The same, and once more with all padding on the right."""
    _check_side("left")
    _check_side("right")
    return "3 requests, padded on the left and on the right, same tokens as alone"


def _check_side(side: Side) -> None:
    requests = {name: (PROMPTS[name], length) for name, length in LENGTHS.items()}
    expected = {name: alone_by_reference()[name][:length] for name, length in LENGTHS.items()}
    ways: tuple[tuple[Kind, int], ...] = (("static", 3), ("dynamic", 2))
    for kind, rows in ways:
        answers, _ = baseline(requests, rows=rows, kind=kind, side=side)
        compare(expected, answers, f"in a {kind} batch padded on the {side}")


def same_waste() -> str:
    """The summary of a padded run says the share that its slots, counted one by one, come to."""
    requests = {name: (PROMPTS[name], length) for name, length in LENGTHS.items()}
    _, steps = baseline(requests, rows=3)
    entries = [entry for step in steps for entry in step.entries]
    padding, useful = sum(entry.padding for entry in entries), sum(entry.num_new for entry in entries)
    said, counted = summarise([], steps, 1.0).padding_fraction, padding / (padding + useful)
    if abs(said - counted) > 1e-9:
        raise MismatchError(f"the summary of a padded run says {said:.3f}; counted slot by slot it is {counted:.3f}.")
    return f"{padding} of {padding + useful} slots of a padded run, as counted one by one"
