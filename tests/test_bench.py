"""`minicb bench`: workloads, workers, the race, its report and its pictures."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from oracle import one_thread

from minicb.bench import page as page_module
from minicb.bench import race as race_module
from minicb.bench.charts import draw_growth, draw_race
from minicb.bench.growth import grow_batch, measure_machine, weights_read
from minicb.bench.race import Result, race, ratios
from minicb.bench.workers.own import gemm_floor
from minicb.bench.workers.protocol import Job
from minicb.bench.workloads import NAMES, find_workload, read_lengths
from minicb.checkpoint import Tokenizer, packaged_model_folder
from minicb.cli import main
from minicb.commands.bench import chosen, table
from minicb.weights import random_model, tiny_config

TALKER = """
import json, sys
job = json.loads(sys.stdin.readline())
assert job["prompts"] == [[1, 2], [3]]
print(json.dumps({"ready": "1.0"}), flush=True)
for turn, _ in enumerate(sys.stdin):
    if turn == %d:
        sys.exit("no more tokens\\n\\nout of luck")
    print(json.dumps({"seconds": %f, "answers": [[5], [6, %d]], "peak_rss_bytes": 7}), flush=True)
"""
JOB = Job("nowhere", "float32", "cpu", [[1, 2], [3]], [1, 2], {})


def talker(seconds: float = 1.0, last: int = 7, breaks: int = -1) -> list[str]:
    return [sys.executable, "-c", TALKER % (breaks, seconds, last)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(packaged_model_folder())


# ---- workloads


@pytest.mark.parametrize("name", NAMES)
def test_a_workload_is_the_same_every_time(name: str, tokenizer: Tokenizer) -> None:
    first, again = (find_workload(name, 500, tokenizer) for _ in range(2))
    assert first == again
    assert len(first.prompts) == len(first.max_tokens)
    assert all(prompt and length >= 1 for prompt, length in zip(first.prompts, first.max_tokens, strict=True))
    assert first.longest == max(len(p) + n for p, n in zip(first.prompts, first.max_tokens, strict=True))


def test_ragged_32_is_as_uneven_as_it_says(tokenizer: Tokenizer) -> None:
    work = find_workload("ragged-32", 500, tokenizer)
    reads = list(map(len, work.prompts))
    assert len(reads) == 32
    assert min(reads) >= 16
    assert max(reads) <= 400
    assert min(work.max_tokens) >= 4
    assert max(work.max_tokens) <= 128
    assert max(reads) > 5 * min(reads)
    assert all(0 <= token < 500 for prompt in work.prompts for token in prompt)
    assert abs(sum(map(math.log, reads)) / 32 - 4.3) < 0.5


@pytest.mark.parametrize("columns", ["prompt_tokens,output_tokens", "TIMESTAMP,ContextTokens,GeneratedTokens"])
def test_lengths_come_from_a_file(columns: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    lead = "x," * (columns.count(",") - 1)
    (tmp_path / "mine.csv").write_text(f"{columns}\n{lead}5,2\n{lead}3,9\n", encoding="utf-8")
    work = find_workload(str(tmp_path / "mine.csv"), 50, tokenizer)
    assert (work.name, list(map(len, work.prompts)), work.max_tokens) == ("mine", [5, 3], [2, 9])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "needs rows under the columns prompt_tokens,output_tokens"),
        ("a,b\n1,2\n", "needs rows under the columns prompt_tokens,output_tokens"),
        ("prompt_tokens,output_tokens\n4,4\n5,x\n", "line 3: both lengths must be whole numbers of at least 1"),
        ("prompt_tokens,output_tokens\n0,4\n", "line 2: both lengths must be whole numbers of at least 1"),
        ("prompt_tokens,output_tokens\n4\n", "line 2: both lengths must be whole numbers of at least 1"),
    ],
)
def test_a_bad_file_is_named_with_its_line(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=problem):
        read_lengths(path)


def test_a_workload_that_is_none_names_those_there_are(tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="'ragged' is no workload and no file: choose one of ragged-32, long-prompts"):
        find_workload("ragged", 50, tokenizer)


# ---- the race


def test_engines_run_in_turns_and_the_first_turn_is_not_counted() -> None:
    said: list[str] = []
    results, skipped = race({"a": talker(2.0), "b": talker(3.0)}, JOB, 2, said.append)
    assert skipped == []
    assert [one.name for one in results] == ["a", "b"]
    assert [one.runs_s for one in results] == [[2.0, 2.0], [3.0, 3.0]]
    assert [one.output_tokens_per_s for one in results] == [1.5, 1.0]
    assert [one.peak_rss_bytes for one in results] == [7, 7]
    turns = [line.split()[0] for line in said if "tokens/s" in line]
    assert turns == ["a", "b", "a", "b"]


def test_answers_are_compared_with_the_first_engines() -> None:
    results, _ = race({"a": talker(), "b": talker(last=8)}, JOB, 1, lambda _: None)
    assert [one.same_answers for one in results] == [2, 1]


def test_an_engine_that_cannot_start_or_dies_is_skipped_with_its_last_words() -> None:
    commands = {"a": talker(), "gone": ["no-such-program"], "dies": talker(breaks=1)}
    results, skipped = race(commands, JOB, 2, lambda _: None)
    assert [one.name for one in results] == ["a"]
    assert [one["name"] for one in skipped] == ["gone", "dies"]
    assert "no-such-program" in skipped[0]["why"]
    assert skipped[1]["why"] == "out of luck"


def test_a_worker_that_says_nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race_module, "LIMIT_S", 0.2)
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    results, skipped = race({"sleeper": sleeper}, JOB, 1, lambda _: None)
    assert results == []
    assert "said nothing" in skipped[0]["why"]


def test_a_ratio_is_the_median_of_the_turns() -> None:
    fast = Result("fast", "1", "float32", 1.0, [1.0, 2.0, 4.0])
    slow = Result("slow", "1", "float32", 1.0, [3.0, 4.0, 4.0])
    assert ratios([fast, slow]) == {"fast/slow": 2.0}
    assert ratios([]) == {}


# ---- the command


def arguments(**given: Any) -> argparse.Namespace:
    return argparse.Namespace(
        **{"peers": None, "vllm_python": None, "llama_python": None, "llama_model": None, **given}
    )


def test_what_has_a_path_takes_part_and_what_has_none_is_refused() -> None:
    assert "vllm" not in chosen(arguments())
    assert chosen(arguments(vllm_python="x"))[-1] == "vllm"
    with pytest.raises(ValueError, match="vllm needs --vllm-python"):
        chosen(arguments(peers="minicb,vllm"))
    with pytest.raises(ValueError, match=r"llama\.cpp needs --llama-model"):
        chosen(arguments(llama_python="x"))
    with pytest.raises(ValueError, match="'sglang' is no engine: choose of minicb, minicb-native"):
        chosen(arguments(peers="sglang"))


def test_the_real_engines_answer_alike_and_the_report_is_complete(tmp_path: Path, capsys: Any) -> None:
    lengths, report, folder = tmp_path / "few.csv", tmp_path / "few.json", tmp_path / "pictures"
    lengths.write_text("prompt_tokens,output_tokens\n9,4\n3,6\n14,2\n", encoding="utf-8")
    peers = "minicb,minicb-reference,transformers-static,transformers-cb,gemm-floor"
    command = ["bench", "--workload", str(lengths), "--peers", peers, "--rounds", "1", "--dtype", "float32"]
    assert main([*command, "--device", "cpu", "--json", str(report), "--out", str(folder)]) == 0
    out = capsys.readouterr().out
    said = json.loads(report.read_text(encoding="utf-8"))
    assert said["skipped"] == []
    assert [one["name"] for one in said["engines"]] == peers.split(",")
    assert [one["same_answers"] for one in said["engines"]] == [3, 3, 3, 3, 0]
    assert said["workload"] == {"name": "few", "requests": 3, "prompt_tokens": 26, "output_tokens": 12}
    assert list(said["ratios"]) == [f"minicb/{name}" for name in peers.split(",")[1:]]
    for one in said["engines"]:
        assert one["ready_s"] > 0
        assert one["output_tokens_per_s"] == pytest.approx(12 / one["runs_s"][0], rel=0.01)
    assert sorted(path.name for path in folder.iterdir()) == ["bench.png", "bench.svg"]
    assert "few: 3 requests, 26 tokens to read, 12 to write; float32 on cpu" in out


def test_a_wrong_number_of_rounds_is_one_line(capsys: Any) -> None:
    assert main(["bench", "--rounds", "0"]) == 1
    assert capsys.readouterr().err == "minicb: --rounds must be at least 1, not 0\n"


def test_a_table_has_a_line_an_engine() -> None:
    lines = table(
        [Result("a", "1", "float32", 1.0, [1.0, 2.0, 4.0], 6.0, 5_000_000, 2), Result("b", "1", "x", 1.0, [1.0], 3.0)]
    )
    assert lines[1].split() == ["a", "6.0", "3.0", "12.0", "1.0", "5", "2"]
    assert lines[2].split() == ["b", "3.0", "3.0", "3.0", "1.0", "?", "0"]


# ---- the floor, and growth


def test_the_floor_multiplies_what_the_engine_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of every product, counted in both."""
    model = random_model(tiny_config(), dtype="float32")
    monkeypatch.setattr("minicb.bench.workers.own.load", lambda *_: (model, None))
    options = {"max_num_seqs": 2, "max_num_batched_tokens": 8, "max_model_len": 32}
    rows: list[int] = []
    with one_thread():
        _, run = gemm_floor(Job("x", "float32", "cpu", [[1, 2, 3], [4] * 11], [3, 2], options))
        for part in model.modules():
            if type(part).__name__ == "Packed":
                part.register_forward_hook(lambda _part, args, _out: rows.append(len(args[0])))
        answers = run()
    products = 5 * model.config.num_layers
    assert [len(answer) for answer in answers] == [3, 2]
    assert sum(rows) == products * (3 + 2 + 11 + 1) + (3 + 2)


