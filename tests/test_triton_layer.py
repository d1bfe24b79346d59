"""The fused layer for CUDA against the plain one: in Triton's interpreter on a CPU, or on the GPU."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from oracle import Steps, one_thread, random_ids
from ragged import answers_of
from torch import nn

from minicb.kernels import attention_on_cuda, faster_on_cuda
from minicb.kernels.graphs import GraphedModel
from minicb.model import Layer, ModelConfig, RMSNorm, RopeConfig, SelfAttention, rotate
from minicb.reference import ReferenceAttention
from minicb.weights import random_model, tiny_config

pytest.importorskip("triton", reason="Triton is not installed: `make kernels` fetches it (Linux)")

from minicb.kernels.triton_attention import TritonAttention
from minicb.kernels.triton_layer import TritonLayer, TritonNorm, add_product, speed_up, swiglu, turned_heads

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROPE = RopeConfig(1e4)
CONFIGS = {
    "llama": tiny_config(heads=9, kv_heads=3),
    "qwen2": ModelConfig(64, 48, 80, 2, 6, 2, 8, ROPE, 512, qkv_bias=True, tied_head=False),
    "qwen3": ModelConfig(64, 48, 80, 2, 4, 2, 16, ROPE, 512, qk_norm=True),
    "all biases": ModelConfig(64, 48, 80, 2, 6, 3, 8, ROPE, 512, qkv_bias=True, output_bias=True, mlp_bias=True),
}
TYPES = {torch.float32: 2e-5, torch.float16: 8e-3}


@pytest.fixture(autouse=True, scope="module")
def small_models_on_one_thread() -> Iterator[None]:
    """Without the usual limit: an interpreter is slow, and slower still on a busy machine."""
    with one_thread():
        yield


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_a_model_of_fused_layers_has_the_logits_of_the_plain_one(config: ModelConfig) -> None:
    plain = random_model(config, std=0.2).to(DEVICE)
    fused = speed_up(copy.deepcopy(plain))
    assert all(isinstance(layer, TritonLayer) for layer in fused.layers)
    rng = random.Random(1)
    prompts = {name: random_ids(rng, n) for name, n in (("a", 9), ("b", 12), ("c", 4))}
    plans: list[dict[str, int]] = [{"a": 5, "b": 3}, {"a": 1, "b": 4, "c": 3}, {"b": 1, "c": 1}]
    one, other = Steps(plain, prompts, ReferenceAttention()), Steps(fused, prompts, ReferenceAttention())
    for plan in plans:
        for expected, found in zip(one(**plan).values(), other(**plan).values(), strict=True):
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("size", [8, 48, 576])
def test_the_norm(size: int, dtype: torch.dtype) -> None:
    norm = RMSNorm(size, 1e-5).to(DEVICE, dtype)
    nn.init.normal_(norm.weight)
    x = 3 * torch.randn(5, size, device=DEVICE).to(dtype)
    near = {"atol": TYPES[dtype], "rtol": TYPES[dtype]}
    torch.testing.assert_close(TritonNorm(norm)(x), norm(x), **near)
    torch.testing.assert_close(TritonNorm(norm)(x.t().contiguous().t()), norm(x), **near)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("size", [3, 80, 1536])
def test_swiglu(size: int, dtype: torch.dtype) -> None:
    gate_up = 3 * torch.randn(4, 2 * size, device=DEVICE).to(dtype)
    gate, up = gate_up.chunk(2, dim=-1)
    torch.testing.assert_close(swiglu(gate_up), F.silu(gate) * up, atol=TYPES[dtype], rtol=TYPES[dtype])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("head_dim", [8, 24, 64])
def test_queries_and_keys_are_normed_and_turned_and_values_left_alone(
    head_dim: int, normed: bool, dtype: torch.dtype
) -> None:
    own = SelfAttention(ModelConfig(8, 8, 8, 1, 3, 1, head_dim, ROPE, 64, qk_norm=normed), 0).to(DEVICE, dtype)
    for weights in own.q_norm.parameters(), own.k_norm.parameters():
        for weight in weights:
            nn.init.normal_(weight)
    qkv, angles = torch.randn(4, 5 * head_dim).to(dtype), torch.randn(4, 1, head_dim // 2)
    qkv, cos, sin = qkv.to(DEVICE), angles.cos().to(DEVICE, dtype), angles.sin().to(DEVICE, dtype)
    q, k, v = (part.view(4, -1, head_dim).clone() for part in qkv.split(own.sizes, dim=-1))
    found = turned_heads(own, qkv, cos, sin)
    near = {"atol": TYPES[dtype], "rtol": TYPES[dtype]}
    with torch.no_grad():
        torch.testing.assert_close(found[0], rotate(own.q_norm(q), cos, sin), **near)
        torch.testing.assert_close(found[1], rotate(own.k_norm(k), cos, sin), **near)
    assert torch.equal(found[2], v)


@pytest.mark.parametrize("bias", [False, True])
@torch.no_grad()
def test_a_product_adds_to_the_rows_in_place(bias: bool) -> None:
    linear = nn.Linear(6, 4, bias=bias).to(DEVICE)
    x, y = torch.randn(3, 4, device=DEVICE), torch.randn(3, 6, device=DEVICE)
    expected = x + linear(y)
    assert add_product(x, y, linear) is x
    torch.testing.assert_close(x, expected)


def test_weights_are_shared_and_a_model_that_does_not_fit_stays_as_it_is() -> None:
    model = random_model(CONFIGS["qwen3"])
    before = {p.data_ptr() for p in model.parameters()}
    assert {p.data_ptr() for p in speed_up(model).parameters()} == before
    layers = list(model.layers)
    assert list(speed_up(model).layers) == layers
    double = random_model(CONFIGS["qwen3"], dtype="float64")
    assert all(isinstance(layer, Layer) for layer in speed_up(double).layers)
    wide = random_model(replace(CONFIGS["qwen3"], head_dim=320))
    assert all(isinstance(layer, Layer) for layer in speed_up(wide).layers)


def test_all_together_an_engine_gives_the_tokens_of_the_plain_one() -> None:
    """Fused layers, the attention kernel and replayed decodes (played by ordinary calls where there is no GPU)."""
    plain = random_model(tiny_config(heads=6, kv_heads=2), std=0.3).to(DEVICE)
    fast = faster_on_cuda(copy.deepcopy(plain))
    assert isinstance(fast, GraphedModel)
    assert isinstance(attention_on_cuda(fast), TritonAttention)
    if DEVICE == "cpu":
        fast.record = lambda work: work
    rng = random.Random(5)
    jobs = [(random_ids(rng, n), count, heat) for n, count, heat in ((5, 2, 0.0), (1, 3, 1.0), (2, 3, 0.0))]

    limits = {"max_num_batched_tokens": 8, "max_num_seqs": 3, "max_model_len": 16}
    assert answers_of(fast, TritonAttention(), jobs, **limits) == answers_of(
        plain, ReferenceAttention(), jobs, **limits
    )
    assert not fast.broken
