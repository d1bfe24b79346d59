"""Exercise 7.4: the four lines of a step, from a plan to the next tokens.

The check runs them on a stand-in model that says the average of all tokens that it can see, read back through the
engine's own cache. It counts its passes and the rows of logits that it was asked for: a right step needs one pass for
all requests together, and logits only where somebody reads them.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import Tensor

from minicb.batch import Batch, Chunk, Plan, slots_of
from minicb.cache import KVCache, SlotPool
from minicb.course.spec import Case, Dice, Exercise, Twin
from minicb.course.tiny import same_tokens
from minicb.model import Model
from minicb.reference import Attention, ReferenceAttention
from minicb.request import Request
from minicb.sampling import SamplingParams
from minicb.stopping import StopChecker
from minicb.weights import tiny_config

ROOM = 16  # tokens of one request
VOCABULARY = 32


class Averages:
    """A model without weights: the next token follows from the mean of all tokens that a row may look at."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.passes, self.logit_rows = 0, 0

    def __call__(self, batch: Batch, cache: KVCache, attention: Attention) -> Tensor:
        self.passes += 1
        values = batch.tokens.double()[:, None, None]  # [T, 1, 1]: one head of size 1
        nothing = torch.zeros_like(values)  # equal scores, so equal shares
        return attention.bind(batch, cache)(0, None, nothing, nothing, values)[:, 0]  # hidden states [T, 1]

    def logits(self, hidden: Tensor) -> Tensor:
        self.logit_rows += len(hidden)
        wanted = (7 * hidden).round().remainder(VOCABULARY)  # [M, 1]
        return -(torch.arange(VOCABULARY) - wanted).abs()


def step_case(parts: Sequence[tuple[int, int, int]]) -> Case:
    """parts: for each request its tokens, those computed already, those of this step."""
    config = tiny_config(layers=1, heads=1, kv_heads=1, head_dim=1)
    pool = SlotPool(len(parts), ROOM)
    cache = KVCache(config, len(parts) + 1, ROOM, torch.device("cpu"), torch.float64)
    chunks = []
    for i, (length, computed, new) in enumerate(parts):
        ids = [(5 * i + 3 * place * place + 1) % VOCABULARY for place in range(length)]
        request = running_request(chr(65 + i), ids)
        pool.reserve(request.request_id, ROOM)
        slots = torch.tensor(slots_of(pool.pages(request.request_id), ROOM, 0, computed), dtype=torch.int64)
        old = torch.tensor(request.tokens[:computed], dtype=torch.float64)[:, None, None]
        cache.write(0, slots, torch.zeros_like(old), old)
        request.num_computed_tokens = computed
        chunks.append(Chunk(request, computed, new, samples=computed + new == length))
    about = ", ".join(f"{new} of {length - computed}" for length, computed, new in parts)
    model = cast(Model, Averages())
    return Case((Plan(tuple(chunks)), pool, model, cache, ReferenceAttention()), f"uncomputed tokens: {about}")


def running_request(name: str, tokens: list[int]) -> Request:
    return Request(
        request_id=name, tokens=tokens, num_prompt_tokens=1, params=SamplingParams(max_tokens=8), seed=0,
        ending_ids=frozenset(), checker=cast(StopChecker, None), max_total_tokens=ROOM, arrival_s=0.0,
    )  # fmt: skip


def step_cases(dice: Dice) -> Iterator[Case]:
    """Decoding, a prompt's last chunk, and one that is not the last: in any order and number."""
    for requests in dice.lengths(low=1, high=4):
        yield step_case([one_part(dice) for _ in range(requests)])


def one_part(dice: Dice) -> tuple[int, int, int]:
    length = dice.number(2, 9)
    computed = dice.number(0, length - 1)
    left = length - computed
    return length, computed, left if dice.number(0, 2) else dice.number(1, left)


# ---- wrong and right answers, written as a learner would
# ruff: noqa: F821, F841


def step_reading_every_row(plan, pool, model, cache, attention):
    from minicb.step import pack, sample

    batch = pack(plan, pool, model.device)
    hidden = model(batch, cache, attention)
    logits = model.logits(hidden)
    return sample(logits, plan.sampled)


def step_choosing_after_the_logits(plan, pool, model, cache, attention):
    from minicb.step import pack, sample

    batch = pack(plan, pool, model.device)
    hidden = model(batch, cache, attention)
    logits = model.logits(hidden)[batch.sample_at]
    return sample(logits, plan.sampled)


def step_reading_first_rows(plan, pool, model, cache, attention):
    from minicb.step import pack, sample

    batch = pack(plan, pool, model.device)
    hidden = model(batch, cache, attention)
    logits = model.logits(hidden[batch.q_start[:-1]])
    return sample(logits, [chunk.request for chunk in plan])


def step_reading_the_last_row(plan, pool, model, cache, attention):
    from minicb.step import pack, sample

    batch = pack(plan, pool, model.device)
    hidden = model(batch, cache, attention)
    logits = model.logits(hidden[-1:])
    return sample(logits, plan.sampled)