def test_a_step_of_any_batch_and_context_is_measured() -> None:
    model = random_model(tiny_config(), dtype="float32")
    with one_thread():
        points = grow_batch(model, (1, 3), context=5)
    assert [(point.batch, point.context) for point in points] == [(1, 5), (3, 5)]
    assert all(0 < point.fastest_s <= point.step_s <= point.slowest_s for point in points)


def test_the_weights_of_a_step_are_those_of_its_products() -> None:
    model = random_model(tiny_config())
    counted = sum(part.weight.numel() for part in model.modules() if isinstance(part, torch.nn.Linear))
    assert weights_read(model) == counted


def test_the_pictures_say_what_the_report_says(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = [
        {"name": n, "output_tokens_per_s": t} for n, t in (("minicb", 90.0), ("other", 30.0), ("gemm-floor", 120.0))
    ]
    work = {"name": "few", "requests": 3, "output_tokens": 12}
    monkeypatch.setattr("minicb.bench.growth.READ_BYTES", 1 << 20)
    monkeypatch.setattr("minicb.bench.growth.PRODUCT", 32)
    with one_thread():
        limits = measure_machine(random_model(tiny_config(), dtype="float32"))
    assert limits.tokens_per_s(1) <= limits.tokens_per_s(64)
    growth = {
        "machine": {"weight_bytes": 4e6, "read_bytes_per_s": 1e9, "flops_per_s": 1e10, "weight_flops": 2e6},
        "batch": [{"batch": n, "step_s": 0.005 + n * 0.0003} for n in (1, 8, 64)],
    }
    report = {"engines": engines, "workload": work, "dtype": "float32", "growth": growth}
    assert draw_race(report).data == "minicb: 90.0; other: 30.0 tokens/s"
    assert draw_growth(report).data.startswith("measured: from 188.7 to ")


# ---- the results page


def test_the_table_in_the_readme_is_what_the_stored_reports_say() -> None:
    """If this fails: python -m minicb.bench.page"""
    text = (page_module.ROOT / "README.md").read_text(encoding="utf-8")
    assert text == page_module.put(text, page_module.page(page_module.stored_reports()))
