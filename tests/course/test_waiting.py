"""Chapter 09's rushes, crowds and clients, and that the numbers which its page quotes are the stored ones."""

from __future__ import annotations

import json
import re

import pytest

from minicb import seams
from minicb.bench.arrivals import Job
from minicb.course import waiting
from minicb.course.build import NOTEBOOKS
from minicb.course.serving import order_of
from minicb.course.spec import MismatchError
from minicb.metrics import choose_policy
from minicb.policy import latest_overtaker

SMALL = waiting.rush(150, 5.0)


def test_a_rush_is_the_same_every_time_and_as_fast_as_asked() -> None:
    assert waiting.rush(150, 5.0) == SMALL
    assert waiting.rush(150, 5.0, seed=1) != SMALL
    assert SMALL[-1].at_s == pytest.approx(30.0)
    assert [job.prompt for job in SMALL] == [job.prompt for job in waiting.rush(150, 2.5)]


def test_in_order_nobody_is_passed_and_shortest_first_somebody_is() -> None:
    in_order, shortest = waiting.wait(SMALL), waiting.wait(SMALL, "shortest_prefill_first")
    assert not any(waiting.passed_by(in_order, number) for number in range(len(SMALL)))
    passed = waiting.passed_by(shortest, shortest.unluckiest)
    assert passed == sorted(passed)
    assert 0 <= passed[0] <= passed[-1] < shortest.queued(shortest.unluckiest)


def test_an_order_computes_the_same_tokens() -> None:
    runs = [waiting.wait(SMALL, name) for name in ("fcfs", "shortest_prefill_first", "sjf_aging", "hrrn")]
    for run in runs:
        assert [r.num_output_tokens for r in run.requests] == [job.answer for job in SMALL]
        assert run.spread.n == len(SMALL)


@pytest.mark.parametrize("aging", [20.0, 200.0, 2_000.0])
def test_nobody_passes_who_comes_too_late(aging: float) -> None:
    run = waiting.wait(SMALL, "sjf_aging", aging)
    started = sorted(run.requests, key=lambda r: (r.first_scheduled_s, r.number))
    overtakings = 0
    for place, victim in enumerate(started):
        for other in started[:place]:
            if other.arrival_s > victim.arrival_s and other.first_scheduled_s != victim.first_scheduled_s:
                size, smaller = victim.num_prompt_tokens, other.num_prompt_tokens
                assert other.arrival_s <= latest_overtaker(size, victim.arrival_s, smaller, aging)
                overtakings += 1
    assert overtakings


def test_the_long_one_waits_as_long_as_the_stream_lasts_unless_it_ages() -> None:
    shortest = [waiting.wait(waiting.stream(s), "shortest_prefill_first") for s in (30, 60)]
    aged = [waiting.wait(waiting.stream(s), "sjf_aging", 200.0) for s in (30, 60)]
    assert waiting.long_one(aged[0]) == 40
    assert [run.queued(40) > s for run, s in zip(shortest, (30, 60), strict=True)] == [True, True]
    assert aged[0].queued(40) == aged[1].queued(40) < 30
    assert len(waiting.passed_by(aged[0], 40)) == 350  # 20 a second for 17.5 s: (4000 - 500) / 200


def test_counters_share_what_order_gives_to_the_greedy_and_take_nothing_away() -> None:
    in_order, counters = waiting.two_clients("fcfs", 60.0)[-1], waiting.two_clients("vtc", 60.0)[-1]
    assert sum(in_order.values()) == sum(counters.values())
    assert in_order["greedy"] > 1.8 * in_order["modest"]
    assert abs(counters["greedy"] - counters["modest"]) < 4_000


def test_arrivals_are_counted_in_tokens_computed_before() -> None:
    run = waiting.aged(1.0)
    came = waiting.arrivals(run)
    assert (came["A"], came["B"]) == (0, 6)
    assert sorted(came) == sorted(order_of(run.records))


def test_a_key_that_does_not_age_is_found_out_by_the_bound() -> None:
    with seams.swapped("9.1", lambda size, _arrival, _aging: size), pytest.raises(MismatchError, match="goes before B"):
        waiting.bound_is_sharp()


def test_recommend_asks_the_installed_part() -> None:
    rows = {"in order": waiting.wait(SMALL), "shortest first": waiting.wait(SMALL, "shortest_prefill_first")}
    assert waiting.recommend(rows, 1.0) == "shortest first"
    assert waiting.recommend(rows, 1.0, patience_s=rows["in order"].spread.max) == "in order"
    with seams.swapped("9.5", lambda _ttft, _limit, _patience: "in order"):
        assert waiting.recommend(rows, 1.0) == "in order"
    assert choose_policy({"x": [1, 9], "y": [3, 4]}, 2, 5) == "y"


def test_a_table_shows_n_and_the_maximum_beside_the_percentiles(capsys: pytest.CaptureFixture[str]) -> None:
    waiting.table({"one alone": waiting.wait([Job(0.0, 100, 2)])})
    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[-7:] == ["n", "mean", "p50", "p95", "p99", "max", "tokens/s"]
    assert line.startswith("one alone")
    assert line.split()[2] == "1"


def test_the_page_quotes_what_was_measured_on_the_trace() -> None:
    page = (NOTEBOOKS / "_source" / "09_tail_latency.py").read_text(encoding="utf-8")
    stored = json.loads((NOTEBOOKS.parent / "figures" / "receipts.json").read_text(encoding="utf-8"))["R4"]
    assert stored["sha1"] in page
    names = {
        "in order": "fcfs", "shortest first": "shortest_prefill_first", "aging 50": "sjf_aging 50/s",
        "aging 200": "sjf_aging 200/s", "highest ratio": "hrrn", "shortest, 10 s at most": "shortest, 10 s at most",
    }  # fmt: skip
    for shown, name in names.items():
        row = re.search(rf"^# \| {shown} \| (.*) \|$", page, re.MULTILINE)
        assert row, shown
        measured = stored["speeds"]["1.2"][name]
        wanted = [f"{measured[key]:.1f}" for key in ("mean", "p50", "p95", "p99", "max")]
        assert row[1].replace("*", "").replace(",", "").split(" | ") == [*wanted, f"{measured['tokens_per_s']:.0f}"]
