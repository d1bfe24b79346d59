"""Every architecture and option that minicb computes, proven against transformers; everything else refused by name."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from oracle import LLAMA3, all_logits, alone, assert_same, hf_model, logits_of, one_thread, ours, random_ids
from torch import Tensor

from minicb.checkpoint import Tokenizer, adapt_config, read_config, read_rope
from minicb.engine import Engine
from minicb.model import Model, rope_frequencies
from minicb.sampling import SamplingParams

LINEAR = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama with a head of its own": ("llama", {"tie_word_embeddings": False}),
    "llama with 8 query heads on 4": ("llama", {"num_attention_heads": 8, "num_key_value_heads": 4}),
    "llama with 4 query heads on 1": ("llama", {"num_attention_heads": 4, "num_key_value_heads": 1}),
    "llama without grouped heads": ("llama", {"num_attention_heads": 4, "num_key_value_heads": 4}),
    "llama with heads wider than hidden": ("llama", {"head_dim": 16}),
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama with another rope base": ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 123.0}}),
    "llama with linear rope": ("llama", {"rope_parameters": LINEAR}),
    "llama with llama3 rope": ("llama", {"rope_parameters": LLAMA3}),
    "llama with a coarse norm epsilon": ("llama", {"rms_norm_eps": 0.3}),
    "mistral": ("mistral", {"sliding_window": None, "tie_word_embeddings": False}),
    "mistral with a window of 7": ("mistral", {"sliding_window": 7}),
    # The smallest: with a window of 1 the cache of transformers itself (5.24) keeps every key.
    "mistral with a window of 2": ("mistral", {"sliding_window": 2}),
    "qwen2": ("qwen2", {}),
    "qwen2 with windows in some layers": (
        "qwen2",
        {"num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1},
    ),
    "qwen2 with its window switched off": ("qwen2", {"use_sliding_window": False, "sliding_window": 9}),
    "qwen3": ("qwen3", {}),
    "qwen3 with biases and a head of its own": ("qwen3", {"attention_bias": True, "tie_word_embeddings": False}),
    "qwen3 with windows in some layers": (
        "qwen3",
        {
            "num_hidden_layers": 3,
            "use_sliding_window": True,
            "sliding_window": 5,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
}
every_case = pytest.mark.parametrize(("kind", "options"), CASES.values(), ids=CASES.keys())


@pytest.fixture(autouse=True, scope="module")
def small_models_on_one_thread() -> Iterator[None]:
    with one_thread():
        yield


def continue_alone(model: Model, ids: list[int], n: int) -> list[int]:
    engine = Engine(model, max_model_len=len(ids) + n, max_num_seqs=1, max_num_batched_tokens=50)
    engine.add_request(ids, SamplingParams(max_tokens=n))
    while True:
        for event in engine.step():
            if event.output:
                return list(event.output.token_ids)


# ---- the same numbers as transformers


@every_case
def test_logits_at_every_position_are_those_of_transformers(kind: str, options: dict[str, Any]) -> None:
    hf = hf_model(kind, seed=1, **options)
    ids = random_ids(random.Random(1), 100)
    torch.testing.assert_close(logits_of(ours(hf), ids), all_logits(hf, ids), atol=1e-4, rtol=0)


@every_case
def test_greedy_tokens_are_those_of_transformers(kind: str, options: dict[str, Any]) -> None:
    hf = hf_model(kind, seed=2, **options)
    ids = random_ids(random.Random(2), 60)
    expected = alone(hf, ids, 12)
    assert_same(continue_alone(ours(hf), ids, 12), expected.tokens, expected.margins)


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
def test_transformers_says_the_same_with_and_without_its_cache(kind: str) -> None:
    """The oracle itself stands on two legs."""
    hf = hf_model(kind, seed=2)
    ids = random_ids(random.Random(2), 60)
    cached, uncached = alone(hf, ids, 12), alone(hf, ids, 12, use_cache=False)
    assert_same(cached.tokens, uncached.tokens, uncached.margins)


@every_case
def test_in_float64_nothing_but_rounding_is_left_of_the_difference(
    kind: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers computes norms and softmax in float32 whatever the model's type; without that they agree to 1e-9."""
    hf = hf_model(kind, seed=3, std=0.5, dtype=torch.float64, attn_implementation="sdpa", **options)
    ids = random_ids(random.Random(3), 100)
    torch.testing.assert_close(logits_of(ours(hf), ids), all_logits(hf, ids), atol=1e-3, rtol=0)
    for norm in (module for module in hf.modules() if "RMSNorm" in type(module).__name__):
        monkeypatch.setattr(norm, "forward", float64_norm(norm))
    torch.testing.assert_close(logits_of(ours(hf), ids), all_logits(hf, ids), atol=1e-9, rtol=0)


