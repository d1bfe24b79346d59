"""What each step did and what it came to: the trace, the identities of latency, the timeline, the summary."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_ins import Scripted, digest, drain, outputs, small_engine

from minicb import sampling
from minicb.engine import Engine
from minicb.metrics import (
    Entry,
    StepRecord,
    count_cells,
    percentile,
    read_trace,
    summarise,
    timeline,
    timeline_text,
    write_trace,
)
from minicb.outputs import RequestMetrics, RequestOutput, latencies
from minicb.padding import PaddedRunner
from minicb.request import Limits, open_request
from minicb.sampling import SamplingParams
from minicb.weights import random_model, tiny_config

pytestmark = pytest.mark.usefixtures("one_thread")


def ticking(*steps: int) -> Callable[[], float]:
    """A clock that goes on by these seconds, over and over. Whole numbers, so that sums of floats are exact."""
    times = itertools.accumulate(itertools.cycle(steps))
    return lambda: float(next(times))


def traced(**options: object) -> tuple[Engine, list[StepRecord]]:
    records: list[StepRecord] = []
    model = Scripted(digest, max_position=128)
    return small_engine(model, None, on_step=records.append, clock=ticking(1, 3, 2), **options), records


def serve(engine: Engine, requests: dict[str, tuple[int, int]]) -> dict[str, RequestOutput]:
    for name, (prompt, answer) in requests.items():
        engine.add_request([len(name)] * prompt, SamplingParams(max_tokens=answer), name)
    return outputs(drain(engine))


# ---- latency


def test_the_identities_hold_to_the_last_bit() -> None:
    """ttft = queue + prefill, and the end = ttft + the sum of all gaps; with every time a whole number there is no
    rounding to hide behind. What the record of the steps says is the same."""
    engine, records = traced(max_num_batched_tokens=8, max_num_seqs=3)
    ended = serve(engine, {"a": (20, 4), "bb": (3, 9), "c": (1, 1), "dd": (30, 2)})
    ends = {name: record.start_s + record.duration_s for record in records for name, _ in record.finished}
    for name, output in ended.items():
        own = [record for record in records if any(entry.request_id == name for entry in record.entries)]
        sampled = [r for r in own if any(e.request_id == name and e.sampled for e in r.entries)]
        m = output.metrics
        assert m.queue_s is not None
        assert m.ttft_s is not None
        prefill_s = sampled[0].start_s + sampled[0].duration_s - own[0].start_s
        assert m.ttft_s == m.queue_s + prefill_s
        assert m.e2e_s == m.ttft_s + sum(m.itl_s)
        assert len(m.itl_s) == len(output.token_ids) - 1
        arrival = own[0].start_s - m.queue_s
        assert ends[name] == arrival + m.e2e_s


def test_an_answer_that_was_cut_off_ends_after_its_last_token() -> None:
    engine, _ = traced()
    engine.add_request([1, 2], SamplingParams(max_tokens=9), "a")
    for _ in range(3):
        engine.step()
    event = engine.abort_request("a")
    assert event is not None
    assert event.output is not None
    m = event.output.metrics
    assert m.ttft_s is not None
    assert m.e2e_s > m.ttft_s + sum(m.itl_s)


def test_a_request_that_never_ran_has_no_times_but_its_end() -> None:
    engine, _ = traced()
    engine.add_request([1, 2], SamplingParams(max_tokens=9), "a")
    event = engine.abort_request("a")
    assert event is not None
    assert event.output is not None
    m = event.output.metrics
    assert (m.queue_s, m.ttft_s, m.itl_s) == (None, None, ())
    assert m.e2e_s > 0


def test_a_token_counts_when_its_number_has_arrived_and_not_when_the_device_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A device that works while Python goes on: only reading the result waits for it. The wait is in the times."""
    now = [0.0]

    class Late(torch.Tensor):
        def tolist(self) -> list[int]:
            now[0] += 5.0  # the device is ready only now
            return self.as_subclass(torch.Tensor).tolist()

    pick = sampling.greedy_pick
    monkeypatch.setattr(sampling, "greedy_pick", lambda logits: pick(logits).as_subclass(Late))
    records: list[StepRecord] = []
    engine = small_engine(Scripted(digest), None, clock=lambda: now[0], on_step=records.append)
    output = serve(engine, {"a": (4, 3)})["a"]
    assert output.metrics.ttft_s == 5.0
    assert output.metrics.itl_s == (5.0, 5.0)
    assert [record.duration_s for record in records] == [5.0] * 3


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20))
def test_gaps_add_up_to_the_whole(steps: list[int]) -> None:
    times = [float(t) for t in itertools.accumulate(steps)]
    first, gaps = latencies(0.0, times)
    assert first == times[0]
    assert first + sum(gaps) == times[-1]
    assert len(gaps) == len(times) - 1


