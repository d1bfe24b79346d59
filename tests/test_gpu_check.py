"""`make gpu` where there is no GPU: it says so. And the parts of it that run on any device."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from stand_ins import environment_without

from minicb.bench.growth import Machine, Point
from minicb.model import ModelConfig, RopeConfig
from minicb.weights import random_model, tiny_config
from tests.harness import gpu

ROOT = Path(__file__).resolve().parents[1]


def test_without_a_gpu_it_says_so_in_one_line_and_is_no_failure(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.harness.gpu", "--json", str(tmp_path / "gpu.json")], cwd=ROOT, check=False,
        env={**environment_without("PYTHONWARNDEFAULTENCODING"), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert (run.returncode, run.stdout, run.stderr) == (0, gpu.NO_GPU + "\n", "")
    assert not list(tmp_path.iterdir())


def test_a_part_that_fails_costs_no_other_and_one_too_late_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Any:
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(gpu, "about", lambda _: {"device": {}})
    monkeypatch.setattr(gpu, "run_tests", lambda _: {"exit code": 0})
    monkeypatch.setattr(gpu, "probe", fails)
    monkeypatch.setattr(gpu, "race", lambda left: {"left": left})
    for name in ("compare_attention", "decode"):
        monkeypatch.setattr(gpu, name, lambda *_: {})
    for name in ("smollm2", "random_weights"):
        monkeypatch.setattr(gpu, name, lambda *_: None)
    report = json.loads(json.dumps(gpu.check(torch.device("cpu"), 300)))
    assert report["parts"]["probes"] == {"failed": "RuntimeError: no kernel image"}
    assert report["parts"]["tests"] == {"exit code": 0}
    assert 290 < report["parts"]["race"]["left"] <= 300
    late = gpu.check(torch.device("cpu"), 10)["parts"]
    assert all("left out" in part for part in late.values())
    assert len(late) == 6


def test_decode_steps_are_measured_with_their_share() -> None:
    found = gpu.decode(random_model(tiny_config()), 60, batches=(1, 2), context=8)
    assert [point["batch"] for point in found["plain"]] == [1, 2]
    assert [point["batch"] for point in found["faster"]] == [1, 2]
    assert all(point["tokens/s"] > 0 for point in (*found["plain"], *found["faster"]))
    json.dumps(found)


def test_the_share_counts_weights_once_and_every_key_and_value() -> None:
    model = random_model(ModelConfig(64, 32, 64, 2, 4, 2, 8, RopeConfig(1e4), 64))
    machine = Machine(read_bytes_per_s=1000.0, flops_per_s=1.0, weight_bytes=500, weight_flops=1)
    point = Point(batch=3, context=10, step_s=20.0, fastest_s=20.0, slowest_s=20.0)
    cache = 2 * 2 * 2 * 8 * 4 * 10 * 3  # K and V, layers, heads, size, bytes, tokens, requests
    assert gpu.share(point, machine, model)["share of the memory's speed"] == round((500 + cache) / 1000 / 20, 4)


def test_random_weights_of_a_shape_make_a_model_that_runs() -> None:
    config = ModelConfig(64, 32, 64, 2, 4, 2, 8, RopeConfig(1e4), 64, qk_norm=True)
    model = gpu.random_weights(config, torch.device("cpu"))
    assert model.head.weight is model.embed.weight
    assert model.dtype == torch.bfloat16
    assert all(p.isfinite().all() for p in model.parameters())


def test_each_case_of_the_comparison_is_a_step_that_attention_can_take() -> None:
    """The shapes that are timed, computed once on a CPU by the portable back end."""
    new, context = [1] * 2 + [5], [10, 20, 12]
    batch = gpu.make_step(new, context, 32)
    assert batch.positions.tolist() == [9, 19, 7, 8, 9, 10, 11]
    assert (batch.slots % 32 == batch.positions).all()
    assert sorted(batch.page_table.flatten().tolist()) == [1, 2, 3]
    assert (batch.slots // 32 == batch.page_table[[0, 1, 2, 2, 2, 2, 2], 0]).all()
