"""The fast paths compute what the plain ones compute: packed layers, compiled layers, compiled attention."""

from __future__ import annotations

import copy
import platform
import random
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from oracle import Steps, one_thread, random_ids
from ragged import attend_both
from torch import nn

from minicb.engine import Engine
from minicb.kernels import best_attention, compiler, faster, fused, native
from minicb.kernels.compiler import library
from minicb.kernels.fused import FusedLayer, Packed, can_pack
from minicb.kernels.grouped import GroupedAttention
from minicb.kernels.native import NativeAttention, NativeHead
from minicb.model import Layer, Model, ModelConfig, RopeConfig
from minicb.reference import ReferenceAttention
from minicb.weights import random_model, tiny_config

ROPE = RopeConfig(1e4)
CONFIGS = {
    "llama": tiny_config(heads=9, kv_heads=3),
    "qwen2": ModelConfig(64, 48, 80, 2, 6, 2, 8, ROPE, 512, qkv_bias=True, tied_head=False),
    "qwen3": ModelConfig(64, 48, 80, 2, 4, 2, 16, ROPE, 512, qk_norm=True),
    "all biases": ModelConfig(64, 48, 80, 2, 6, 3, 8, ROPE, 512, qkv_bias=True, output_bias=True, mlp_bias=True),
    "windows": ModelConfig(64, 48, 80, 2, 6, 3, 8, ROPE, 512, windows=(5, None)),
}
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.15, torch.float64: 1e-9}


@pytest.fixture(autouse=True, scope="module")
def small_models_on_one_thread() -> Iterator[None]:
    with one_thread():
        yield


def logits(model: Model, attention: object) -> list[torch.Tensor]:
    """Three requests over four mixed steps: chunks, decodes, newcomers."""
    rng = random.Random(1)
    prompts = {name: random_ids(rng, n) for name, n in (("a", 9), ("b", 18), ("c", 8))}
    steps = Steps(model, prompts, attention)  # type: ignore[arg-type]
    plans: list[dict[str, int]] = [{"a": 8, "b": 6}, {"a": 1, "b": 6, "c": 7}, {"b": 1, "c": 1}, {"b": 5}]
    return [row for plan in plans for row in steps(**plan).values()]


def agree(config: ModelConfig, dtype: torch.dtype, change: Callable[[Model], Model]) -> None:
    plain = random_model(config, std=0.2, dtype=str(dtype).removeprefix("torch."))
    changed = change(copy.deepcopy(plain))
    tolerance = TOLERANCE[dtype]
    for one, other in zip(logits(plain, ReferenceAttention()), logits(changed, best_attention(changed)), strict=True):
        torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


