"""Parity: whatever the company, every greedy answer is the one that transformers gives to the request alone.

200 random workloads: order and moment of arrival, token budget, sequence cap, lengths; 180 on tiny models of every
architecture, 20 on the real one. Then the padded baseline, which must give the same answers and count its waste.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest
import torch
from oracle import LLAMA3, Alone, alone, assert_same, hf_model, one_thread, ours, poison, random_ids, real_checkpoint
from torch import Tensor

from minicb.batch import Batch
from minicb.engine import Engine
from minicb.metrics import StepRecord
from minicb.model import Model
from minicb.outputs import RequestOutput
from minicb.padding import PaddedRunner
from minicb.policy import POLICIES
from minicb.request import Limits, Request, open_request
from minicb.sampling import Sampled, SamplingParams, sample
from minicb.scheduler import STEP_ORDERS
from minicb.weights import load, random_model

TINY: dict[str, tuple[str, dict[str, Any]]] = {
    "llama, 9 heads on 3": ("llama", {}),
    "llama, 8 heads on 4, biases, llama3 rope": (
        "llama",
        {"num_attention_heads": 8, "num_key_value_heads": 4, "attention_bias": True, "rope_parameters": LLAMA3},
    ),
    "mistral, window of 7": ("mistral", {"sliding_window": 7, "tie_word_embeddings": False}),
    "qwen2, two end ids": ("qwen2", {"eos_token_id": [3, 11]}),
    "qwen3, windows in some layers": (
        "qwen3",
        {"use_sliding_window": True, "sliding_window": 30, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "llama, heads wider than hidden, one end id": ("llama", {"head_dim": 16, "eos_token_id": 5}),
}
LONGEST_PROMPT, LONGEST_ANSWER = 300, 16

TEXT = """The lighthouse keeper wrote one line a day. Wind from the west, two ships, no fog. In winter the lines grew
shorter, and once there was only a full stop. When the light was made automatic, an engineer found forty years of
books in a cupboard under the stairs: 14,610 lines, and not one of them about himself. She read them in order,
which took her the whole of March, and then she began again at the beginning, because she had noticed something.
def tide(hours): return 2.1 * cos(2 * pi * hours / 12.42)  # metres above the mean, at 50.7 N, 1.5 W
Every line that named a ship was followed, some days later, by a line that named the wind in the same words.
Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. 今日は灯台へ行きました。 🌊⚓️
1. Count the ships. 2. Count the words. 3. Compare them with the tables of the harbour office; explain the rest.
She wrote to the harbour office in April. The answer came in a brown envelope, without a letter: eleven pages torn from
a log, and on the last one, in the keeper's hand, the beginning of a sentence that he had crossed out twice."""


@pytest.fixture(autouse=True, scope="module")
def all_models_on_one_thread() -> Iterator[None]:
    with one_thread():
        yield


@dataclass(frozen=True)
class Case:
    """A prompt and the answer that it gets alone, as long as anybody may ask for."""

    prompt: list[int]
    answer: Alone


@dataclass(frozen=True)
class House:
    """One model, in minicb, with prompts whose answers are known."""

    model: Model
    cases: list[Case]


@cache
def tiny_house(name: str) -> House:
    kind, options = TINY[name]
    hf = hf_model(kind, seed=list(TINY).index(name), **options)
    rng = random.Random(name)
    lengths = [1, 2, LONGEST_PROMPT, *(rng.randint(1, 30) for _ in range(6)), *(rng.randint(30, 300) for _ in range(7))]
    prompts = [random_ids(rng, n) for n in lengths]
    return House(ours(hf), [Case(ids, alone(hf, ids, LONGEST_ANSWER)) for ids in prompts])


@cache
def real_house() -> House:
    """Half of the prompts are pieces of text, half are ids drawn at random from the whole vocabulary."""
    from transformers import AutoModelForCausalLM

    folder = real_checkpoint()
    hf = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    model, tokenizer = load(folder, "cpu", "float32")
    rng, text = random.Random(0), tokenizer.encode(TEXT)
    prompts = [random_ids(rng, n, model.config.vocab_size) for n in (1, 5, 17, 60, 140)]
    for n in (1, 3, 9, 30, 80, 200, LONGEST_PROMPT):
        start = rng.randint(0, len(text) - n)
        prompts.append(text[start : start + n])
    return House(model, [Case(ids, alone(hf, ids, 16)) for ids in prompts])


@dataclass(frozen=True)
class Workload:
    """Who asks for how much, when, and within which limits."""

    asked: list[tuple[Case, int, int]]  # the case, max_tokens, the step before which it arrives
    budget: int
    max_num_seqs: int
    knobs: Mapping[str, Any] = field(default_factory=dict)  # other ones of the scheduler


