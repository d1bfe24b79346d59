"""From logits to a token: what each parameter means, held to plain numpy, to transformers and to vLLM's definitions.

The numpy versions below are written from the definitions, one row at a time; they share nothing with the core.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_ins import alone, drain, outputs, small_engine
from torch import Tensor

from minicb import sampling
from minicb.engine import Engine
from minicb.outputs import RequestOutput
from minicb.sampling import Sampled, SamplingParams, sample, uniform
from minicb.weights import random_model, tiny_config

pytestmark = pytest.mark.usefixtures("one_thread")
INF = float("inf")
ENDS = frozenset({5, 9})


@dataclass
class Row:
    """As much of a request as sampling may know."""

    params: SamplingParams
    prompt: Sequence[int] = (1, 2, 3)
    answer: Sequence[int] = ()
    seed: int = 0
    ending_ids: frozenset[int] = ENDS
    tokens: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = [*self.prompt, *self.answer]
        self.seed = self.params.seed if self.params.seed is not None else self.seed

    @property
    def num_output_tokens(self) -> int:
        return len(self.answer)

    @property
    def output_token_ids(self) -> list[int]:
        return list(self.answer)


def row(prompt: Sequence[int] = (1, 2, 3), answer: Sequence[int] = (), **params: Any) -> Row:
    return Row(SamplingParams(**params), prompt, answer)


def choose(logits: Tensor, *rows: Row) -> list[int]:
    """The tokens of these rows; a row that could not be sampled raises its error."""
    chosen = sample(logits, rows)
    for one in chosen:
        if isinstance(one, Exception):
            raise one
    return [one.token_id for one in chosen if isinstance(one, Sampled)]


def noise(rows: int = 1, vocab: int = 40, seed: int = 0, spread: float = 2.0) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * spread


# ---- the values at the door


@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [
        *[("temperature", v, "at least 0") for v in (-0.1, -1, math.nan, INF, -INF, "1", None, True, 10**400)],
        *[("top_k", v, "at least 0") for v in (-1, 1.5, "3", None, False)],
        *[("top_p", v, "above 0.0 and at most 1") for v in (0, -0.5, 1.5, math.nan, "x")],
        *[("min_p", v, "at least 0.0 and at most 1") for v in (-0.01, 1.01, math.nan, None)],
        *[("repetition_penalty", v, "above 0") for v in (0, -1.0, math.nan, INF)],
        *[("presence_penalty", v, "at least -2.0 and at most 2") for v in (-2.1, 2.1, math.nan)],
        *[("frequency_penalty", v, "at least -2.0 and at most 2") for v in (-2.1, 2.1, INF)],
        *[("max_tokens", v, "at least 1") for v in (0, -1, 1.0, "5", True)],
        *[("min_tokens", v, "at least 0") for v in (-1, 0.5, None)],
        *[("logprobs", v, "at least 0") for v in (-1, 2.5, True)],
        *[("seed", v, "at most 18446744073709551615") for v in (2**64, -(2**63) - 1, 1.5, "s")],
        *[("stop", v, "texts that are not empty") for v in ("", ["a", ""], [1], b"ab")],
        ("stop", 5, "a list"),
        *[("stop_token_ids", v, "whole numbers") for v in ([1.5], ["a"], [True], "12")],
        ("stop_token_ids", 5, "a list"),
        *[("ignore_eos", v, "True or False") for v in (1, None, "yes")],
        *[("include_stop_str_in_output", v, "True or False") for v in (0, None)],
    ],
)
def test_a_value_out_of_range_is_refused_by_name_and_limit(name: str, value: object, limit: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be .*{limit}") as refused:
        SamplingParams(**{name: value})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0}, {"temperature": 100.0}, {"top_k": 0}, {"top_p": 1}, {"top_p": 1e-9}, {"min_p": 0},
        {"min_p": 1}, {"presence_penalty": -2}, {"frequency_penalty": 2}, {"repetition_penalty": 1e-3},
        {"max_tokens": 1}, {"max_tokens": None}, {"min_tokens": 3, "max_tokens": 3}, {"logprobs": 0},
        {"seed": -(2**63)}, {"seed": 2**64 - 1}, {"seed": 0}, {"stop": None}, {"stop_token_ids": None},
        {"top_k": 10**400},
    ],
)  # fmt: skip
def test_values_at_the_limits_are_taken(params: dict[str, Any]) -> None:
    SamplingParams(**params)


def test_more_min_tokens_than_max_tokens_is_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match="min_tokens 5 is more than max_tokens 4"):
        SamplingParams(min_tokens=5, max_tokens=4)


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(TypeError, match="temprature"):
        SamplingParams(temprature=1.0)


def test_stop_texts_and_ids_may_come_one_or_several() -> None:
    assert SamplingParams(stop="ab").stop == ("ab",)
    assert SamplingParams(stop=["a", "b"], stop_token_ids=[1, 2]).stop_token_ids == (1, 2)


# ---- greedy


def test_temperature_0_is_argmax_and_of_equal_ones_the_lowest_id() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0, 1.0], [2.0, 0.0, 0.0, 2.0], [-1.0, -INF, -INF, -1.0]])
    assert choose(logits, row(), row(), row()) == [1, 0, 0]


@pytest.mark.parametrize("temperature", [0, 1e-300, 1e-12, 1e-6, 9.9e-6])
def test_a_tiny_temperature_is_argmax(temperature: float) -> None:
    logits = noise(8, spread=100.0)
    assert choose(logits, *[row(temperature=temperature) for _ in range(8)]) == logits.argmax(-1).tolist()


@pytest.mark.parametrize("temperature", [1e-5, 1e-4, 1e-3])
def test_a_small_temperature_is_finite_and_argmax_where_the_best_is_well_ahead(temperature: float) -> None:
    logits = noise(20)
    ahead = logits.topk(2).values.diff().abs().flatten() > 100 * temperature
    assert ahead.sum() > 10
    chosen = torch.tensor(choose(logits, *[row(temperature=temperature, seed=i) for i in range(20)]))
    assert torch.equal(chosen[ahead], logits.argmax(-1)[ahead])


@pytest.mark.parametrize("params", [{"top_p": 1e-9}, {"top_k": 1}, {"min_p": 1.0}])
def test_the_tightest_filter_leaves_the_likeliest(params: dict[str, Any]) -> None:
    logits = noise(8)
    assert choose(logits, *[row(temperature=2.0, seed=i, **params) for i in range(8)]) == logits.argmax(-1).tolist()


def test_a_greedy_row_beside_sampled_ones_is_argmax_even_with_minus_infinity_in_it() -> None:
    logits = noise(3)
    logits[1, 10:] = -INF
    chosen = choose(logits, row(temperature=1.0, seed=1), row(), row(temperature=0.5, top_p=0.5, seed=2))
    assert chosen[1] == int(logits[1].argmax()) < 10


def test_a_token_of_minus_infinity_is_never_drawn() -> None:
    logits = torch.full((1, 50), -INF)
    logits[0, [3, 30]] = torch.tensor([0.0, 1.0])
    for params in ({}, {"top_k": 10}, {"top_p": 0.99}, {"min_p": 0.01}):
        drawn = {choose(logits, row(temperature=5.0, seed=s, **params))[0] for s in range(60)}
        assert drawn == {3, 30}, params


# ---- the draw, against numpy


def expected_shares(logits: Sequence[float], p: SamplingParams) -> dict[int, float]:
    """The distribution that the definitions give: temperature, then top-k, then top-p and min-p of what is left."""
    scaled = np.array(logits, dtype=np.float64) / p.temperature
    order = sorted(range(len(scaled)), key=lambda i: (-scaled[i], i))[: p.top_k or None]
    weight = {i: math.exp(scaled[i] - scaled[order[0]]) for i in order}
    total = sum(weight.values())
    kept, before = {}, 0.0
    for i in order:
        share = weight[i] / total
        if i == order[0] or (before < p.top_p and weight[i] >= p.min_p):
            kept[i] = share
        before += share
    return {i: share / sum(kept.values()) for i, share in kept.items()}


def expected_token(logits: Sequence[float], p: SamplingParams, u: float) -> tuple[int, float]:
    """The token at u of the running sum, in the order of the ids or, if the row is filtered, of the probabilities;
    and how far u is from the nearest border, for a border may fall either way by rounding."""
    shares = expected_shares(logits, p)
    filtered = p.top_k or p.top_p < 1 or p.min_p
    sums = np.cumsum([shares[i] for i in (shares if filtered else sorted(shares))])
    at = min(int(np.searchsorted(sums, u, side="right")), len(sums) - 1)
    return list(shares if filtered else sorted(shares))[at], float(np.abs(sums - u).min())


FILTERS = [
    {}, {"top_k": 1}, {"top_k": 7}, {"top_k": 40}, {"top_p": 0.1}, {"top_p": 0.9}, {"min_p": 0.05}, {"min_p": 0.4},
    {"top_k": 9, "top_p": 0.7}, {"top_k": 9, "top_p": 0.7, "min_p": 0.1}, {"top_p": 0.95, "min_p": 0.02},
]  # fmt: skip


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_the_draw_is_the_one_that_the_definitions_give(filters: dict[str, Any], temperature: float) -> None:
    logits, checked = noise(30, seed=3), 0
    rows = [row(temperature=temperature, seed=100 + i, answer=[4] * (i % 5), **filters) for i in range(30)]
    for i, chosen in enumerate(choose(logits, *rows)):
        u = uniform(100 + i, len(rows[i].tokens))
        wanted, distance = expected_token(logits[i].tolist(), rows[i].params, u)
        if distance > 1e-5:
            assert chosen == wanted, (i, u)
            checked += 1
    assert checked > 25


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_over_many_seeds_every_token_comes_as_often_as_its_share_says(filters: dict[str, Any]) -> None:
    """Chi-square over 4,000 fixed seeds; the limit is six standard deviations, and any wrong filter is far over it."""
    draws, logits = 4_000, noise(vocab=12, seed=1)
    rows = [row(temperature=1.0, seed=seed, **filters) for seed in range(draws)]
    counts = Counter(choose(logits.expand(draws, -1), *rows))
    shares = expected_shares(logits[0].tolist(), rows[0].params)
    assert set(counts) <= set(shares), "a token that was filtered away was drawn"
    chi = sum((counts[i] - draws * share) ** 2 / (draws * share) for i, share in shares.items())
    freedom = len(shares) - 1
    assert chi <= freedom + 6 * math.sqrt(2 * freedom) + 1e-9


def test_successive_positions_of_one_seed_are_spread_evenly_too() -> None:
    numbers = np.array([uniform(42, position) for position in range(20_000)])
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert np.float32(numbers.max()) < 1, "rounded to float32 it must stay below 1"
    counts, _ = np.histogram(numbers, bins=50, range=(0, 1))
    assert ((counts - 400) ** 2 / 400).sum() < 49 + 6 * math.sqrt(98)
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.03


@pytest.mark.parametrize("u", [0.0, 0.5, 1 - 2**-24, 1.0])  # the last one by rounding only
def test_rounding_never_picks_a_token_without_a_share(u: float) -> None:
    shares = torch.zeros(1, 50_000)
    shares[0, 100:40_000] = torch.rand(39_900, generator=torch.Generator().manual_seed(0)) / 20_000
    chosen = int(sampling.pick(shares, torch.tensor([u]))[0])
    assert float(shares[0, chosen]) > 0


# ---- the filters, against transformers


def kept_by_transformers(logits: Tensor, *warpers: Any) -> set[int]:
    scores = logits
    for warper in warpers:
        scores = warper(torch.zeros(1, 1, dtype=torch.long), scores)
    return set(torch.isfinite(scores[0]).nonzero().flatten().tolist())


def kept_by_us(logits: Tensor, p: SamplingParams, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The tokens that have a share when the number is drawn."""
    seen: list[Tensor] = []
    pick = sampling.pick

    def watching(shares: Tensor, u: Tensor) -> Tensor:
        seen.append(shares)
        return pick(shares, u)

    monkeypatch.setattr(sampling, "pick", watching)
    choose(logits, Row(p))
    order = logits.sort(dim=-1, descending=True, stable=True).indices[0]
    return set(order[seen[-1][0] > 0].tolist())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("filters", FILTERS[1:], ids=str)