# ---- the record of a step


def test_a_record_counts_what_the_step_computed() -> None:
    """By hand: "a" has 5 tokens and "b" 3; the budget is 6, so "b" starts with one."""
    engine, records = traced(max_num_batched_tokens=6)
    serve(engine, {"a": (5, 2), "b": (3, 1)})
    first, second = records
    assert first == replace(
        first,
        step=0,
        entries=(Entry("a", 5, 0, 5, sampled=True), Entry("b", 1, 0, 3)),
        arrived=("a", "b"),
        finished=(),
        num_waiting=0,
        token_slots=6,
        useful_slots=6,
        score_cells=5 * 5 + 1 * 1,
        useful_cells=15 + 1,
        cache_tokens=6,
        cache_capacity=engine.pool.num_pages * 128,
    )
    assert second.entries == (Entry("a", 1, 5, 5, sampled=True), Entry("b", 2, 1, 3, sampled=True))
    assert second.finished == (("a", "length"), ("b", "length"))
    assert (second.score_cells, second.useful_cells, second.cache_tokens) == (6 + 2 * 3, 6 + 2 + 3, 0)


@pytest.mark.parametrize("start", range(5))
@pytest.mark.parametrize("new", range(1, 5))
def test_the_cells_of_a_chunk_are_those_of_its_mask(start: int, new: int) -> None:
    mask = [[key <= start + query for key in range(start + new)] for query in range(new)]
    assert count_cells(start, new)[1] == sum(map(sum, mask))


def test_every_arrival_and_every_end_stands_in_the_trace_once() -> None:
    engine, records = traced(max_num_batched_tokens=8, max_num_seqs=2)
    for name in "abcdef":
        engine.add_request([7] * 5, SamplingParams(max_tokens=3), name)
    engine.step()
    engine.abort_request("f")  # waits
    engine.abort_request("a")  # runs
    drain(engine)
    assert [name for record in records for name in record.arrived] == list("abcdef")
    ends = [end for record in records for end in record.finished]
    assert ends[:2] == [("f", "abort"), ("a", "abort")]
    assert sorted(ends) == sorted([("a", "abort"), ("f", "abort"), *((name, "length") for name in "bcde")])


# ---- the trace as a file


def some_records() -> list[StepRecord]:
    engine, records = traced(max_num_batched_tokens=8)
    serve(engine, {"a": (20, 4), "ü 漢": (3, 9), 'q"\\\n': (1, 1)})
    return records


def test_a_trace_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "trace ü.jsonl"
    write_trace(path, some_records())
    assert read_trace(path) == some_records()
    assert len(path.read_text(encoding="utf-8").splitlines()) == len(some_records())
    write_trace(path, iter(some_records()[:1]))
    assert read_trace(path) == some_records()[:1]
    write_trace(path, [])
    assert read_trace(path) == []


def test_a_padded_run_has_the_same_kind_of_trace(tmp_path: Path) -> None:
    model, limits = random_model(tiny_config()), Limits(64, 64, frozenset())
    runner = PaddedRunner(model, batch_size=2, max_model_len=64)
    runner.run([open_request(n, [5] * 3, SamplingParams(max_tokens=2), limits, None, 0, 0.0) for n in "abc"])
    write_trace(tmp_path / "t", runner.records)
    assert read_trace(tmp_path / "t") == runner.records