def step_sampling_everybody(plan, pool, model, cache, attention):
    from minicb.step import pack, sample

    batch = pack(plan, pool, model.device)
    hidden = model(batch, cache, attention)
    logits = model.logits(hidden[batch.q_start[1:] - 1])
    return sample(logits, [chunk.request for chunk in plan])


def step_with_too_many_names(plan, pool, model, cache, attention):
    from minicb.step import pack, sample

    batch = pack(plan, pool, model.device)
    hidden = model(batch, cache, attention)
    logits = model.logits(hidden[batch.sample_at])
    return sample(logits, [chunk.request for chunk in plan])


def step_one_by_one(plan, pool, model, cache, attention):
    from minicb.step import pack, sample

    results = []
    for chunk in plan:
        one = type(plan)((chunk,))
        batch = pack(one, pool, model.device)
        hidden = model(batch, cache, attention)
        logits = model.logits(hidden[batch.sample_at])
        results += sample(logits, one.sampled)
    return results


def step_with_the_bare_ids(plan, pool, model, cache, attention):
    from minicb.batch import pack
    from minicb.sampling import greedy_pick

    batch = pack(plan, pool, model.device)
    hidden = model(batch, cache, attention)
    logits = model.logits(hidden[batch.sample_at])
    return greedy_pick(logits)


def step_returning_logits(plan, pool, model, cache, attention):
    from minicb.step import pack

    batch = pack(plan, pool, model.device)
    hidden = model(batch, cache, attention)
    return model.logits(hidden[batch.sample_at])


def step_running_the_model_twice(plan, pool, model, cache, attention):
    from minicb.step import pack, sample

    batch = pack(plan, pool, model.device)
    model(batch, cache, attention)
    hidden = model(batch, cache, attention)
    logits = model.logits(hidden[batch.sample_at])
    return sample(logits, plan.sampled)


def step_with_logits_first(plan, pool, model, cache, attention):
    from minicb.step import pack, sample

    batch = pack(plan, pool, model.device)
    logits = model.logits(hidden[batch.sample_at])
    hidden = model(batch, cache, attention)
    return sample(logits, plan.sampled)


def step_with_the_model_first(plan, pool, model, cache, attention):
    from minicb.step import pack, sample

    hidden = model(batch, cache, attention)
    batch = pack(plan, pool, model.device)
    logits = model.logits(hidden[batch.sample_at])
    return sample(logits, plan.sampled)


def step_in_one_line(plan, pool, model, cache, attention):
    from minicb.step import pack, sample

    batch = pack(plan, pool, model.device)
    return sample(model.logits(model(batch, cache, attention)[batch.sample_at]), plan.sampled)


def step_by_names(plan, pool, model, cache, attention):
    from minicb.step import pack, sample

    batch = pack(plan, pool, model.device)
    hidden = model(batch=batch, cache=cache, attention=attention)
    wanted = hidden.index_select(0, batch.sample_at)
    tokens = sample(logits=model.logits(wanted), requests=plan.sampled)
    return list(tokens)


RUN_PLAN = Exercise(
    id="7.4",
    kind="P",
    minutes=5,
    importance="the step itself",
    tiny=step_case([(4, 3, 1), (6, 2, 3), (3, 0, 3)]),
    cases=step_cases,
    mutates=(2, 3),
    twins=(
        Twin(
            step_reading_every_row,
            "you make logits for every row, and the first of them get sampled. batch.sample_at says which rows count.",
        ),
        Twin(
            step_choosing_after_the_logits,
            "right tokens, too much work: you make logits for every row and throw most away. Choose the rows first.",
        ),
        Twin(
            step_reading_first_rows,
            "you read the first row of each request. What comes next is said by the row of its newest token.",
        ),
        Twin(
            step_reading_the_last_row,
            "you read one row, the last of all. Every request whose tokens are all computed has one: batch.sample_at.",
        ),
        Twin(
            step_sampling_everybody,
            "a prompt that is not read to its end gets a token too. Only the requests in plan.sampled are due one.",
        ),
        Twin(
            step_with_too_many_names,
            "the rows are right, but they belong to plan.sampled; you hand over everybody in the plan.",
        ),
        Twin(
            step_one_by_one,
            "right tokens, but one pass of the model for each request: its weights are read again and again. One pass.",
        ),
        Twin(step_with_the_bare_ids, "bare ids, picked greedily. sample() respects each request's own parameters."),
        Twin(step_returning_logits, "that is the logits; sample() makes one result out of each row."),
        Twin(
            step_running_the_model_twice,
            "the model runs twice for the same step; what it returned the first time was not kept.",
        ),
        Twin(
            step_with_logits_first,
            "hidden[...] chooses from what the model has returned, so the model has to run before.",
        ),
        Twin(step_with_the_model_first, "the model wants the batch, so the batch has to be packed before."),
    ),
    right=(step_in_one_line, step_by_names),
    question="Which of the lines needs nothing but the function's own arguments?",
    steps=(
        "Plan to tensors.",
        "Tensors through the model, once for everybody: a row of hidden states for each token.",
        "From hidden states to logits, but only the rows that somebody will read.",
        "From logits to tokens, for the requests that those rows belong to.",
    ),
    why="one pass reads the weights once, whoever is in it: prompts, chunks and single tokens share the price.",
    in_engine=same_tokens,
)