# ---- packed weights, fused layers


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_a_fused_model_has_the_logits_of_the_plain_one(config: ModelConfig, dtype: torch.dtype) -> None:
    agree(config, dtype, faster)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_so_it_has_where_torch_cannot_pack(config: ModelConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "can_pack", lambda _: False)
    agree(config, torch.float32, faster)


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 33])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_a_packed_product_can_be_followed_by_silu_a_sum_or_a_product(rows: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    weight, bias = torch.randn(24, 40, dtype=dtype) / 6, torch.randn(24, dtype=dtype)
    x, other = torch.randn(rows, 40, dtype=dtype), torch.randn(rows, 24, dtype=dtype)
    packed, plain = Packed(weight, bias), nn.functional.linear(x, weight, bias)
    near = {"atol": TOLERANCE[dtype] / 2, "rtol": TOLERANCE[dtype] / 2}
    torch.testing.assert_close(packed(x), plain, **near)
    torch.testing.assert_close(packed.silu(x), nn.functional.silu(plain), **near)
    torch.testing.assert_close(packed.plus(x, other), other + plain, **near)
    torch.testing.assert_close(packed.times(x, other), other * plain, **near)


def test_packing_is_tried_out_and_an_old_torch_without_it_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not can_pack(torch.float64)
    monkeypatch.setattr(fused, "torch", SimpleNamespace(**{**vars(torch), "ops": SimpleNamespace(mkldnn=None)}))
    assert not can_pack.__wrapped__(torch.float32)


def test_a_model_is_changed_once_and_its_old_layers_are_gone() -> None:
    model = random_model(CONFIGS["llama"])
    assert faster(model) is model
    layers = list(model.layers)
    assert all(isinstance(layer, FusedLayer) for layer in layers)
    assert not any(isinstance(part, Layer | nn.Linear) for part in model.modules())
    faster(model)
    assert list(model.layers) == layers
    assert isinstance(best_attention(model), GroupedAttention)


# ---- the compiled extra

SHAPES = [(group, size) for group in (1, 2, 3, 4, 7) for size in (8, 64, 128)]


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_a_compiled_model_has_the_logits_of_the_plain_one(config: ModelConfig, dtype: torch.dtype) -> None:
    agree(config, dtype, lambda model: faster(model, native=True))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(("group", "head_dim"), SHAPES)
@pytest.mark.parametrize("window", [None, 1, 8, 40])
def test_compiled_attention_equals_the_reference(group: int, head_dim: int, window: int | None) -> None:
    for seed in range(5):
        reference, compiled = attend_both(NativeAttention(), seed, group, head_dim, window)
        assert reference.isfinite().all()
        torch.testing.assert_close(compiled, reference, atol=2e-5, rtol=1e-5, msg=lambda m, s=seed: f"seed {s}: {m}")


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(("group", "head_dim"), SHAPES)
def test_compiled_attention_in_bfloat16_differs_by_its_rounding_only(group: int, head_dim: int) -> None:
    for seed in range(100, 103):
        reference, compiled = attend_both(NativeAttention(), seed, group, head_dim, None, torch.bfloat16)
        torch.testing.assert_close(compiled, reference, atol=0.03, rtol=0.03, msg=lambda m, s=seed: f"seed {s}: {m}")


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (63, 40), (64, 7), (65, 64), (300, 33)])
def test_a_product_in_panels_is_the_product(outputs: int, inputs: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    weight = torch.randn(outputs, inputs, dtype=dtype)
    head = NativeHead(weight)
    for rows in (0, 1, 5, 6, 7, 13, 64):
        x = torch.randn(rows, inputs, dtype=dtype)
        exact = nn.functional.linear(x.double(), weight.double()).float()
        torch.testing.assert_close(head(x), exact, atol=1e-4, rtol=1e-5)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_tied_embedding_is_read_out_of_the_head_and_kept_once(dtype: str) -> None:
    model = random_model(tiny_config(vocab=300), dtype=dtype)
    plain, tokens = model.embed.weight.clone(), torch.tensor([[0, 299, 64], [31, 32, 0]])
    faster(model, native=True)
    assert model.embed.weight is model.head.weight
    assert torch.equal(model.embed(tokens), plain[tokens])
    untied = faster(random_model(CONFIGS["qwen2"], dtype=dtype), native=True)
    assert isinstance(untied.embed, nn.Embedding)


@pytest.mark.usefixtures("compiled")
def test_an_engine_chooses_compiled_attention_for_a_compiled_model() -> None:
    model = faster(random_model(CONFIGS["llama"], dtype="float32"), native=True)
    assert not any(isinstance(part, Layer | nn.Linear) for part in model.modules())
    assert isinstance(Engine(model, max_model_len=32).attention, NativeAttention)
    layers = list(model.layers)
    assert list(faster(model, native=True).layers) == layers


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_chunks_go_to_a_processor_that_multiplies_bfloat16(
    config: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    whole = FusedLayer.forward
    monkeypatch.setattr(FusedLayer, "forward", lambda self, x, *rest: rows.append(len(x)) or whole(self, x, *rest))
    monkeypatch.setattr(native, "multiplies_bfloat16", lambda: True)
    monkeypatch.setattr(native, "MANY_ROWS", 10)
    agree(config, torch.bfloat16, lambda model: faster(model, native=True))
    assert rows == [14, 14, 14, 14]  # two steps of 14 tokens, two layers
    agree(config, torch.float32, lambda model: faster(model, native=True))
    assert len(rows) == 4


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("without", ["-mno-avx512f", "-mno-avx512f -mno-avx2 -mno-fma -mno-avx"])
def test_older_processors_compute_the_same(without: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINICB_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", f"{' '.join(compiler.find_compiler())} {without}")
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("these are x86 processors")
    monkeypatch.setattr(native, "library", cache(library.__wrapped__))
    assert native.library().lanes() < 16
    for dtype in native.NAMES:
        agree(CONFIGS["all biases"], dtype, lambda model: faster(model, native=True))
        agree(CONFIGS["qwen3"], dtype, lambda model: faster(model, native=True))
    reference, compiled = attend_both(NativeAttention(), 3, 3, 64, 8)
    torch.testing.assert_close(compiled, reference, atol=2e-5, rtol=1e-5)


@pytest.mark.usefixtures("compiled")
def test_it_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.subprocess, "run", None)
    assert library.__wrapped__().lanes() == library().lanes()


@pytest.mark.usefixtures("compiled")
def test_small_numbers_of_the_rest_of_the_process_are_not_flushed_to_zero() -> None:
    assert float(torch.full((1,), 1e-39) * 0.5) > 0


def test_a_type_that_is_not_compiled_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"float32 and bfloat16 on a CPU, not torch.float64 on cpu"):
        faster(random_model(CONFIGS["llama"], dtype="float64"), native=True)


def test_without_a_compiler_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compiler.shutil, "which", lambda _: None)
    with pytest.raises(ValueError, match=r"cannot be built \(there is no C\+\+ compiler\): install g\+\+, or name"):
        library.__wrapped__()


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("{python} -c 'import sys; sys.exit(\"native.cpp:1: error: no such thing\")'", "native.cpp:1: error: no such"),
        ("/no/such/compiler", "No such file or directory: '/no/such/compiler'"),
        ("{python} -c pass", "No such file or directory"),  # says that all is well and makes nothing
    ],
)
def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(
    command: str, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MINICB_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", command.format(python=sys.executable))
    with pytest.raises(ValueError, match=re.escape(why)):
        library.__wrapped__()
    assert not list((tmp_path / "native").iterdir())