def float64_norm(norm: Any) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon) * norm.weight

    return forward


# ---- what decides the numbers is read, in both spellings


def stub(**fields: Any) -> Any:
    """A config object with these attributes beside the usual ones."""
    usual = {
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": 64,
        "hidden_size": 72,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    }
    return SimpleNamespace(**{**usual, **fields})


THETA_SPELLINGS = {
    "by itself": {"rope_theta": 123_456.0},
    "by itself, with scaling": {"rope_theta": 123_456.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
    "in rope_parameters": {"rope_parameters": {"rope_type": "default", "rope_theta": 123_456.0}},
    "in both": {"rope_theta": 123_456.0, "rope_parameters": {"rope_type": "default", "rope_theta": 123_456.0}},
    "by itself, with empty rope_parameters": {"rope_theta": 123_456.0, "rope_parameters": None},
}


@pytest.mark.parametrize("spelling", THETA_SPELLINGS.values(), ids=THETA_SPELLINGS.keys())
def test_the_rope_base_is_found_in_either_spelling(spelling: dict[str, Any]) -> None:
    assert read_rope(SimpleNamespace(**spelling)).theta == 123_456.0


def test_a_config_without_a_rope_base_is_refused_rather_than_guessed() -> None:
    with pytest.raises(ValueError, match="rope_theta"):
        read_rope(SimpleNamespace(rope_parameters={"rope_type": "default"}))


def test_the_frequencies_come_from_the_base() -> None:
    rope = read_rope(SimpleNamespace(rope_theta=123_456.0))
    expected = torch.tensor([123_456.0 ** (-2 * i / 8) for i in range(4)])
    torch.testing.assert_close(rope_frequencies(rope, 8), expected)


@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_the_rope_scaling_of_older_configs_is_read(key: str) -> None:
    scaling = {**LLAMA3, key: "llama3"}
    del scaling["rope_theta"]
    if key == "type":
        del scaling["rope_type"]
    assert read_rope(SimpleNamespace(rope_theta=1e4, rope_scaling=scaling)) == read_rope(stub(rope_parameters=LLAMA3))


@pytest.mark.parametrize("theta_in_parameters", [True, False])
def test_a_checkpoint_folder_in_either_spelling_gives_the_same_base(tmp_path: Path, theta_in_parameters: bool) -> None:
    config = hf_model("llama").config.to_dict()
    del config["rope_parameters"]
    theta = {"rope_theta": 123_456.0}
    config |= {"rope_parameters": {"rope_type": "default", **theta}} if theta_in_parameters else theta
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert read_config(tmp_path).rope.theta == 123_456.0


def test_a_missing_count_of_kv_heads_means_one_for_each_query_head() -> None:
    assert adapt_config(stub(num_key_value_heads=None)).num_kv_heads == 9


def test_a_missing_head_size_is_hidden_over_heads() -> None:
    assert adapt_config(stub(head_dim=None)).head_dim == 8


def test_qwen2_has_biases_on_q_k_v_only_though_its_config_does_not_say_so() -> None:
    config = adapt_config(stub(model_type="qwen2"))
    assert (config.qkv_bias, config.output_bias, config.mlp_bias) == (True, False, False)


def test_no_window_means_full_attention_in_every_layer() -> None:
    assert adapt_config(stub(model_type="mistral", sliding_window=None)).windows == ()


def test_a_window_without_layer_types_holds_in_every_layer() -> None:
    assert adapt_config(stub(model_type="mistral", sliding_window=7)).windows == (7, 7, 7)


def test_a_window_holds_only_in_the_layers_that_slide() -> None:
    kinds = ["full_attention", "sliding_attention", "full_attention"]
    config = adapt_config(stub(model_type="qwen3", sliding_window=7, use_sliding_window=True, layer_types=kinds))
    assert config.windows == (None, 7, None)


def test_a_window_that_is_switched_off_is_no_window() -> None:
    assert adapt_config(stub(model_type="qwen2", sliding_window=7, use_sliding_window=False)).windows == ()


# ---- whatever is not computed is refused by its name


@pytest.mark.parametrize("kind", ["gpt2", "gemma2", "mixtral", "qwen2_moe"])
def test_another_architecture_is_refused_by_name(kind: str) -> None:
    with pytest.raises(ValueError, match=f"model_type '{kind}' is not supported.*llama"):
        adapt_config(stub(model_type=kind))


def test_another_activation_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="hidden_act 'gelu' is not supported"):
        adapt_config(stub(hidden_act="gelu"))