DAMAGE: dict[str, Callable[[str], str]] = {
    "cut off": lambda line: line[:40],
    "not JSON": lambda _: "step 3",
    "empty": lambda _: "",
    "a list": lambda _: "[]",
    "a number": lambda _: "7",
    "null": lambda _: "null",
    "a field is missing": lambda line: json.dumps({k: v for k, v in json.loads(line).items() if k != "step"}),
    "a field is unknown": lambda line: json.dumps({**json.loads(line), "color": 1}),
    "an entry is no entry": lambda line: json.dumps({**json.loads(line), "entries": [{"x": 1}]}),
    "entries are missing": lambda line: json.dumps({k: v for k, v in json.loads(line).items() if k != "entries"}),
    "an end is no pair": lambda line: json.dumps({**json.loads(line), "finished": [["a", "stop", 1]]}),
    "entries are a number": lambda line: json.dumps({**json.loads(line), "entries": 5}),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_line_is_named_by_its_number(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_trace(path, some_records())
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[2] = DAMAGE[damage](lines[2])
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ValueError, match=r"t\.jsonl line 3 is not a step record") as refused:
        read_trace(path)
    assert "\n" not in str(refused.value)


def test_a_trace_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        read_trace(tmp_path / "nowhere")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="binary line 1 is not a step record"):
        read_trace(tmp_path / "binary")


# ---- what happens when it cannot be written


def full_disk(where: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run this code where no file may grow beyond 1,000 bytes: a real write error, half-way."""
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n{code}"
    root = Path(__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(Path(__file__).parent)])}
    return subprocess.run(
        [sys.executable, "-c", limited], cwd=where, env=environment, capture_output=True, encoding="utf-8", check=False
    )


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on a file's size to set")
def test_a_full_disk_is_named_and_the_older_trace_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_trace(path, some_records()[:1])
    before = path.read_bytes()
    run = full_disk(tmp_path, "import test_metrics as t; t.write_trace('t.jsonl', t.some_records())")
    assert run.returncode != 0
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("OSError")
    assert "t.jsonl" in last
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path], "nothing half-written is left"


@pytest.mark.parametrize("place", ["missing/t.jsonl", "file/t.jsonl", "."])
def test_a_place_where_nothing_can_be_written_is_named(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OSError, match=re.escape(str(tmp_path / place))) as refused:
        write_trace(tmp_path / place, some_records())
    assert refused.value.filename == str(tmp_path / place)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("step", ["write", "replace"])
def test_a_read_only_folder_is_named_and_the_older_trace_stays(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal itself is a stand-in: for the administrator of a machine no folder is read-only."""
    path = tmp_path / "t.jsonl"
    write_trace(path, some_records()[:1])

    def refuse(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "write_text" if step == "write" else "replace", refuse)
    with pytest.raises(PermissionError, match=r"Permission denied: '.*t\.jsonl'$"):
        write_trace(path, some_records())
    monkeypatch.undo()
    assert read_trace(path) == some_records()[:1]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="a link needs a privilege on Windows")
def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "t.jsonl")
    write_trace(tmp_path / "link", some_records())
    assert (tmp_path / "link").is_symlink()
    assert read_trace(tmp_path / "t.jsonl") == some_records()


def test_a_trace_that_cannot_be_written_costs_no_answer(tmp_path: Path) -> None:
    """Written from the callback of every step: the error comes out, and the run goes on where it was."""
    records: list[StepRecord] = []

    def save(record: StepRecord) -> None:
        records.append(record)
        write_trace(tmp_path / "missing" / "t.jsonl", records)

    engine = small_engine(Scripted(digest), None, on_step=save)
    engine.add_request([1, 2], SamplingParams(max_tokens=4), "a")
    for _ in range(4):
        with pytest.raises(FileNotFoundError, match="missing"):
            engine.step()
    (tmp_path / "missing").mkdir()
    events = drain(engine)["a"]
    assert len(events) == 4
    assert len(records) == 4


# ---- the timeline


def letters(records: list[StepRecord]) -> dict[str, str]:
    return {row.request_id: "".join(row.cells) for row in timeline(records)}


def test_the_timeline_has_a_letter_for_each_step_of_each_request() -> None:
    engine, records = traced(max_num_batched_tokens=4, max_num_seqs=2)
    for name, prompt, answer in (("a", 6, 3), ("b", 2, 2), ("c", 5, 1)):
        engine.add_request([7] * prompt, SamplingParams(max_tokens=answer), name)
    engine.step()
    engine.add_request([7], SamplingParams(max_tokens=2), "d")
    drain(engine)
    assert letters(records) == {
        "a": "##==  ",
        "b": ".#=   ",
        "c": "...## ",
        "d": " ...#=",
    }


