"""Chapter 08's runs in ticks, and the budget that is measured and recommended."""

from __future__ import annotations

import random

import pytest

from minicb import Engine, SamplingParams
from minicb.bench.budget import Try, recommend, try_budgets
from minicb.bench.clock import TokenClock
from minicb.course.measuring import LATE, serve_in_ticks, token_times, tries_in_ticks
from minicb.weights import random_model


def test_the_clock_counts_the_tokens_that_the_engine_computes() -> None:
    clock, records = TokenClock(per_step=5), []
    engine = Engine(random_model(), attention=clock, clock=clock.now, max_model_len=32, on_step=records.append)
    engine.add_request([1, 2, 3], SamplingParams(max_tokens=4, ignore_eos=True))
    while engine.has_unfinished_requests:
        engine.step()
    assert clock.now() == sum(record.token_slots for record in records) + 5 * len(records)
    assert [record.duration_s for record in records] == [8, 6, 6, 6]


@pytest.mark.parametrize("seed", range(5))
def test_queue_and_prefill_are_the_ttft_and_with_the_gaps_the_whole(seed: int) -> None:
    dice = random.Random(seed)
    arrivals = {name: (dice.randrange(40), ids, length) for name, (_, ids, length) in LATE.items()}
    outputs, records = serve_in_ticks(arrivals, budget=dice.randint(2, 20), seats=dice.randint(1, 3), per_step=seed)
    for name, output in outputs.items():
        m, times = output.metrics, token_times(records, name)
        began = next(r.start_s for r in records if any(e.request_id == name for e in r.entries))
        assert m.queue_s is not None
        assert m.ttft_s == m.queue_s + (times[0] - began)
        assert m.e2e_s == m.ttft_s + sum(m.itl_s)
        assert len(m.itl_s) == m.num_output_tokens - 1 == len(times) - 1


def test_twice_the_budget_gives_the_prompt_its_token_sooner_and_the_others_theirs_later() -> None:
    tries = tries_in_ticks((4, 8, 16, 32, 64), prompt_tokens=60, streams=3)
    assert [one.steps for one in tries] == [-(-60 // (one.budget - 3)) for one in tries]
    assert [one.ttft_s for one in tries] == [60 + 3 * one.steps for one in tries]
    assert [one.longest_gap_s for one in tries] == [4, 8, 16, 32, 63]


def test_the_recommended_budget_is_the_largest_that_keeps_the_limit() -> None:
    tries = [Try(8, 9.0, 1.0, 4), Try(32, 5.0, 3.0, 1), Try(16, 7.0, 2.0, 2)]
    assert recommend(tries, limit_s=2.5).budget == 16
    assert recommend(tries, limit_s=0.5).budget == 8, "none keeps it: the smallest"


def test_a_budget_that_leaves_nothing_for_the_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="a budget of 3 leaves no token a step for the prompt beside 3 streams"):
        try_budgets(random_model(), (8, 3), streams=3)
