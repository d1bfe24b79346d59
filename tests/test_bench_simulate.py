"""The simulator's parts: arrivals, clocks, latencies, and the simulation against formulas and against the engine."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from stand_ins import Scripted, digest, small_engine

from minicb.bench.arrivals import (
    PUBLISHED,
    SHARES,
    Job,
    arrival_times,
    at_share,
    file_sha1,
    published_workload,
    read_azure,
    sped_up,
    uniform_lengths,
    workload,
)  # fmt: skip
from minicb.bench.latency import (
    Slo,
    alone,
    e2e,
    gaps,
    goodput,
    highest_rate,
    jain,
    normalised,
    service_gap,
    spread,
    tpot,
    ttft,
)  # fmt: skip
from minicb.bench.receipts import r0, r2
from minicb.bench.simulate import simulate
from minicb.bench.steptime import (
    LLAMA_2_7B_ON_A10G,
    LLAMA_3_8B_ON_A100,
    Constant,
    Load,
    fit_clock,
    load_of,
    load_of_record,
    non_negative,
)  # fmt: skip
from minicb.metrics import StepRecord
from minicb.request import Request
from minicb.sampling import SamplingParams

pytestmark = pytest.mark.usefixtures("one_thread")


# ---- arrivals


def test_gaps_have_the_burstiness_that_was_asked_for() -> None:
    for burstiness in (0.25, 1.0, 4.0):
        times = arrival_times(20_000, 5.0, burstiness=burstiness, seed=3)
        gaps = [b - a for a, b in itertools.pairwise([0.0, *times])]
        assert times[-1] == pytest.approx(20_000 / 5.0)
        assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(1 / math.sqrt(burstiness), rel=0.03)


def test_a_seed_fixes_arrivals_and_lengths() -> None:
    lengths = uniform_lengths((3, 9), (1, 4))
    assert (
        workload(50, 2.0, lengths, seed=1) == workload(50, 2.0, lengths, seed=1) != workload(50, 2.0, lengths, seed=2)
    )
    assert {job.prompt for job in workload(200, 2.0, lengths)} == set(range(3, 10))


@pytest.mark.parametrize(("n", "rate", "burstiness"), [(0, 1.0, 1.0), (1, 0.0, 1.0), (1, 1.0, 0.0), (1, math.nan, 1.0)])
def test_arrivals_without_a_rate_are_refused(n: int, rate: float, burstiness: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        arrival_times(n, rate, burstiness=burstiness)


TRACE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:16:50.9951690,1,1
"""


def test_a_trace_in_the_azure_format_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE, encoding="utf-8")
    jobs = read_azure(path)
    assert [(job.prompt, job.answer) for job in jobs] == [(374, 44), (396, 109), (1, 1)]
    assert [job.at_s for job in jobs] == pytest.approx([0.0, 4.314579, 64.314579])
    assert read_azure(path, 2) == jobs[:2]
    assert [job.at_s for job in sped_up(jobs, 2.0)] == [job.at_s / 2 for job in jobs]
    assert len(file_sha1(path)) == 40


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("TIMESTAMP", "TIME", "must name TIMESTAMP"),
        (",396,", ",many,", "line 3 is not a request"),
        (",396,", ",0,", "line 3: tokens must be at least 1"),
        ("18:15:50", "18:15:40", "not sorted"),
        ("396,109\n", "396\n", "line 3 is not a request"),
    ],
)
def test_a_damaged_trace_is_refused_by_file_and_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE.replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError, match=words) as error:
        read_azure(path)
    assert "trace.csv" in str(error.value)


def test_an_empty_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE.splitlines()[0] + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="holds no requests"):
        read_azure(path)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_imitation_has_the_quantiles_of_the_trace(name: str) -> None:
    source = PUBLISHED[name]
    for quantiles in (source.prompt, source.answer):
        assert len(quantiles) == len(SHARES)
        assert list(quantiles) == sorted(quantiles)
        assert [at_share(quantiles, share) for share in SHARES] == list(quantiles)
    jobs = published_workload(name, 20_000, seed=1)
    for share in (0.1, 0.5, 0.9):
        drawn = float(np.quantile([job.prompt for job in jobs], share))
        assert drawn == pytest.approx(at_share(source.prompt, share), rel=0.1)
    assert len(jobs) / jobs[-1].at_s == pytest.approx(source.rate)
    with pytest.raises(ValueError, match="conv, code"):
        published_workload("chat", 1)


# ---- clocks


def draw_load(draw: random.Random) -> Load:
    parts = [(draw.randint(0, 2_000), draw.choice((1, 1, 1, draw.randint(1, 500))), True) for _ in range(9)]
    return load_of(parts[: draw.randint(1, 9)])