def test_the_filters_keep_the_tokens_that_transformers_keeps(
    filters: dict[str, Any], temperature: float, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.generation import logits_process as hf

    logits = noise(seed=10 + seed)
    warpers: list[Any] = [hf.TemperatureLogitsWarper(temperature)]
    makers: dict[str, Callable[[Any], Any]] = {
        "top_k": hf.TopKLogitsWarper, "top_p": hf.TopPLogitsWarper, "min_p": hf.MinPLogitsWarper
    }  # fmt: skip
    warpers += [make(filters[name]) for name, make in makers.items() if name in filters]
    ours = kept_by_us(logits, SamplingParams(temperature=temperature, **filters), monkeypatch)
    assert ours == kept_by_transformers(logits, *warpers)


def test_the_repetition_penalty_is_that_of_transformers() -> None:
    from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

    logits = noise(seed=7)
    tokens = [3, 3, 17, 20, 39]
    for penalty in (0.5, 1.3, 4.0):
        theirs = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([tokens]), logits.clone())
        ours = logits[0].clone()
        sampling.adjust(ours, row(tokens[:2], tokens[2:], repetition_penalty=penalty))
        assert torch.allclose(ours, theirs[0])


# ---- penalties, by vLLM's definition


@settings(max_examples=60, deadline=None)
@given(
    prompt=st.lists(st.integers(0, 19), min_size=1, max_size=8),
    answer=st.lists(st.integers(0, 19), max_size=12),
    repetition=st.sampled_from([0.7, 1.0, 1.2, 2.0]),
    presence=st.sampled_from([-1.5, 0.0, 0.4, 2.0]),
    frequency=st.sampled_from([-0.5, 0.0, 0.3, 2.0]),
)
def test_penalties_follow_the_definition(
    prompt: list[int], answer: list[int], repetition: float, presence: float, frequency: float
) -> None:
    """Repetition for ids of prompt and answer: positive logits are divided, others multiplied. Then, for ids of the
    answer alone, presence once and frequency for each time."""
    logits = noise(vocab=20, seed=len(prompt) + 31 * len(answer))[0]
    wanted = logits.double().tolist()
    for i in {*prompt, *answer}:
        wanted[i] = wanted[i] / repetition if wanted[i] > 0 else wanted[i] * repetition
    for i in set(answer):
        wanted[i] -= presence + frequency * answer.count(i)
    changed = logits.clone()
    sampling.adjust(
        changed,
        row(prompt, answer, repetition_penalty=repetition, presence_penalty=presence, frequency_penalty=frequency),
    )
    assert np.allclose(changed.tolist(), wanted, atol=1e-5)


