"""The main job and the talk, as a user runs them: `minicb demo` and `minicb chat` on the real model."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from stand_ins import environment_without

from minicb import Engine, SamplingParams
from minicb.bench.chat import chat_workload
from minicb.bench.peers import cut_answer
from minicb.commands.demo import quoted, verdict
from minicb.commands.screen import Screen
from minicb.metrics import StepRecord, read_trace
from minicb.weights import random_model


def minicb(*arguments: str, stdin: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "minicb", *arguments],
        env=environment_without("PYTHONWARNDEFAULTENCODING"), input=stdin, capture_output=True, encoding="utf-8",
        cwd=cwd, timeout=300, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """The demo's first four prompts, once for all tests here."""
    folder = tmp_path_factory.mktemp("demo with spaces")
    done = minicb("demo", "--prompts", "4", "--batch-size", "3", "--json", "figures.json", "--out", "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    return done, folder


def test_the_demo_agrees_with_transformers_and_reports_every_figure(
    demo: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    report = json.loads((demo[1] / "figures.json").read_text(encoding="utf-8"))
    assert report["identical_to_transformers"] is True
    assert report["requests"] == 4
    assert [run["name"] for run in report["runs"]] == ["transformers-static", "padded", "continuous"]
    static, padded, continuous = report["runs"]
    for run in report["runs"]:
        assert run["output_tokens_per_s"] == pytest.approx(report["output_tokens"] / run["seconds"])
        assert run["padding_fraction"] == pytest.approx(1 - run["useful_slots"] / run["token_slots"])
        assert 0 < run["ttft_p50_s"] <= run["ttft_p95_s"] <= run["seconds"]
    assert continuous["padding_fraction"] == 0
    assert static["useful_slots"] == padded["useful_slots"] == continuous["useful_slots"]
    assert static["token_slots"] == padded["token_slots"] > continuous["token_slots"]
    rates = continuous["output_tokens_per_s"] / static["output_tokens_per_s"]
    assert report["speedup_over_static"] == pytest.approx(rates)


def test_the_demo_saves_both_traces_and_the_timeline(demo: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    out = demo[1] / "out"
    for trace in ("trace.jsonl", "padded.jsonl"):
        records = read_trace(out / trace)
        assert {name for record in records for name, _ in record.finished} == {p.name for p in chat_workload()[:4]}
    assert (out / "timeline.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert (out / "timeline.png").read_bytes()[:4] == b"\x89PNG"


def test_the_demos_last_line_is_a_command_that_runs(demo: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    said, command = demo[0].stdout.splitlines()[-1].split(": minicb ")
    assert said == "step through both"
    done = minicb(*shlex.split(command.replace("\\", "/")), "--no-open", "--out", "both.html", cwd=demo[1])
    assert done.returncode == 0, done.stderr
    page = (demo[1] / "both.html").read_text(encoding="utf-8")
    assert "padded" in page
    assert "continuous" in page


def test_a_path_with_a_space_is_quoted_for_the_terminal() -> None:
    assert quoted(Path("out")) == "out"
    assert quoted(Path("my out")) == '"my out"'


def test_the_demo_is_plain_text_when_nobody_watches(demo: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    assert "\x1b" not in demo[0].stdout
    assert demo[0].stderr == ""
    assert "identical: all 4 answers" in demo[0].stdout


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--prompts", "0"), "--prompts"),
        (("--batch-size", "0"), "--batch-size"),
        (("--model", "no/where/"), "no/where"),
    ],
)
def test_a_wrong_wish_is_one_line(arguments: tuple[str, ...], word: str, tmp_path: Path) -> None:
    done = minicb("demo", *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert word in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_difference_from_transformers_is_said_with_its_name() -> None:
    prompts = chat_workload()[:2]
    assert verdict(prompts, [True, True]).startswith("identical")
    assert verdict(prompts, [True, False]).startswith("NOT identical: harbour")


def test_an_answer_is_cut_at_its_end_id_and_at_its_limit() -> None:
    assert cut_answer([5, 6, 2, 7], [2], 9) == [5, 6, 2]
    assert cut_answer([5, 6, 2, 7], [2], 2) == [5, 6]
    assert cut_answer([5, 6], [2], 9) == [5, 6]


def test_the_terminal_shows_a_row_for_each_request() -> None:
    records: list[StepRecord] = []
    paper = io.StringIO()
    screen = Screen(Console(file=paper, force_terminal=True, width=60, legacy_windows=False))
    with screen.timeline("continuous", records) as show:
        engine = Engine(random_model(), on_step=lambda record: (records.append(record), show(record))[0])
        for name in ("first", "second"):
            engine.add_request([1, 2, 3], SamplingParams(max_tokens=4), name)
        while engine.has_unfinished_requests:
            engine.step()
    shown = paper.getvalue()
    assert "first" in shown
    assert "second" in shown
    assert "\x1b[" in shown
    assert screen.draw(records).plain.splitlines()[0].startswith(" first \u2588\u2592")


def test_a_talk_is_answered_and_remembers_what_was_said() -> None:
    done = minicb("chat", "--max-tokens", "12", stdin="What is the capital of France?\nWhat did I ask?\n\n")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "The capital of France is Paris."
    assert len(lines) >= 2


def test_a_talk_refuses_a_value_out_of_range_before_it_loads_the_model() -> None:
    done = minicb("chat", "--temperature", "-1")
    assert done.returncode == 1
    assert "temperature" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.usefixtures("compiled")
def test_the_compiled_extra_answers_the_same_and_refuses_what_it_cannot() -> None:
    plain, native = (
        minicb("chat", "--max-tokens", "24", *more, stdin="Name three colours.\n") for more in ((), ("--native",))
    )
    assert native.returncode == 0, native.stderr
    assert native.stdout == plain.stdout != ""
    refused = minicb("chat", "--native", "--dtype", "float16", stdin="Name three colours.\n")
    assert refused.returncode == 1
    assert len(refused.stderr.splitlines()) == 1
    assert "float32 and bfloat16" in refused.stderr
