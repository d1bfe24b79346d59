"""Same seed, same run, to the byte; and an answer that depends on its own seed, prompt and parameters alone.

Most of this runs on the scripted model, whose logits are exact, so no difference can be blamed on rounding.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from minicb.engine import Engine
from minicb.metrics import write_trace
from minicb.outputs import RequestOutput
from minicb.request import Limits, open_request
from minicb.sampling import Sampled, SamplingParams, sample
from minicb.weights import random_model, tiny_config
from tests.harness.case import draw_case
from tests.harness.driver import Driver
from tests.harness.scripted import ScriptedModel, scripted_config
from tests.harness.threads import one_thread
from tests.harness.words import Words

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
PARAMS = SamplingParams(temperature=0.9, top_p=0.95, seed=42, max_tokens=12, logprobs=2, stop=["bc"])
NEIGHBOURS = (
    ([7], SamplingParams(max_tokens=20)),
    ([8] * 11, SamplingParams(temperature=1.0, max_tokens=9)),
    ([2, 2], SamplingParams(temperature=2.0, top_k=3, seed=42, max_tokens=15)),
    ([9, 9, 9], SamplingParams(repetition_penalty=2.0, min_tokens=3, max_tokens=5, logprobs=0)),
)


@pytest.fixture(autouse=True, scope="module")
def one_core() -> Iterator[None]:
    with one_thread():
        yield


def make_engine(kind: str = "scripted", **options: Any) -> Engine:
    limits = {"max_num_batched_tokens": 64, "max_num_seqs": 8, "max_model_len": 40, "kv_cache_memory_bytes": 1 << 22}
    model = ScriptedModel(scripted_config(64, 96)) if kind == "scripted" else random_model(std=0.4, dtype="float64")
    return Engine(model, Words(), **{**limits, **options})  # type: ignore[arg-type]


def drain(engine: Engine) -> dict[str, RequestOutput]:
    outputs = {}
    while engine.has_unfinished_requests:
        outputs.update({event.request_id: event.output for event in engine.step() if event.output})
    return outputs


def answer(
    engine: Engine,
    *,
    before: Sequence[Any] = (),
    after: Sequence[Any] = (),
    delay: int = 0,
    params: SamplingParams = PARAMS,
) -> RequestOutput:
    """What the request gets among these neighbours, `delay` steps after the first of them."""
    for prompt, own in before:
        engine.add_request(prompt, own)
    for _ in range(delay):
        engine.step()
    engine.add_request(PROMPT, params, "me")
    for prompt, own in after:
        engine.add_request(prompt, own)
    return drain(engine)["me"]


@pytest.mark.parametrize("seed", range(12))
def test_the_same_seed_writes_the_same_trace_byte_for_byte(seed: int, tmp_path: Path) -> None:
    case = next(c for n in itertools.count(100 * seed) if (c := draw_case(n)).engine == "continuous")
    for name in ("first", "second"):
        driver = Driver(case)
        driver.run()
        write_trace(tmp_path / name, driver.records)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


@pytest.mark.parametrize("kind", ["scripted", "tiny"])
@pytest.mark.parametrize("budget", [1, 2, 5, 13, 64])
@pytest.mark.parametrize("company", ["alone", "first", "last", "later", "beside its twin"])
def test_seed_prompt_and_parameters_fix_a_sampled_answer(kind: str, budget: int, company: str) -> None:
    alone = answer(make_engine(kind))
    among = {
        "alone": {},
        "first": {"after": NEIGHBOURS},
        "last": {"before": NEIGHBOURS},
        "later": {"before": NEIGHBOURS, "delay": 5},
        "beside its twin": {"before": [(PROMPT, PARAMS)], "after": NEIGHBOURS},
    }[company]
    here = answer(make_engine(kind, max_num_batched_tokens=budget, max_num_seqs=5), **among)  # type: ignore[arg-type]
    assert here.token_ids == alone.token_ids
    assert here.text == alone.text
    assert (here.finish_reason, here.stop_reason) == (alone.finish_reason, alone.stop_reason)
    for one, other in zip(here.logprobs or (), alone.logprobs or (), strict=True):
        assert one.chosen == pytest.approx(other.chosen, abs=1e-6)


def test_both_back_ends_draw_the_same_answer() -> None:
    texts = {answer(make_engine("tiny", attention=name), before=NEIGHBOURS).token_ids for name in ("auto", "reference")}
    assert len(texts) == 1


def test_the_stream_of_a_seed_never_changes() -> None:
    """People keep seeds in notebooks and papers: a new version has to draw the same answer."""
    assert answer(make_engine(), params=SamplingParams(temperature=1.0, seed=42, max_tokens=8)).token_ids == (
        37, 50, 13, 62, 42, 60, 1, 47,
    )  # fmt: skip


def test_two_requests_with_one_seed_and_prompt_answer_alike() -> None:
    engine = make_engine()
    for name in "ab":
        engine.add_request(PROMPT, PARAMS, name)
    outputs = drain(engine)
    assert outputs["a"].token_ids == outputs["b"].token_ids


def test_without_a_seed_every_answer_is_drawn_anew() -> None:
    engine = make_engine(max_num_seqs=3)
    for _ in range(20):
        engine.add_request(PROMPT, SamplingParams(temperature=1.0, max_tokens=12))
    assert len({output.token_ids for output in drain(engine).values()}) == 20


def test_without_any_seed_two_engines_differ_and_with_one_they_agree() -> None:
    def draw(seed: int | None) -> tuple[int, ...]:
        return answer(make_engine(seed=seed), params=SamplingParams(temperature=1.0, max_tokens=12)).token_ids

    assert draw(7) == draw(7)
    assert len({draw(None), draw(None), draw(7), draw(8)}) == 4


def test_the_random_numbers_of_others_are_left_alone() -> None:
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 - the global stream is what is looked at
    random.seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    answer(make_engine("tiny"), before=NEIGHBOURS)
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_a_random_model_does_not_depend_on_the_global_stream() -> None:
    first = random_model(tiny_config(layers=1), seed=5)
    torch.manual_seed(99)
    second = random_model(tiny_config(layers=1), seed=5)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_a_neighbour_with_penalties_does_not_round_the_logits_of_others() -> None:
    close = torch.tensor([[1.0, 1.0 + 1e-12], [1.0, 2.0]], dtype=torch.float64)
    limits = Limits(vocab_size=2, max_model_len=8, end_ids=frozenset())
    plain, penalised = (
        open_request(name, [0], SamplingParams(repetition_penalty=penalty, max_tokens=1), limits, None, seed=0, now=0.0)
        for name, penalty in (("plain", 1.0), ("penalised", 2.0))
    )
    alone = sample(close[:1], [plain])
    assert alone == sample(close, [plain, penalised])[:1] == [Sampled(1)]