def test_a_penalty_of_one_row_leaves_its_neighbours_alone() -> None:
    logits = noise(3, seed=4)
    best = logits.argmax(-1).tolist()
    logits[:, 1] += logits[:, 1].abs() + 20  # everybody's favourite; the second row has it in its prompt
    penalised = row((1,), repetition_penalty=1000.0)
    before = logits.clone()
    assert choose(logits, row((1,)), penalised, row((1,))) == [1, best[1], 1]
    assert torch.equal(logits, before), "the model's logits are not changed in place"


# ---- no ending before min_tokens


@pytest.mark.parametrize("prompt_length", [1, 3, 50])
def test_every_end_id_is_blocked_until_min_tokens_and_free_at_once_after(prompt_length: int) -> None:
    logits = torch.zeros(1, 12)
    logits[0, [5, 9, 11]] = torch.tensor([9.0, 8.0, 7.0])  # two of the model's own, one of the user's
    ends, prompt = frozenset({5, 9, 11}), [0] * prompt_length
    for written in range(7):
        one = Row(SamplingParams(min_tokens=4, stop_token_ids=[11]), prompt, [0] * written, ending_ids=ends)
        assert (choose(logits, one)[0] in ends) == (written >= 4), written


def test_ignore_eos_with_min_tokens_blocks_no_other_id() -> None:
    """With no end id there is nothing to block; an index of -1 would block the vocabulary's last id."""
    logits = torch.zeros(1, 12)
    logits[0, 11] = 5.0
    one = Row(SamplingParams(min_tokens=4, ignore_eos=True), ending_ids=frozenset())
    assert choose(logits, one) == [11]


