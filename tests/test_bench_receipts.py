"""The receipts on small workloads: their signs, their exact numbers where there are any, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minicb import cli
from minicb.bench.arrivals import published_workload, sped_up
from minicb.bench.receipts import NAMES, Options, Table, load_receipt, r1, r3, r4, r5, r7, real, text
from minicb.bench.simulate import open_job
from minicb.metrics import choose_policy
from minicb.weights import random_model, tiny_config

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_table_is_aligned_and_ends_without_blanks() -> None:
    table = Table("numbers", ["what", "n"], [["a", "1,000"], ["bcdefg", "2"]])
    assert text(table).splitlines() == ["numbers", "what        n", "a       1,000", "bcdefg      2"]


def test_a_prompt_of_100_beside_7_tokens_is_693_slots_of_padding() -> None:
    data = r1.measure(Options(requests=60))
    assert data["one"] == {"slots": 800, "tokens": 107, "padding": 693}
    trace = data["trace"]
    assert "imitation" in trace["source"]
    assert trace["slots"] > 5 * trace["tokens"] > trace["tokens"] > 60 * 500


def test_a_small_budget_trades_a_little_waiting_for_much_less_stalling() -> None:
    found = [r3.one_long_prompt(knobs) for knobs in r3.SETTINGS.values()]
    stalls, waits = [one["stall_s"] for one in found], [one["ttft_s"] for one in found]
    assert stalls == sorted(stalls, reverse=True)
    assert stalls[0] > 10 * stalls[3]
    assert waits[3] < 1.25 * waits[0]


@pytest.fixture(scope="module")
def orders() -> dict[str, dict[str, Any]]:
    jobs = sped_up(published_workload("conv", 400, rate=4.9, seed=3), 1.6)
    idle = r4.idle_times(jobs)
    names = ("fcfs", r4.SHORTEST, "sjf_aging 50/s", "sjf_aging 500/s", f"shortest, {r4.LIMIT_S:g} s at most")
    return {name: r4.one_run(jobs, idle, (1.0, name)) for name in names}


def test_shortest_first_lowers_the_median_and_lets_the_unlucky_wait(orders: dict[str, dict[str, Any]]) -> None:
    first, shortest = orders["fcfs"], orders[r4.SHORTEST]
    assert shortest["p50"] < 0.3 * first["p50"]
    assert shortest["mean"] < 0.7 * first["mean"]
    assert shortest["max"] > 1.5 * first["max"]
    assert shortest["tokens_per_s"] == pytest.approx(first["tokens_per_s"], rel=0.03), "an order creates no capacity"


def test_aging_keeps_its_bound_and_lies_in_between(orders: dict[str, dict[str, Any]]) -> None:
    aged = [orders[f"sjf_aging {aging}/s"] for aging in (50, 500)]
    assert orders["fcfs"]["overtaken_s"] == 0.0
    assert all(0 < one["overtaken_s"] <= one["bound_s"] for one in aged)
    assert aged[0]["mean"] < aged[-1]["mean"] <= 1.02 * orders["fcfs"]["mean"]
    assert aged[0]["max"] > aged[-1]["max"]
    assert orders[f"shortest, {r4.LIMIT_S:g} s at most"]["overtaken_s"] <= r4.LIMIT_S + 1


def test_the_tail_and_the_table_say_the_same(orders: dict[str, dict[str, Any]]) -> None:
    for one in orders.values():
        assert one["tail"] == sorted(one["tail"])
        assert one["tail"][-1] == one["max"]
        assert one["tail"][0] == pytest.approx(one["p50"], rel=0.1)


def test_a_policy_is_chosen_by_what_it_promises() -> None:
    ttft = {"first": [4.0, 5.0, 6.0], "shortest": [0.1, 0.2, 50.0], "aged": [0.5, 3.0, 9.0]}
    assert choose_policy(ttft, limit_s=1.0, patience_s=100.0) == "shortest"
    assert choose_policy(ttft, limit_s=1.0, patience_s=10.0) == "aged"
    assert choose_policy(ttft, limit_s=6.0, patience_s=10.0) == "first"
    assert choose_policy(ttft, limit_s=1.0, patience_s=1.0) == "first"


def test_the_oracle_and_the_limit_are_policies_like_any_other() -> None:
    limit = r4.MaxWait(10.0)
    jobs = [(0, 50), (1, 5), (2, 9)]
    for number, prompt in jobs:
        request = open_job(published_workload("conv", 1)[0], str(number), float(number))
        request.number, request.tokens = number, [0] * prompt
        limit.add(request)
    assert limit.pop().number == 1
    limit.now = 10.5
    oldest = limit.pop()
    assert oldest.number == 0
    limit.put_back(oldest)
    assert [limit.pop().number, limit.pop().number] == [0, 2]


def test_backfill_helps_the_small_ones_and_hardly_hurts_the_head() -> None:
    found = r7.measure(Options())["backfill"]
    strict, all_pass = found["0"], found["8"]
    assert [one["passed"] for one in found.values()] == [0, 2, 8]
    assert all_pass["small_s"] < 0.2 * strict["small_s"]
    assert all_pass["head_s"] < 1.1 * strict["head_s"]
    assert all_pass["end_s"] < strict["end_s"]


def test_counters_bound_the_difference_that_first_come_lets_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(r5, "SECONDS", 60.0)
    jobs = r5.steady("slow", 1.5, 0, 60) + r5.steady("fast", 3.0, 0, 60)
    gaps = {name: max(gap for _, gap in r5.service_gap(r5.served(jobs, policy=name))) for name in ("fcfs", "vtc")}
    assert gaps["vtc"] < r5.BOUND
    assert gaps["fcfs"] > 5 * gaps["vtc"]


def test_the_engine_serves_jobs_at_their_times_on_either_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a tiny model: every answer is there, and no first token comes before its request."""
    monkeypatch.setattr(real, "ROOM", 40)
    model = random_model(tiny_config(layers=1, vocab=128))
    jobs = [real.Job(0.002 * i, 5 + i, 3) for i in range(12)]
    for cpu in (False, True):
        outputs, log = real.serve(model, jobs, real.Watch(cpu=cpu), {"policy": "hrrn"})
        assert [len(output.token_ids) for output in outputs] == [3] * 12
        assert all(output.metrics.ttft_s > 0 for output in outputs if output.metrics.ttft_s is not None)
        assert sum(load.tokens for load, _ in log) == sum(job.prompt + job.answer - 1 for job in jobs)
        assert all(seconds > 0 for _, seconds in log)


# ---- the command


def test_the_command_prints_draws_and_stores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert cli.main(["receipts", "R7", "--json", str(tmp_path / "r.json"), "--out", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert NAMES["R7"] in out
    assert "backfill" in out
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["R7"] == r7.measure(Options())
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"R7-backfill.svg", "R7-backfill.png"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["R9"], "there is no receipt 'R9'; there are: R0, R1"),
        (["R7", "--requests", "0"], "--requests must be at least 1"),
        (["R7", "--workers", "-1"], "--workers must be at least 1"),
        (["R1", "--trace", "nowhere.csv"], "nowhere.csv: No such file"),
    ],
)
def test_a_wrong_wish_is_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["receipts", *arguments]) == 1
    assert words in capsys.readouterr().err


def test_every_receipt_keeps_the_form() -> None:
    for name in NAMES:
        receipt = load_receipt(name)
        assert all(callable(getattr(receipt, part)) for part in ("measure", "tables", "pictures"))
