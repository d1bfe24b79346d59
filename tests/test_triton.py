"""The Triton kernels against the reference: in Triton's interpreter on a CPU, on the device where there is a GPU.

The interpreter multiplies the bit patterns of bfloat16, not its numbers, so half precision is float16 here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from oracle import Steps, one_thread, poison, random_ids
from ragged import attend_both, make_batch

from minicb.batch import Batch
from minicb.cache import KVCache
from minicb.engine import Engine
from minicb.model import ModelConfig, RopeConfig
from minicb.reference import Attention, ReferenceAttention
from minicb.sampling import SamplingParams
from minicb.weights import random_model, tiny_config

pytest.importorskip("triton", reason="Triton is not installed: `make kernels` fetches it (Linux)")

from minicb.kernels.triton_attention import TritonAttention, write

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [(group, size) for group in (1, 2, 3, 4, 7) for size in (64, 128)]


@pytest.fixture(autouse=True, scope="module")
def small_models_on_one_thread() -> Iterator[None]:
    """Without the usual limit: an interpreter is slow, and slower still on a busy machine."""
    with one_thread():
        yield


@pytest.mark.parametrize(("group", "head_dim"), SHAPES)
@pytest.mark.parametrize("window", [None, 8])
def test_the_kernel_equals_the_reference_over_random_steps(group: int, head_dim: int, window: int | None) -> None:
    for seed in (group, 50 + head_dim):
        reference, found = attend_both(TritonAttention(), seed, group, head_dim, window, device=DEVICE)
        assert reference.isfinite().all()
        torch.testing.assert_close(found, reference, atol=2e-5, rtol=1e-5, msg=lambda m, s=seed: f"seed {s}: {m}")


@pytest.mark.parametrize("window", [1, 40, 200])
@pytest.mark.parametrize("head_dim", [8, 24, 80])
def test_windows_and_head_sizes_of_any_width(window: int, head_dim: int) -> None:
    reference, found = attend_both(TritonAttention(), window + head_dim, 3, head_dim, window, device=DEVICE)
    torch.testing.assert_close(found, reference, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(("group", "head_dim"), SHAPES)
def test_in_half_precision_it_differs_by_its_rounding_only(group: int, head_dim: int) -> None:
    reference, found = attend_both(TritonAttention(), 7 * group, group, head_dim, None, torch.float16, DEVICE)
    torch.testing.assert_close(found, reference, atol=4e-3, rtol=4e-3)


def setting(batch: Batch, num_pages: int, page_size: int) -> tuple[KVCache, list[torch.Tensor]]:
    """A poisoned cache of 2 KV heads of 16 and the step's q (6 heads), k, v."""
    config = ModelConfig(8, 8, 8, 1, 6, 2, 16, RopeConfig(1e4), 512)
    cache = KVCache(config, num_pages, page_size, torch.device(DEVICE), torch.float32)
    poison(cache)
    torch.manual_seed(0)
    return cache, [torch.randn(len(batch.positions), heads, 16).to(DEVICE) for heads in (6, 2, 2)]


def test_a_request_without_context_gets_zeros_and_its_neighbours_their_own() -> None:
    batch, pages = make_batch(random.Random(0), 4, [5, 1, 9], [5, 1, 9])
    cache, qkv = setting(batch, pages, 4)
    full = TritonAttention().bind(batch.to(torch.device(DEVICE)), cache)(0, None, *qkv)
    empty = replace(batch, kv_len=torch.tensor([5, 0, 9], dtype=torch.int32))
    found = TritonAttention().bind(empty.to(torch.device(DEVICE)), cache)(0, None, *qkv)
    assert (found[5] == 0).all()
    kept = [row for row in range(15) if row != 5]
    assert torch.equal(found[kept], full[kept])
    assert full.isfinite().all()


def test_rows_on_the_dummy_page_change_nothing_for_the_others() -> None:
    """As when a batch is padded to the size of a CUDA graph: several rows write to one slot, none is read by others."""
    batch, pages = make_batch(random.Random(1), 4, [6, 3], [1, 1])
    cache, (q, k, v) = setting(batch, pages, 4)
    for slots in batch.page_table[:, 0] * 4, batch.page_table[:1, 1] * 4:
        for slot in slots.tolist():
            for tensor in (cache.k, cache.v):
                tensor[0, slot : slot + 4] = torch.randn(4, 2, 16, device=DEVICE)
    alone = TritonAttention().bind(batch.to(torch.device(DEVICE)), cache)(0, None, q, k, v)
    none, one = torch.zeros(3, dtype=torch.int64), torch.ones(3, dtype=torch.int32)
    padded = replace(
        batch,
        slots=torch.cat((batch.slots, none)),
        positions=torch.cat((batch.positions, none)),
        q_start=torch.arange(6, dtype=torch.int32),
        kv_len=torch.cat((batch.kv_len, one)),
        page_table=torch.cat((batch.page_table, torch.zeros(3, 2, dtype=torch.int32))),
    )
    wide = [torch.cat((x, torch.randn(3, *x.shape[1:], device=DEVICE))) for x in (q, k, v)]
    found = TritonAttention().bind(padded.to(torch.device(DEVICE)), cache)(0, None, *wide)
    assert torch.equal(found[:2], alone)
    assert found.isfinite().all()