def test_when_every_id_would_end_the_answer_the_row_fails_and_not_its_neighbour() -> None:
    everything = Row(SamplingParams(min_tokens=2), ending_ids=frozenset(range(40)))
    for one in (everything, Row(SamplingParams(min_tokens=2, temperature=1.0), ending_ids=frozenset(range(40)))):
        logits = noise(2)
        bad, good = sample(logits, [one, row()])
        assert isinstance(bad, FloatingPointError)
        assert isinstance(good, Sampled)
        assert good.token_id == int(logits[1].argmax())


# ---- logprobs


@pytest.mark.parametrize(
    "params",
    [
        {}, {"temperature": 0.5, "seed": 1}, {"temperature": 2.0, "seed": 1}, {"repetition_penalty": 3.0},
        {"temperature": 1.0, "top_k": 2, "seed": 1}, {"temperature": 1.0, "top_p": 0.1, "seed": 1}, {"min_tokens": 5},
    ],
    ids=str,
)  # fmt: skip
def test_logprobs_are_those_of_the_raw_logits_whatever_the_parameters(params: dict[str, Any]) -> None:
    logits = noise(1, seed=2)
    raw = torch.log_softmax(logits[0], dim=-1)
    (one,) = sample(logits, [row(logprobs=4, **params)])
    assert isinstance(one, Sampled)
    assert one.logprobs is not None
    assert one.logprobs.chosen == pytest.approx(float(raw[one.token_id]), abs=1e-6)
    assert list(one.logprobs.top)[:4] == raw.topk(4).indices.tolist()
    for i, value in one.logprobs.top.items():
        assert value == pytest.approx(float(raw[i]), abs=1e-6)


