"""The step player: what it embeds is what the engine recorded, on every machine alike."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from minicb import cli
from minicb.course.player import Player, make_player
from minicb.course.table import SIXTEEN, THREE, Workload, measure, records
from minicb.metrics import StepRecord, write_trace

NAMES = {"padded": "padded", "dynamic": "padded, dynamic", "continuous": "continuous"}


@pytest.fixture(scope="module")
def runs() -> dict[str, dict[str, list[StepRecord]]]:
    """Workload -> name -> records."""
    return {one.title: {name: list(records(method, one)) for name, method in NAMES.items()} for one in (THREE, SIXTEEN)}


def embedded(player: Player) -> Any:
    """What a browser reads out of the page."""
    found = re.search(r'<script type="application/json" id="trace">(.*?)</script>', player.html(), flags=re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.parametrize("workload", [THREE, SIXTEEN], ids=lambda one: one.title)
def test_the_page_holds_the_steps_that_were_recorded(workload: Workload, runs: Any) -> None:
    data = embedded(make_player(runs[workload.title]))
    assert [one["name"] for one in data["requests"]] == list(workload.requests)
    for mode in data["modes"]:
        steps = runs[workload.title][mode["name"]]
        assert len(mode["steps"]) == len(steps)
        for shown, record in zip(mode["steps"], steps, strict=True):
            names = [data["requests"][part[0]]["name"] for part in shown["parts"]]
            assert names == [entry.request_id for entry in record.entries]
            assert [part[1:4] for part in shown["parts"]] == [
                [e.num_computed, e.num_new, e.padding] for e in record.entries
            ]
            assert shown["slots"] == sum(part[2] + part[3] for part in shown["parts"]) == record.token_slots
            assert shown["useful"] == record.useful_slots


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("workload", [THREE, SIXTEEN], ids=lambda one: one.title)
def test_the_totals_are_the_growing_tables(workload: Workload, name: str, runs: Any) -> None:
    total = make_player({name: runs[workload.title][name]}).data["modes"][0]["total"]
    row = measure(NAMES[name], lambda w: run_of(w, name), workload)
    assert (total["steps"], total["slots"], total["gap"]) == (row.steps, row.computed, row.longest_gap)


def run_of(workload: Workload, name: str) -> Any:
    from minicb.course.table import METHODS

    return METHODS[NAMES[name]](workload)


def test_seconds_are_left_out(runs: Any) -> None:
    slower = {
        name: [replace(r, start_s=r.start_s + 9, duration_s=7.5) for r in one]
        for name, one in runs[THREE.title].items()
    }
    assert make_player(slower).html() == make_player(runs[THREE.title]).html()


def test_a_trace_plays_through_the_command(runs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, steps in runs[THREE.title].items():
        write_trace(tmp_path / f"{name}.jsonl", steps)
    paths = [str(tmp_path / f"{name}.jsonl") for name in NAMES]
    assert cli.main(["play", *paths, "--no-open"]) == 0
    page = (tmp_path / "padded.html").read_text(encoding="utf-8")
    assert page == make_player(runs[THREE.title]).html()
    assert "3 requests; padded: 6 steps, 42 slots, 14 padding" in capsys.readouterr().out