def test_a_load_counts_what_the_mask_lets_through() -> None:
    assert load_of([(3, 4, True), (9, 1, False)]) == Load(5, 1, 17, 4 * 3 + 10 + 10)


@pytest.mark.parametrize("clock", [LLAMA_3_8B_ON_A100, LLAMA_2_7B_ON_A10G])
def test_the_roofline_is_flat_then_linear_and_never_falls(clock: object) -> None:
    time = LLAMA_3_8B_ON_A100.step_time if clock is LLAMA_3_8B_ON_A100 else LLAMA_2_7B_ON_A10G.step_time
    ridge = (LLAMA_3_8B_ON_A100 if clock is LLAMA_3_8B_ON_A100 else LLAMA_2_7B_ON_A10G).ridge_tokens
    assert 50 < ridge < 200
    below, above = round(ridge / 2), round(ridge * 8)
    assert time(Load(below, 1, 0, 0)) == time(Load(1, 1, 0, 0)) > 0.004, "the weights are read once, whoever runs"
    assert (time(Load(2 * above, 1, 0, 0)) - 0.004) == pytest.approx(2 * (time(Load(above, 1, 0, 0)) - 0.004))
    draw = random.Random(1)
    for _ in range(200):
        load = draw_load(draw)
        for name in ("tokens", "kv", "cells"):
            assert time(load._replace(**{name: getattr(load, name) + 500})) >= time(load)
        assert time(load) == time(load)


def test_a_fitted_clock_finds_the_constants_and_is_judged_on_steps_it_has_not_seen() -> None:
    draw = random.Random(2)
    true = (0.01, 1e-4, 5e-4, 0.0, 2e-7)
    loads = [draw_load(draw) for _ in range(300)]
    exact = [(load, true[0] + sum(c * n for c, n in zip(true[1:], load, strict=True))) for load in loads]
    clock = fit_clock(exact)
    assert clock.constants == pytest.approx(true, rel=1e-6, abs=1e-12)
    assert (clock.steps, clock.held_out) == (240, 60)
    assert clock.error < 1e-6
    assert clock.r2 > 1 - 1e-9
    noisy = fit_clock([(load, time * draw.uniform(0.9, 1.1)) for load, time in exact])
    assert 0.03 < noisy.error < 0.07
    assert "mean error" in str(noisy)
    with pytest.raises(ValueError, match="too short"):
        fit_clock(exact[:9])


def test_least_squares_without_negative_coefficients_is_the_best_there_is() -> None:
    draw = np.random.default_rng(4)
    for _ in range(30):
        rows, values = draw.normal(size=(12, 3)), draw.normal(size=12)
        found = non_negative(rows, values)
        assert (found >= 0).all()
        least = ((rows @ found - values) ** 2).sum()
        for other in draw.exponential(0.5, size=(500, 3)):
            assert ((rows @ other - values) ** 2).sum() >= least - 1e-9


# ---- latencies


def request(arrival: float, times: list[float], prompt: int = 4) -> Request:
    made = simulate([Job(0.0, prompt, len(times))], Constant(1.0), max_num_batched_tokens=64, max_num_seqs=1).requests[
        0
    ]
    made.arrival_s, made.token_times_s = arrival, times
    return made


def test_the_definitions_by_hand() -> None:
    one, two = request(1.0, [3.0, 3.5, 4.5]), request(2.0, [2.25])
    assert (ttft(one), gaps(one), e2e(one), tpot(one)) == (2.0, [0.5, 1.0], 3.5, 0.75)
    assert normalised(one) == pytest.approx(3.5 / 3)
    assert (ttft(two), gaps(two), tpot(two)) == (0.25, [], None)
    assert jain([1.0, 1.0, 1.0]) == 1.0
    assert jain([3.0, 0.0, 0.0]) == pytest.approx(1 / 3)
    assert Slo(ttft_s=1.0).met(two)
    assert not Slo(ttft_s=1.0).met(one)
    assert Slo(tpot_s=0.1).met(two), "one token has no gap to be late in"
    assert goodput([one, two], Slo(ttft_s=2.0, tpot_s=0.5), 4.0) == 0.25
    assert highest_rate({1.0: 1.0, 2.0: 0.95, 4.0: 0.5, 8.0: 0.97}) == 2.0
    assert highest_rate({1.0: 0.1}) is None


def test_a_spread_says_how_many_and_the_maximum() -> None:
    found = spread([float(n) for n in range(101)])
    assert (found.n, found.mean, found.p50, found.p95, found.p99, found.max) == (101, 50, 50, 95, 99, 100)
    with pytest.raises(ValueError, match="no values"):
        spread([])