def test_an_aborted_request_is_gone_from_the_timeline() -> None:
    engine, records = traced(max_num_seqs=1)
    for name in "abc":
        engine.add_request([7] * 3, SamplingParams(max_tokens=4), name)
    engine.step()
    engine.step()
    engine.abort_request("b")
    engine.step()
    engine.abort_request("a")
    drain(engine)
    assert letters(records) == {"a": "#==    ", "b": "..     ", "c": "...#==="}


def test_a_row_that_a_padded_batch_drags_along_is_marked() -> None:
    model, limits = random_model(tiny_config()), Limits(64, 64, frozenset())
    runner = PaddedRunner(model, batch_size=2, max_model_len=64)
    runner.run(
        [open_request(n, [5], SamplingParams(max_tokens=m), limits, None, 0, 0.0) for n, m in (("a", 1), ("b", 3))]
    )
    assert letters(runner.records) == {"a": "#xx", "b": "#=="}


def test_the_timeline_as_text_is_squeezed_into_its_width_and_keeps_the_rarer_letter() -> None:
    engine, records = traced(max_num_batched_tokens=8)
    serve(engine, {"a": (3, 40), "long name": (1, 2)})
    lines = timeline_text(records, width=10)
    assert [line[:10] for line in lines] == ["        a ", "long name "]
    assert all(len(line) <= 9 + 1 + 10 for line in lines)
    assert lines[0].split(maxsplit=1)[1] == "#" + "=" * 9
    assert timeline_text(records)[1] == "long name #="
    assert timeline_text([]) == []


# ---- the summary


def finished(tokens: int, ttft: float | None, itl: tuple[float, ...]) -> RequestOutput:
    metrics = RequestMetrics(0.0, ttft, itl, 0.0, 3, tokens)
    return RequestOutput("r", (1, 2, 3), "", tuple(range(tokens)), "length", None, None, None, metrics)


def record(slots: int, useful: int) -> StepRecord:
    return StepRecord(0, (), (), (), 0, slots, useful, 0, 0, 0, 0)


def test_the_summary_is_what_one_gets_by_hand() -> None:
    outputs_ = [finished(3, 1.0, (0.1, 0.3)), finished(2, 2.0, (0.2,)), finished(1, 6.0, ()), finished(0, None, ())]
    s = summarise(outputs_, [record(10, 6), record(30, 24)], seconds=4.0)
    assert (s.requests, s.output_tokens, s.steps) == (4, 6, 2)
    assert s.output_tokens_per_s == 1.5
    assert (s.token_slots, s.useful_slots, s.padding_fraction) == (40, 30, 0.25)
    assert (s.ttft_mean_s, s.ttft_p50_s) == (3.0, 2.0)
    assert s.ttft_p95_s == pytest.approx(2.0 + 0.9 * 4.0)  # 0.95 * 2 = 1.9 ranks: nine tenths of the way to the third
    assert s.itl_p50_s == pytest.approx(0.2)
    assert s.itl_p95_s == pytest.approx(0.29)
    assert s.itl_max_s == 0.3


def test_a_summary_of_nothing_has_no_times() -> None:
    s = summarise([], [], seconds=0.0)
    assert (s.requests, s.output_tokens, s.output_tokens_per_s, s.padding_fraction) == (0, 0, 0.0, 0.0)
    assert (s.ttft_mean_s, s.ttft_p50_s, s.ttft_p95_s, s.itl_p50_s, s.itl_p95_s, s.itl_max_s) == (None,) * 6


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=30), st.integers(0, 100))
def test_a_percentile_lies_between_its_two_neighbours_by_rank(values: list[int], q: int) -> None:
    ordered = sorted(values)
    rank = q / 100 * (len(values) - 1)
    low, high = ordered[math.floor(rank)], ordered[math.ceil(rank)]
    assert percentile(values, q) == pytest.approx(low + (rank - math.floor(rank)) * (high - low))


def test_a_percentile_of_nothing_is_none() -> None:
    assert percentile([], 50) is None