def test_the_chosen_token_is_always_among_the_logprobs() -> None:
    logits = torch.zeros(1, 40)
    logits[0, 7] = 3.0
    for seed in range(30):
        for count in (0, 1):
            (one,) = sample(logits, [row(temperature=5.0, seed=seed, logprobs=count)])
            assert isinstance(one, Sampled)
            assert one.logprobs is not None
            assert one.logprobs.top[one.token_id] == one.logprobs.chosen
            assert len(one.logprobs.top) == max(count, 1) + (one.token_id != 7 and count == 1)


def test_without_the_wish_there_are_no_logprobs() -> None:
    (one,) = sample(noise(), [row()])
    assert isinstance(one, Sampled)
    assert one.logprobs is None


# ---- one row's fault


@pytest.mark.parametrize("value", [math.nan, INF])
def test_a_row_that_is_not_finite_fails_alone(value: float) -> None:
    logits = noise(3)
    logits[1, 4] = value
    rows = [row(temperature=1.0, seed=3), row(), row(temperature=1.0, top_k=3, seed=4)]
    first, bad, last = sample(logits, rows)
    assert isinstance(bad, FloatingPointError)
    assert isinstance(first, Sampled)
    assert isinstance(last, Sampled)
    assert [first.token_id, last.token_id] == choose(logits[[0, 2]], rows[0], rows[2])


