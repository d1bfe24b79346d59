"""What only a GPU can show: real graphs, real copies, how often Python waits. Skipped without one.

`make gpu` runs these, the kernel's tests on the device, and the benchmark.
"""

from __future__ import annotations

import copy
import random
import warnings
from dataclasses import replace

import pytest
import torch
from oracle import Steps, random_ids
from ragged import answers_of, attend_both

from minicb.cache import in_one_copy
from minicb.engine import Engine
from minicb.kernels import best_attention, faster
from minicb.kernels.graphs import GraphedModel
from minicb.kernels.varlen import TOLERANCE, objection, probe_error
from minicb.model import ModelConfig, RopeConfig
from minicb.reference import ReferenceAttention
from minicb.sampling import SamplingParams
from minicb.weights import random_model, tiny_config

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU here")
CONFIGS = {
    "llama": tiny_config(heads=9, kv_heads=3),
    "qwen3": ModelConfig(64, 48, 80, 2, 4, 2, 16, RopeConfig(1e4), 512, qk_norm=True),
    "windows": replace(tiny_config(heads=6, kv_heads=2), windows=(5, None)),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_replayed_steps_have_the_logits_of_the_plain_model(config: ModelConfig) -> None:
    plain = random_model(config, std=0.2).to("cuda")
    fast = faster(copy.deepcopy(plain))
    assert isinstance(fast, GraphedModel)
    rng = random.Random(0)
    prompts = {name: random_ids(rng, 14) for name in "abcdefg"}
    one, other = Steps(plain, prompts, ReferenceAttention()), Steps(fast, prompts, best_attention(fast))
    for n, names in enumerate(("abcdefg", "abcde", "ab", "bcd", "g", "abcdefg", "efg")):
        plan = dict.fromkeys(names, 1 if n else 4)
        for expected, found in zip(one(**plan).values(), other(**plan).values(), strict=True):
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert not fast.broken
    assert {key[0] for key in fast.recorded[other.cache]} == {1, 2, 4, 8}


def test_an_engine_on_a_gpu_gives_the_tokens_of_the_reference_on_a_cpu() -> None:
    plain = random_model(CONFIGS["llama"], std=0.3)
    rng = random.Random(2)
    jobs = [(random_ids(rng, rng.randint(1, 40)), rng.randint(1, 30), rng.choice([0.0, 1.0])) for _ in range(40)]

    fast = faster(copy.deepcopy(plain).to("cuda"))
    limits = {"max_num_batched_tokens": 32, "max_num_seqs": 9, "max_model_len": 80}
    assert answers_of(fast, "auto", jobs, **limits) == answers_of(plain, "reference", jobs, **limits)


@pytest.mark.parametrize("greedy", [True, False])
def test_a_decode_step_waits_for_the_device_once(greedy: bool) -> None:
    """For its tokens. A step that draws numbers brings them over, which may wait; a greedy one has nothing to bring."""
    model = faster(random_model(CONFIGS["llama"]).to("cuda"))
    engine = Engine(model, max_num_seqs=4, max_model_len=64)
    for n in range(4):
        params = SamplingParams(max_tokens=40, temperature=0.0 if greedy else 1.0, seed=n, ignore_eos=True)
        engine.add_request([1 + n, 2, 3], params)
    for _ in range(4):  # reads the prompts, records the step
        engine.step()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as waits:
            warnings.simplefilter("always")
            engine.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    places = [str(wait.filename) for wait in waits if "synchroniz" in str(wait.message)]
    assert (len(places) == 1) if greedy else (1 <= len(places) <= 4), places


@pytest.mark.parametrize("group", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_the_kernel_in_bfloat16_differs_by_its_rounding_only(group: int, head_dim: int) -> None:
    attention = pytest.importorskip("minicb.kernels.triton_attention").TritonAttention()
    for seed in range(5):
        reference, found = attend_both(attention, seed, group, head_dim, None, torch.bfloat16, "cuda")
        torch.testing.assert_close(found, reference, atol=0.03, rtol=0.03, msg=lambda m, s=seed: f"seed {s}: {m}")


def test_tensors_that_travel_together_arrive_as_they_were() -> None:
    sent = [torch.arange(5), torch.arange(3, dtype=torch.int32), torch.arange(6, dtype=torch.int32).view(2, 3)]
    for _ in range(50):  # the pinned memory is used again
        for one, other in zip(sent, in_one_copy(sent, torch.device("cuda")), strict=True):
            assert torch.equal(other.cpu(), one)
        sent = [t + 1 for t in sent]


@pytest.mark.parametrize("window", [None, 100])
def test_the_librarys_attention_equals_the_reference_where_it_can_be_used(window: int | None) -> None:
    device = torch.device("cuda", 0)
    why_not = objection(device, torch.bfloat16)
    if why_not and "is off by" not in why_not:
        pytest.skip(why_not)
    assert probe_error(device, torch.bfloat16, window) < TOLERANCE
