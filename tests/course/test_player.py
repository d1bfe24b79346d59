"""The step player: what it embeds is what the engine recorded, on every machine alike; and a browser shows it."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from pictures import words_outside

from minicb import cli
from minicb.course.player import Player, make_player, page, show_player
from minicb.course.table import SIXTEEN, THREE, Workload, longest_gap, records
from minicb.metrics import Entry, StepRecord, write_trace

ROOT = Path(__file__).resolve().parents[2]
NAMES = {"padded": "padded", "dynamic": "padded, dynamic", "continuous": "continuous"}
Runs = dict[str, list[StepRecord]]
each_workload = pytest.mark.parametrize("workload", [THREE, SIXTEEN], ids=lambda one: one.title)


@pytest.fixture(scope="module")
def served() -> dict[str, Runs]:
    """Workload -> name -> records."""
    return {one.title: {name: list(records(method, one)) for name, method in NAMES.items()} for one in (THREE, SIXTEEN)}


@pytest.fixture
def three(served: dict[str, Runs]) -> Runs:
    return served[THREE.title]


def record(step: int, *entries: Entry, arrived: str = "", finished: str = "") -> StepRecord:
    """A step written by hand; its slots follow from its entries."""
    slots = sum(entry.num_new + entry.padding for entry in entries)
    return StepRecord(
        step, entries, tuple(arrived), tuple((name, "length") for name in finished), num_waiting=0, token_slots=slots,
        useful_slots=sum(entry.num_new for entry in entries), score_cells=9, useful_cells=4, cache_tokens=3,
        cache_capacity=20,
    )  # fmt: skip


# B ends first and is dragged along, while C and D wait.
BY_HAND = [
    record(0, Entry("A", 3, 0, 3, 0, True), Entry("B", 1, 0, 1, 2, True), arrived="ABCD", finished="B"),
    record(1, Entry("A", 1, 3, 3, 0, True), Entry("B", 0, 1, 1, 1), finished="A"),
    record(2, Entry("C", 2, 0, 2, 0, True), Entry("D", 1, 0, 2, 0), finished="C"),
    record(3, Entry("D", 1, 1, 2, 0, True), finished="D"),
]


def embedded(player: Player) -> Any:
    """What a browser reads out of the page."""
    found = re.search(r'<script type="application/json" id="trace">(.*?)</script>', player.html(), flags=re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def said(player: Player, mode: int = 0) -> list[str]:
    return [step["say"] for step in player.data["modes"][mode]["steps"]]


# ---- what is embedded


@each_workload
def test_the_page_holds_the_steps_that_were_recorded(workload: Workload, served: dict[str, Runs]) -> None:
    runs = served[workload.title]
    data = embedded(make_player(runs))
    assert {one["name"]: one["prompt"] for one in data["requests"]} == {
        name: len(prompt) for name, (prompt, _) in workload.requests.items()
    }
    for mode in data["modes"]:
        assert len(mode["steps"]) == len(runs[mode["name"]])
        for shown, told in zip(mode["steps"], runs[mode["name"]], strict=True):
            assert [data["requests"][part[0]]["name"] for part in shown["parts"]] == [
                e.request_id for e in told.entries
            ]
            assert [part[1:4] for part in shown["parts"]] == [
                [e.num_computed, e.num_new, e.padding] for e in told.entries
            ]
            assert shown["slots"] == sum(part[2] + part[3] for part in shown["parts"]) == told.token_slots
            assert (shown["useful"], shown["cells"], shown["seen"]) == (
                told.useful_slots, told.score_cells, told.useful_cells,
            )  # fmt: skip


@each_workload
def test_the_totals_are_those_of_the_growing_table(workload: Workload, served: dict[str, Runs]) -> None:
    for mode in make_player(served[workload.title]).data["modes"]:
        steps, total = served[workload.title][mode["name"]], mode["total"]
        assert (total["steps"], total["gap"]) == (len(steps), longest_gap(steps))
        assert total["slots"] - total["padding"] - total["again"] == workload.needed


@each_workload
def test_everybody_who_is_there_is_somewhere(workload: Workload, served: dict[str, Runs]) -> None:
    """From arrival to end a request runs or waits; of those that wait, one is stalled for each held row."""
    everybody = set(range(len(workload.requests)))
    for mode in make_player(served[workload.title]).data["modes"]:
        over = set[int]()
        for step in mode["steps"]:
            waiting, held, stalled = (step.get(name, ()) for name in ("waiting", "held", "stalled"))
            running = {part[0] for part in step["parts"]} - set(held)
            assert set(held) <= over
            assert running | set(waiting) == everybody - over
            assert not running & set(waiting)
            assert list(stalled) == list(waiting[: len(held)])
            over |= {one for one, _ in step.get("finished", ())}
        assert over == everybody


def test_a_step_is_told_in_one_counting_sentence() -> None:
    assert said(make_player(BY_HAND)) == [
        "Computes 4 tokens, reuses 0 from the cache, wastes 2 on padding. B ends here.",
        (
            "Computes 1 token, reuses 3 from the cache, wastes 1 on padding. "
            "B is done but held in the batch. C is stalled. A ends here."
        ),
        "Computes 3 tokens, reuses 0 from the cache, wastes 0. C ends here.",
        "Computes 1 token, reuses 1 from the cache, wastes 0. D ends here.",
    ]
    total = make_player(BY_HAND).data["modes"][0]["total"]
    assert total == {
        "steps": 4, "slots": 12, "padding": 3, "held": 1, "stalled": 1, "again": 0, "cells": 36,
        "mean_wait": 9,  # A and B 6 slots, C 11, D 12: 35 / 4 = 8.75
        "longest_wait": 12, "gap": 2,
    }  # fmt: skip


def test_what_is_computed_a_second_time_is_waste() -> None:
    player = make_player(list(records("naive", THREE)))
    total = player.data["modes"][0]["total"]
    assert total["again"] == total["slots"] - THREE.needed
    assert "Computes 4 tokens, reuses 0 from the cache, wastes 3 on what was computed before." in said(player)[1]


def test_an_aborted_request_neither_waits_nor_runs_any_more() -> None:
    aborted = replace(BY_HAND[1], finished=(("A", "length"), ("D", "abort")))
    step = make_player([BY_HAND[0], aborted, *BY_HAND[2:]]).data["modes"][0]["steps"][1]
    assert step["waiting"] == (2,)
    assert step["finished"] == ((0, "length"), (3, "abort"))


def test_long_names_get_letters_and_short_ones_stand_in_the_cells_themselves(three: Runs) -> None:
    assert [one["tag"] for one in make_player(three).data["requests"]] == ["A", "B", "C"]
    renamed = [
        replace(one, entries=tuple(replace(e, request_id=f"chat-{e.request_id}") for e in one.entries),
                arrived=tuple(f"chat-{name}" for name in one.arrived),
                finished=tuple((f"chat-{name}", why) for name, why in one.finished))
        for one in BY_HAND
    ]  # fmt: skip
    named = make_player(renamed).data["requests"]
    assert [(one["name"], one["tag"]) for one in named] == [
        ("chat-A", "A"),
        ("chat-B", "B"),
        ("chat-C", "C"),
        ("chat-D", "D"),
    ]


def test_seconds_are_left_out(three: Runs) -> None:
    slower = {name: [replace(one, start_s=9.0, duration_s=7.5) for one in steps] for name, steps in three.items()}
    assert make_player(slower).html() == make_player(three).html()


# ---- what it refuses


def test_runs_of_different_requests_are_refused_by_name(three: Runs, served: dict[str, Runs]) -> None:
    with pytest.raises(ValueError, match="padded and other served different requests: 'D' is only in other"):
        make_player({"padded": three["padded"], "other": served[SIXTEEN.title]["padded"]})
    longer = [replace(one, entries=tuple(replace(e, num_prompt=5) for e in one.entries)) for one in three["padded"]]
    with pytest.raises(ValueError, match="'A', its prompt has 3 tokens in padded and 5 in other"):
        make_player({"padded": three["padded"], "other": longer})


def test_nothing_and_too_much_are_refused() -> None:
    for runs, words in (({}, "nothing to play"), ([], "no steps"), (BY_HAND * 1300, "more than 5,000")):
        with pytest.raises(ValueError, match=words):
            make_player(runs)
    with pytest.raises(ValueError, match="more than 200"):
        make_player([replace(BY_HAND[0], arrived=tuple(f"r{i}" for i in range(201)))])
    with pytest.raises(ValueError, match="texts name requests that the trace does not have: Z"):
        make_player(BY_HAND, texts={"Z": "who?"})


def test_answers_of_different_lengths_are_said_on_the_page(three: Runs) -> None:
    shorter = [*BY_HAND[:3], replace(BY_HAND[3], entries=(Entry("D", 1, 1, 2),))]
    assert make_player({"all": BY_HAND, "less": shorter}).data["notes"] == [
        "all and less did not write equally many tokens for D."
    ]
    assert make_player(three).data["notes"] == []


# ---- the page


def test_the_page_needs_nothing_from_anywhere(three: Runs) -> None:
    text = make_player(three).html()
    assert "default-src 'none'" in text
    assert not re.search(r"https?://|src=|@import|url\(|<link|fetch\(|XMLHttp|\{\{", text)


def test_words_of_a_trace_cannot_become_part_of_the_page() -> None:
    nasty = '</script><img alt="x">'
    player = make_player({nasty: BY_HAND}, title=f"<b>&{nasty}", texts={"A": nasty, "B": [nasty, "&"]})
    assert embedded(player)["modes"][0]["name"] == nasty
    assert embedded(player)["requests"][1]["tokens"] == [nasty, "&"]
    assert "<img" not in player.html()


def test_in_a_notebook_the_page_is_in_a_frame_that_reaches_nothing(three: Runs) -> None:
    player = make_player(three, title='It\'s "three" & more')
    frame = re.fullmatch(
        r"<iframe title=\"[^\"]*\" sandbox=\"allow-scripts\" [^>']* srcdoc='([^']*)'></iframe>", player._repr_html_()
    )
    assert frame is not None
    assert html.unescape(frame[1]) == html.unescape(player.html().replace("&", "&amp;"))


def test_the_parts_of_the_page_are_installed_with_the_package() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        patterns = tomllib.load(file)["tool"]["setuptools"]["package-data"]["minicb.course.player"]
    files = [path for path in page.HERE.iterdir() if path.is_file() and path.suffix != ".py"]
    assert len(files) == 4
    assert all(any(path.match(pattern) for pattern in patterns) for path in files)


# ---- the still


@each_workload
def test_the_still_tells_the_story_in_words_too(workload: Workload, served: dict[str, Runs]) -> None:
    player = make_player(served[workload.title], title="Three ways")
    still = player.sheet()
    assert words_outside(still) == []
    assert still.data == player.line
    for name, mode in zip(NAMES, player.data["modes"], strict=True):
        told = re.findall(rf"{name}, step (\d+): ", still.alt)
        assert len(told) == 3
        largest = max(range(len(mode["steps"])), key=lambda i: mode["steps"][i]["slots"])
        assert str(largest) in told
    assert player.sheet().png() == still.png()


def test_without_a_notebook_the_words_are_printed_and_the_page_is_saved(
    three: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MINICB_HOME", str(tmp_path))
    show_player(three, title="Three requests, three ways")
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == (
        "3 requests; padded: 6 steps, 42 slots, 14 padding; dynamic: 6 steps, 39 slots, 11 padding; "
        "continuous: 8 steps, 28 slots, 0 padding; saved as .minicb/player/three-requests-three-ways.html"
    )
    saved = tmp_path / ".minicb" / "player" / "three-requests-three-ways.html"
    assert saved.read_text(encoding="utf-8") == make_player(three, title="Three requests, three ways").html()


# ---- the command


def test_traces_play_through_the_command(three: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, steps in three.items():
        write_trace(tmp_path / f"{name}.jsonl", steps)
    paths = [
        str(tmp_path / "padded.jsonl"),
        f"dynamic={tmp_path / 'dynamic.jsonl'}",
        str(tmp_path / "continuous.jsonl"),
    ]
    assert cli.main(["play", *paths, "--no-open"]) == 0
    assert (tmp_path / "padded.html").read_text(encoding="utf-8") == make_player(three).html()
    assert "3 requests; padded: 6 steps, 42 slots, 14 padding" in capsys.readouterr().out


def test_the_command_names_a_demo_trace_after_its_folder(three: Runs, tmp_path: Path) -> None:
    (tmp_path / "minicb-demo").mkdir()
    write_trace(tmp_path / "minicb-demo" / "trace.jsonl", three["padded"])
    page_there = tmp_path / "new" / "here.html"
    command = [
        "play",
        str(tmp_path / "minicb-demo" / "trace.jsonl"),
        "--out",
        str(page_there),
        "--title",
        "Mine",
        "--no-open",
    ]
    assert cli.main(command) == 0
    assert page_there.read_text(encoding="utf-8") == make_player({"minicb-demo": three["padded"]}, title="Mine").html()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.jsonl"], "nowhere.jsonl: No such file or directory"),
        (["empty.jsonl"], "empty.jsonl is empty: a trace has one line a step"),
        (["text.txt"], "text.txt line 1 is not a step record"),
        (["a.jsonl", "other.jsonl"], "a and other served different requests: 'D' is only in other"),
        (["a.jsonl", "a.jsonl"], "two traces are called 'a'"),
    ],
)  # fmt: skip
def test_the_command_says_in_one_line_what_is_wrong(
    arguments: list[str], words: str, three: Runs, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    write_trace("a.jsonl", three["padded"])
    write_trace("other.jsonl", BY_HAND)
    Path("empty.jsonl").touch()
    Path("text.txt").write_text("not a trace\n", encoding="utf-8")
    assert cli.main(["play", *arguments, "--no-open"]) == 1
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    assert not list(tmp_path.glob("*.html"))


# ---- in a browser, where there is one

DRIVE = """<script>
const log = [], note = () => log.push([location.hash, $("say").textContent]);
addEventListener("error", (event) => log.push(["error", event.message]));
note();
for (const key of KEYS) { document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })); note(); }
document.body.dataset.log = JSON.stringify(log);
</script></body>"""


def test_a_browser_steps_forward_back_and_across_the_runs(three: Runs, tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no Chromium here")
    player = make_player(three)
    keys = {
        "ArrowRight": "padded/3",
        "ArrowLeft": "padded/2",
        "2": "dynamic/2",
        "End": "dynamic/5",
        "3": "continuous/5",
    }
    drive = DRIVE.replace("KEYS", json.dumps(list(keys)))
    path = tmp_path / "page.html"
    path.write_text(player.html().replace("</body>", drive), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    options += [
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    try:
        run = subprocess.run(
            [browser, *options, "--dump-dom", f"{path.as_uri()}#padded/2"], capture_output=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip("Chromium does not start here")
    found = re.search(r'data-log="([^"]*)"', run.stdout.decode("utf-8"))
    assert found is not None, run.stderr.decode("utf-8", "replace")[-2000:]
    names = list(NAMES)
    expected = []
    for address in ["padded/2", *keys.values()]:
        name, step = address.split("/")
        expected.append([f"#{address}", f"{name}, step {step}. {said(player, names.index(name))[int(step)]}"])
    assert json.loads(html.unescape(found[1])) == expected