# ---- neighbours


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_no_neighbour_changes_a_seeded_draw(filters: dict[str, Any]) -> None:
    """Neither another way of sampling beside it nor another place in the batch."""
    logits, own = noise(4, seed=5), row(temperature=1.3, seed=42, **filters)
    wanted = choose(logits[:1], own)
    company = [row(), *[row(temperature=0.8, seed=9, **other) for other in FILTERS], row(temperature=1.0, min_tokens=3)]
    for neighbour in company:
        for place in range(3):
            rows = [neighbour] * place + [own] + [neighbour] * (2 - place)
            batch = torch.stack([logits[0] if one is own else logits[1 + i] for i, one in enumerate(rows)])
            assert choose(batch, *rows)[place] == wanted[0], (neighbour.params, place)


# ---- in the engine


MODEL = random_model(tiny_config(vocab=64), std=0.2, dtype="float64")
OTHERS = [
    SamplingParams(max_tokens=6), SamplingParams(temperature=1.0, max_tokens=9),
    SamplingParams(temperature=0.7, top_p=0.9, seed=1, max_tokens=7),
    SamplingParams(temperature=1.0, top_k=3, max_tokens=5),
]  # fmt: skip


def beside(params: SamplingParams, place: int, budget: int) -> RequestOutput:
    """The request's answer with others before and after it."""
    engine = small_engine(MODEL, None, max_num_batched_tokens=budget)
    for i, other in enumerate([*OTHERS[:place], None, *OTHERS[place:]]):
        name = "own" if other is None else str(i)
        engine.add_request([7, 8, 9, 10, 11] if other is None else [3 + i, 4, 5], other or params, name)
    return outputs(drain(engine))["own"]


@pytest.mark.parametrize("place", [0, 2, 4])
@pytest.mark.parametrize("budget", [6, 64])
@pytest.mark.parametrize("filters", [{}, {"top_p": 0.9}, {"top_k": 5}, {"repetition_penalty": 1.2}], ids=str)
def test_a_seed_fixes_the_answer_whatever_runs_beside_it(filters: dict[str, Any], budget: int, place: int) -> None:
    params = SamplingParams(temperature=1.0, seed=42, max_tokens=8, ignore_eos=True, **filters)
    assert beside(params, place, budget).token_ids == alone(MODEL, [7, 8, 9, 10, 11], params, decode=None).token_ids


def test_penalties_count_the_requests_own_ids_only() -> None:
    engine = small_engine(MODEL, None)
    plain, hard = SamplingParams(max_tokens=12), SamplingParams(frequency_penalty=2.0, max_tokens=12)
    for name, params in (("a", plain), ("b", hard), ("c", plain)):
        engine.add_request([7, 8, 9], params, name)
    ended = outputs(drain(engine))
    for name, params in (("a", plain), ("b", hard), ("c", plain)):
        assert ended[name].token_ids == alone(MODEL, [7, 8, 9], params, decode=None).token_ids
    assert ended["a"].token_ids != ended["b"].token_ids


def test_unseeded_requests_differ_and_one_engine_seed_fixes_them_all() -> None:
    def answers(seed: int | None) -> list[tuple[int, ...]]:
        engine = Engine(MODEL, kv_cache_memory_bytes=1 << 22, seed=seed)
        for i in range(20):
            engine.add_request([1, 2, 3], SamplingParams(temperature=2.0, max_tokens=5), f"r{i}")
        return [output.token_ids for output in outputs(drain(engine)).values()]

    assert len(set(answers(None))) > 10
    assert answers(7) == answers(7) != answers(8)