def test_a_service_gap_counts_from_where_both_wait() -> None:
    served = [
        (1.0, {"a": 5.0, "b": 0.0}, False), (2.0, {"a": 8.0, "b": 1.0}, True), (3.0, {"a": 9.0, "b": 4.0}, True),
        (4.0, {"a": 9.0, "b": 9.0}, False), (5.0, {"a": 10.0, "b": 9.0}, True),
    ]  # fmt: skip
    assert service_gap(served) == [(2.0, 2.0), (3.0, 0.0), (5.0, 1.0)]


def test_alone_is_what_the_simulation_says_of_one_request() -> None:
    for prompt, answer, budget in ((1, 1, 8), (100, 7, 32), (64, 3, 64), (65, 2, 64)):
        run = simulate([Job(0.0, prompt, answer)], LLAMA_3_8B_ON_A100, max_num_batched_tokens=budget, max_num_seqs=4)
        assert alone(prompt, answer, LLAMA_3_8B_ON_A100, budget) == pytest.approx(e2e(run.requests[0]))


# ---- the simulation


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_one_server_waits_as_the_formula_for_a_queue_says(load: float) -> None:
    found = r0.one_server(20_000, load)
    assert found["formula_s"] == pytest.approx(1 + load / (2 * (1 - load)))
    assert abs(found["error"]) < 0.02


@pytest.mark.parametrize("seed", range(5))
def test_latencies_add_up_and_little_is_right_exactly(seed: int) -> None:
    jobs = workload(80, 10.0, uniform_lengths((1, 300), (1, 30)), seed=seed)
    run = simulate(jobs, LLAMA_3_8B_ON_A100, max_num_batched_tokens=128, max_num_seqs=4)
    assert all(r0.identities(run.requests).values())
    for one in run.requests:
        if one.num_output_tokens > 1:
            each = tpot(one)
            assert each is not None
            assert each * (one.num_output_tokens - 1) == pytest.approx(sum(gaps(one)))
    moved = [(Fraction(0), [Fraction(2)]), (Fraction(1), [Fraction(3)])]
    assert r0.integral(moved) == 4


def test_in_a_closed_loop_each_user_waits_for_the_answer_and_thinks() -> None:
    jobs = [Job(99.0, 1, 2) for _ in range(6)]
    run = simulate(jobs, Constant(1.0), users=2, think_s=0.5, max_num_batched_tokens=8, max_num_seqs=8)
    assert [r.arrival_s for r in run.requests] == [0.0, 0.0, 2.5, 2.5, 5.0, 5.0]
    assert run.end_s == 7.0


def test_a_job_that_fits_into_no_cache_is_refused() -> None:
    with pytest.raises(ValueError, match="job 1 would never fit into a cache of 64 tokens"):
        simulate(
            [Job(0.0, 4, 4), Job(0.0, 60, 9)], Constant(1.0), cache_tokens=64, max_num_batched_tokens=8, max_num_seqs=2
        )


def test_static_batches_by_hand() -> None:
    jobs = [Job(0.0, 3, 2), Job(0.0, 5, 4), Job(0.5, 2, 1)]
    per_token, end, padding = r2.static_batches(jobs, Constant(1.0), 2)
    assert (per_token, end) == ([2.0, 1.0, 4.5], 5.0)
    assert padding == pytest.approx(1 - (4 + 8 + 2) / (10 + 6 + 2))


@pytest.mark.parametrize("policy", ["fcfs", "sjf_aging", "vtc"])
def test_the_simulation_plans_what_the_engine_plans(policy: str) -> None:
    """The same requests at once: step by step the same requests with the same number of tokens."""
    draw = random.Random(8)
    jobs = [Job(0.0, draw.randint(1, 40), draw.randint(1, 9), draw.choice("ab")) for _ in range(25)]
    knobs = {"max_num_batched_tokens": 24, "max_num_seqs": 4, "policy": policy}
    records: list[StepRecord] = []
    engine = small_engine(
        Scripted(digest), None, max_model_len=64, clock=lambda: 0.0, on_step=records.append, **knobs
    )  # fmt: skip
    for i, job in enumerate(jobs):
        params = SamplingParams(max_tokens=job.answer, ignore_eos=True, client=job.client)
        engine.add_request([1 + i] * job.prompt, params, str(i))
    while engine.has_unfinished_requests:
        engine.step()
    seen: list[list[tuple[str, int]]] = []
    loads: list[Load] = []
    simulate(
        jobs, Constant(1.0), cache_tokens=100_000,
        on_step=lambda step, _: (
            seen.append([(c.request.request_id, c.num_new) for c in step.plan]),
            loads.append(load_of((c.start, c.num_new, c.samples) for c in step.plan)),
        ),
        **knobs,
    )  # fmt: skip
    assert seen == [[(entry.request_id, entry.num_new) for entry in record.entries] for record in records]
    assert loads == [load_of_record(record) for record in records]