@pytest.mark.parametrize("kind", ["yarn", "dynamic", "longrope", "su", "proportional"])
def test_another_rope_type_is_refused_by_name(kind: str) -> None:
    with pytest.raises(ValueError, match=f"rope type '{kind}' is not supported"):
        adapt_config(stub(rope_parameters={"rope_type": kind, "rope_theta": 1e4, "factor": 2.0}))


def test_rope_on_a_part_of_the_head_is_refused_by_name() -> None:
    parameters = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    with pytest.raises(ValueError, match=r"partial_rotary_factor 0\.5 is not supported"):
        adapt_config(stub(rope_parameters=parameters))


def test_query_heads_that_do_not_divide_among_the_kv_heads_are_refused_with_the_numbers() -> None:
    with pytest.raises(ValueError, match="num_attention_heads 9 is no multiple of num_key_value_heads 2"):
        adapt_config(stub(num_key_value_heads=2))


# ---- every id that ends an answer


@pytest.mark.parametrize(("value", "expected"), [(None, set()), (2, {2}), ([2, 5], {2, 5}), (0, {0})])
def test_end_ids_are_none_one_or_several(value: Any, expected: set[int]) -> None:
    assert adapt_config(stub(eos_token_id=value)).end_ids == expected


def test_end_ids_of_config_and_generation_config_both_count(tmp_path: Path) -> None:
    config = hf_model("llama", eos_token_id=3).config
    config.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 7]}', encoding="utf-8")
    assert read_config(tmp_path).end_ids == {3, 5, 7}


def test_the_tokenizers_end_id_counts_too() -> None:
    assert Tokenizer(SimpleNamespace(eos_token_id=9)).end_ids == {9}


@pytest.mark.parametrize("place", [0, 1, 2])
def test_each_of_several_end_ids_ends_an_answer_as_in_transformers(place: int) -> None:
    hf = hf_model("llama", seed=4)
    ids = random_ids(random.Random(4), 20)
    free = alone(hf, ids, 12).tokens
    new = [token for i, token in enumerate(free) if token not in free[:i]]
    never = [token for token in range(64) if token not in free][:2]
    ends = [*never[:place], new[2], *never[place:]]
    hf.generation_config.eos_token_id = hf.config.eos_token_id = ends
    expected = alone(hf, ids, 12)
    assert 0 < len(expected.tokens) < 12
    engine = Engine(ours(hf), max_model_len=64)
    engine.add_request(ids, SamplingParams(max_tokens=12))
    outputs = [event.output for _ in range(20) for event in engine.step() if event.output]
    assert list(outputs[0].token_ids) == expected.tokens
    assert outputs[0].finish_reason == "stop"