def random_workload(rng: random.Random, cases: Sequence[Case], most: int, max_steps: int) -> Workload:
    """One to `most` requests; a small budget gets fewer tokens to read, so that no workload takes many steps."""
    budget = round(math.exp(rng.uniform(0, math.log(512))))
    asked, tokens = [], 0
    for _ in range(rng.randint(2, most)):
        case = rng.choice(cases)
        if asked and tokens + len(case.prompt) > max_steps * budget:
            continue
        if not asked:
            case = rng.choice([one for one in cases if len(one.prompt) <= max_steps * budget])
        tokens += len(case.prompt)
        asked.append((case, rng.randint(1, len(case.answer.tokens)), rng.choice([0, 0, rng.randint(0, 20)])))
    rng.shuffle(asked)
    return Workload(asked, budget, rng.randint(1, 10))


class Recorder:
    """Keeps every row of logits that the engine samples, for its request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: dict[str, list[Tensor]] = {}
        monkeypatch.setattr("minicb.step.sample", self.sample)

    def sample(self, logits: Tensor, requests: Sequence[Request]) -> list[Sampled | Exception]:
        for row, request in zip(logits, requests, strict=True):
            self.rows.setdefault(request.request_id, []).append(row)
        return sample(logits, requests)


def serve(model: Model, workload: Workload, attention: str) -> dict[str, RequestOutput]:
    """Run it to the end, with an audit after every step. Requests are named by their place in `asked`."""
    engine = Engine(
        model,
        max_num_batched_tokens=workload.budget,
        max_num_seqs=workload.max_num_seqs,
        max_model_len=LONGEST_PROMPT + LONGEST_ANSWER,
        attention=attention,
        **workload.knobs,
    )
    poison(engine.cache)
    coming = sorted(range(len(workload.asked)), key=lambda i: workload.asked[i][2])
    outputs: dict[str, RequestOutput] = {}
    for step in range(10_000):
        while coming and workload.asked[coming[0]][2] <= step:
            i = coming.pop(0)
            case, n, _ = workload.asked[i]
            engine.add_request(case.prompt, SamplingParams(max_tokens=n, client="ab"[i % 2], priority=i % 3), str(i))
        for event in engine.step():
            if event.output:
                outputs[event.request_id] = event.output
        engine.check()
        if not coming and not engine.has_unfinished_requests:
            return outputs
    pytest.fail("the engine did not come to an end")


def assert_as_alone(
    workload: Workload, outputs: dict[str, RequestOutput], rows: dict[str, list[Tensor]], rtol: float
) -> None:
    """Tokens, and logits as long as the tokens before them are the same."""
    assert len(outputs) == len(workload.asked)
    for i, (case, n, _) in enumerate(workload.asked):
        tokens, expected = list(outputs[str(i)].token_ids), case.answer.tokens[:n]
        assert_same(tokens, expected, case.answer.margins)
        same = next((at for at, (a, b) in enumerate(zip(tokens, expected, strict=False)) if a != b), len(expected) - 1)
        known = case.answer.logits[: same + 1]
        torch.testing.assert_close(torch.stack(rows[str(i)][: same + 1]), known, atol=1e-4, rtol=rtol)


def check_workload(
    house: House, workload: Workload, attention: str, recorder: Recorder, rtol: float = 0
) -> None:  # fmt: skip
    assert_as_alone(workload, serve(house.model, workload, attention), recorder.rows, rtol)


# ---- 200 workloads through the engine


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("name", TINY)
def test_every_answer_of_a_random_workload_is_the_one_given_alone(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = tiny_house(name)
    workload = random_workload(random.Random(seed), house.cases, most=10, max_steps=150)
    check_workload(house, workload, "auto", Recorder(monkeypatch))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", TINY)
def test_the_reference_attention_gives_the_same_answers(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    house = tiny_house(name)
    workload = random_workload(random.Random(seed), house.cases, most=6, max_steps=60)
    check_workload(house, workload, "reference", Recorder(monkeypatch))


@pytest.mark.parametrize("seed", range(20))
def test_the_real_model_answers_a_random_workload_as_it_answers_alone(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = real_house()
    workload = random_workload(random.Random(1000 + seed), house.cases, most=6, max_steps=16)
    knobs = {"policy": list(POLICIES)[seed % len(POLICIES)], "step_order": STEP_ORDERS[seed // len(POLICIES) % 2]}
    workload = replace(workload, knobs=knobs | {"enable_chunked_prefill": seed % 4 > 0, "backfill": seed % 3})
    # Its logits reach 38, and after 30 layers float32 itself, ours and theirs, is up to 9e-5 away from float64.
    check_workload(house, workload, "reference" if seed % 5 == 0 else "auto", Recorder(monkeypatch), rtol=2e-6)


@pytest.mark.parametrize("budget", [1, 2, 3, 7, 64, 512])
def test_every_budget_gives_the_same_answers(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    house = tiny_house("llama, 9 heads on 3")
    cases = sorted(house.cases, key=lambda case: len(case.prompt))[:6]
    workload = Workload([(case, LONGEST_ANSWER, 0) for case in cases], budget, 4)
    check_workload(house, workload, "auto", Recorder(monkeypatch))


@pytest.mark.parametrize("order", range(4))
def test_every_order_of_arrival_gives_the_same_answers(order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    house = tiny_house("llama, 9 heads on 3")
    cases = random.Random(order).sample(house.cases, 10)
    workload = Workload([(case, LONGEST_ANSWER, 3 * i) for i, case in enumerate(cases)], 40, 3)
    check_workload(house, workload, "auto", Recorder(monkeypatch))


def test_many_copies_of_one_prompt_get_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    house = tiny_house("llama, 9 heads on 3")
    workload = Workload([(house.cases[2], LONGEST_ANSWER, i % 3) for i in range(8)], 33, 8)
    check_workload(house, workload, "auto", Recorder(monkeypatch))


# ---- the padded baseline: the same answers, and every slot counted


def padded_requests(cases: Sequence[Case], lengths: Sequence[int], model: Model) -> list[Request]:
    limits = Limits(model.config.vocab_size, LONGEST_PROMPT + LONGEST_ANSWER, model.config.end_ids)
    return [
        open_request(str(i), case.prompt, SamplingParams(max_tokens=n), limits, None, seed=0, now=0.0)
        for i, (case, n) in enumerate(zip(cases, lengths, strict=True))
    ]


def run_padded(house: House, cases: Sequence[Case], lengths: Sequence[int], kind: Any, batch_size: int) -> PaddedRunner:
    """Runs them, checks every answer, returns the runner with its records."""
    runner = PaddedRunner(house.model, kind=kind, batch_size=batch_size, max_model_len=LONGEST_PROMPT + LONGEST_ANSWER)
    poison(runner.cache)
    outputs = runner.run(padded_requests(cases, lengths, house.model))
    for case, n, output in zip(cases, lengths, outputs, strict=True):
        assert_same(output.token_ids, case.answer.tokens[:n], case.answer.margins)
    return runner


kinds = pytest.mark.parametrize("kind", ["static", "dynamic"])


@kinds
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", TINY)
def test_padded_batches_give_the_answers_given_alone(name: str, seed: int, kind: str) -> None:
    house, rng = tiny_house(name), random.Random(seed)
    cases = rng.sample(house.cases, 9)
    lengths = [rng.randint(1, len(case.answer.tokens)) for case in cases]
    run_padded(house, cases, lengths, kind, rng.choice([1, 2, 4, 9]))


@kinds
@pytest.mark.parametrize("pad_id", ["0", "one of the prompt's own ids", "an end id"])
def test_the_padding_id_does_not_matter(kind: str, pad_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    house = tiny_house("qwen2, two end ids")
    cases = sorted(house.cases, key=lambda case: len(case.prompt))[2:8]
    ids = {"0": 0, "one of the prompt's own ids": cases[0].prompt[0], "an end id": 3}
    monkeypatch.setattr("minicb.padding.PAD_ID", ids[pad_id])
    run_padded(house, cases, [len(case.answer.tokens) for case in cases], kind, 3)


@kinds
def test_the_real_model_answers_in_padded_batches_as_it_answers_alone(kind: str) -> None:
    house = real_house()
    cases = [case for case in house.cases if len(case.prompt) <= 80]
    run_padded(house, cases, [2 + i % 5 for i in range(len(cases))], kind, 4)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Batch, Tensor]]:
    """Every rectangle that goes through a model, with the hidden states that come out."""
    seen: list[tuple[Batch, Tensor]] = []
    forward: Callable[..., Tensor] = Model.forward

    def record(self: Model, batch: Batch, *rest: Any) -> Tensor:
        seen.append((batch, forward(self, batch, *rest)))
        return seen[-1][1]

    monkeypatch.setattr(Model, "forward", record)
    return seen


def run_lengths(model: Model, kind: Any, batch_size: int, *asked: tuple[int, int]) -> list[StepRecord]:
    """Run random prompts of (length, max_tokens); returns the steps."""
    rng = random.Random(0)
    limits = Limits(64, 200, frozenset())
    requests = [
        open_request(str(i), random_ids(rng, n), SamplingParams(max_tokens=new), limits, None, seed=0, now=0.0)
        for i, (n, new) in enumerate(asked)
    ]
    runner = PaddedRunner(model, kind=kind, batch_size=batch_size, max_model_len=200)
    runner.run(requests)
    return runner.records


@kinds
def test_a_padded_row_counts_its_own_positions(kind: str, passes: list[tuple[Batch, Tensor]]) -> None:
    lengths = (3, 7, 12)
    run_lengths(random_model(), kind, 3, *((n, 4) for n in lengths))
    prompts, *decodes = (batch.positions.view(3, -1) for batch, _ in passes)
    for row, n in zip(prompts.tolist(), lengths, strict=True):
        assert row[12 - n :] == list(range(n))
    assert [step.flatten().tolist() for step in decodes] == [[n + t for n in lengths] for t in range(3)]


@kinds
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_padding_stays_finite_though_it_may_see_next_to_nothing(
    kind: str, dtype: str, passes: list[tuple[Batch, Tensor]]
) -> None:
    run_lengths(random_model(std=0.2, dtype=dtype), kind, 4, (20, 3), (19, 2), (15, 3), (1, 1), (9, 2))
    assert all(hidden.isfinite().all() for _, hidden in passes)


def test_a_prompt_of_100_joining_seven_decoders_wastes_693_of_800_slots() -> None:
    records = run_lengths(random_model(), "dynamic", 8, (3, 1), *[(3, 5)] * 7, (100, 2))
    joined = records[1]
    assert (joined.token_slots, joined.useful_slots) == (800, 107)
    assert joined.token_slots - joined.useful_slots == 693


def test_a_static_batch_drags_its_finished_rows_along() -> None:
    records = run_lengths(random_model(), "static", 2, (2, 1), (5, 4))
    assert [(r.token_slots, r.useful_slots) for r in records] == [(10, 7), (2, 1), (2, 1), (2, 1)]
    assert [(r.score_cells, r.useful_cells) for r in records] == [(50, 18), (12, 6), (14, 7), (16, 8)]


def test_a_dynamic_batch_refills_the_place_of_a_finished_row_at_once() -> None:
    records = run_lengths(random_model(), "dynamic", 2, (2, 1), (5, 4), (3, 2))
    assert [(r.token_slots, r.useful_slots) for r in records] == [(10, 7), (6, 4), (2, 2), (1, 1)]


def test_static_and_dynamic_batches_of_one_row_waste_nothing() -> None:
    for kind in ("static", "dynamic"):
        records = run_lengths(random_model(), kind, 1, (2, 3), (5, 2), (9, 1))
        assert all(r.token_slots == r.useful_slots for r in records)
        assert sum(r.useful_slots for r in records) == 2 + 2 + 5 + 1 + 9


# ---- the padded baseline guards its door too


def test_a_request_too_long_for_the_padded_cache_is_refused_with_the_numbers() -> None:
    house = tiny_house("llama, 9 heads on 3")
    runner = PaddedRunner(house.model, max_model_len=20)
    with pytest.raises(ValueError, match=r"'0' may grow to 301 tokens.*max_model_len is 20"):
        runner.run(padded_requests([house.cases[2]], [1], house.model))


def test_two_padded_requests_may_not_share_an_id() -> None:
    house = tiny_house("llama, 9 heads on 3")
    (request,) = padded_requests([house.cases[0]], [1], house.model)
    with pytest.raises(ValueError, match="same request_id"):
        PaddedRunner(house.model, max_model_len=20).run([request, request])


def test_a_padded_run_that_broke_leaves_its_slots_free(monkeypatch: pytest.MonkeyPatch) -> None:
    house = tiny_house("llama, 9 heads on 3")
    runner = PaddedRunner(house.model, batch_size=2, max_model_len=LONGEST_PROMPT + LONGEST_ANSWER)
    cases, lengths = house.cases[3:6], [4, 4, 4]
    with monkeypatch.context() as broken:
        broken.setattr(Model, "logits", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            runner.run(padded_requests(cases, lengths, house.model))
    others = padded_requests(cases, lengths, house.model)
    for request in others:
        request.request_id = f"another {request.request_id}"
    outputs = runner.run(others)
    for case, output in zip(cases, outputs, strict=True):
        assert_same(output.token_ids, case.answer.tokens[:4], case.answer.margins)