def test_rows_may_lie_in_memory_in_any_way() -> None:
    batch, pages = make_batch(random.Random(2), 4, [7, 3], [4, 1])
    cache, qkv = setting(batch, pages, 4)
    own = batch.page_table.long()[:, :, None] * 4 + torch.arange(4)
    for tensor in (cache.k, cache.v):
        tensor[0, own.flatten()] = 0.5
    step = TritonAttention().bind(batch.to(torch.device(DEVICE)), cache)
    expected = step(0, None, *qkv)
    sliced = [torch.cat((x, x), dim=1).view(5, 2, -1, 16)[:, 1] for x in qkv]
    turned = [x.permute(2, 1, 0).contiguous().permute(2, 1, 0) for x in qkv]
    assert not any(x.is_contiguous() for x in (*sliced, *turned))
    assert torch.equal(step(0, None, *sliced), expected)
    assert torch.equal(step(0, None, *turned), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize(("kv_heads", "head_dim"), [(1, 8), (3, 64), (5, 24)])
def test_a_write_touches_its_own_slots_and_no_others(kv_heads: int, head_dim: int, dtype: torch.dtype) -> None:
    caches = torch.randn(2, 20, kv_heads, head_dim, device=DEVICE).to(dtype)
    k, v = torch.randn(2, 4, kv_heads, head_dim, device=DEVICE).to(dtype)
    slots, before = torch.tensor([19, 0, 7, 8], device=DEVICE), caches.clone()
    write(caches[0], caches[1], slots, k, v)
    before[0, slots], before[1, slots] = k, v
    assert torch.equal(caches, before)


@pytest.mark.skipif(DEVICE == "cuda", reason="8 GB of zeros cost nothing on a CPU only, where nobody touches them")
def test_offsets_are_counted_in_64_bits() -> None:
    """The page in use lies behind the first 2^31 numbers of the cache."""
    config = ModelConfig(8, 8, 8, 1, 1, 1, 16, RopeConfig(1e4), 512)
    page_size, last = 1 << 20, 129
    cache = KVCache(config, last + 1, page_size, torch.device("cpu"), torch.float16)
    assert last * page_size * 16 > 1 << 31
    batch = replace(
        make_batch(random.Random(0), page_size, [3], [3])[0],
        slots=last * page_size + torch.arange(3),
        page_table=torch.tensor([[last]], dtype=torch.int32),
    )
    q, k, v = torch.randn(3, 3, 1, 16).half()
    found = TritonAttention().bind(batch, cache)(0, None, q, k, v)
    assert torch.equal(cache.v[0, batch.slots], v)
    small = KVCache(config, 1, 4, torch.device("cpu"), torch.float32)
    near = replace(batch, slots=torch.arange(3), page_table=torch.zeros(1, 1, dtype=torch.int32))
    expected = ReferenceAttention().bind(near, small)(0, None, q.float(), k.float(), v.float())
    torch.testing.assert_close(found.float(), expected, atol=4e-3, rtol=4e-3)


@pytest.mark.parametrize("windows", [(), (5, None)], ids=["full", "windows"])
def test_a_model_has_the_logits_that_it_has_with_the_reference(windows: tuple[int | None, ...]) -> None:
    """Three requests over mixed steps: chunks, decodes, newcomers."""
    config = replace(tiny_config(heads=9, kv_heads=3), windows=windows)
    model = random_model(config, std=0.2, dtype="float32").to(DEVICE)
    rng = random.Random(1)
    prompts = {name: random_ids(rng, n) for name, n in (("a", 9), ("b", 18), ("c", 8))}
    plans: list[dict[str, int]] = [{"a": 8, "b": 6}, {"a": 1, "b": 6, "c": 7}, {"b": 1, "c": 1}, {"b": 5}]
    plain, fast = Steps(model, prompts, ReferenceAttention()), Steps(model, prompts, TritonAttention())
    for plan in plans:
        for one, other in zip(plain(**plan).values(), fast(**plan).values(), strict=True):
            torch.testing.assert_close(other, one, atol=1e-4, rtol=1e-4)


def test_an_engine_gives_the_same_tokens_with_it() -> None:
    model = random_model(tiny_config(heads=6, kv_heads=2), std=0.3, dtype="float32").to(DEVICE)
    rng = random.Random(3)
    prompts = [random_ids(rng, n) for n in (3, 11, 6, 1)]

    def answers(attention: Attention) -> list[list[int]]:
        engine = Engine(model, max_num_batched_tokens=8, max_num_seqs=3, max_model_len=24, attention=attention)
        names = [engine.add_request(ids, SamplingParams(max_tokens=5, ignore_eos=True)) for ids in prompts]
        found = {name: list[int]() for name in names}
        while engine.has_unfinished_requests:
            for event in engine.step():
                if event.token_id is not None:
                    found[event.request_id].append(event.token_id)
        return [found[name] for name in names]

    assert answers(TritonAttention()) == answers(ReferenceAttention())
