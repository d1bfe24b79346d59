"""The ragged step: chunks, neighbours and back ends change nothing, whatever the shapes.

Every attention back end of the engine is held against the reference, and the reference against a loop over heads
that is too plain to be wrong. All caches here are full of NaN where nothing was written.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

import pytest
import torch
from oracle import Steps, logits_of, one_thread, poison, random_ids
from ragged import attend_both, make_batch, owned_slots
from torch import Tensor

from minicb.attention import attend, repeat_kv
from minicb.cache import KVCache
from minicb.engine import Engine
from minicb.kernels.grouped import GroupedAttention
from minicb.model import Model, ModelConfig, RopeConfig
from minicb.reference import Attention, ReferenceAttention, step_mask
from minicb.sampling import SamplingParams
from minicb.weights import random_model, tiny_config

BACK_ENDS = {"reference": ReferenceAttention(), "grouped": GroupedAttention()}
both = pytest.mark.parametrize("attention", BACK_ENDS.values(), ids=BACK_ENDS.keys())
IDS = random_ids(random.Random(0), 23)
RAGGED_SPLITS = [[1, 22], [22, 1], [5, 1, 1, 16], [1, 1, 1, 20], [11, 12]]


@pytest.fixture(autouse=True, scope="module")
def small_models_on_one_thread() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(scope="module")
def model() -> Model:
    return random_model(tiny_config(heads=9, kv_heads=3))


@pytest.fixture(scope="module")
def windowed() -> Model:
    config = ModelConfig(64, 72, 96, 3, 9, 3, 8, RopeConfig(1e4), 512, windows=(5, None, 1))
    return random_model(config)


def in_chunks(model: Model, ids: Sequence[int], sizes: Sequence[int], attention: Attention) -> Tensor:
    """Logits at every position, computed chunk after chunk with the cache between them."""
    steps = Steps(model, {"a": ids}, attention)
    return torch.cat([steps(a=size)["a"] for size in sizes])


def even_chunks(total: int, size: int) -> list[int]:
    return [min(size, total - start) for start in range(0, total, size)]


# ---- a prompt in chunks


@both
@pytest.mark.parametrize("size", range(1, 24))
def test_a_prompt_in_chunks_gives_the_logits_of_the_whole(model: Model, attention: Attention, size: int) -> None:
    chunked = in_chunks(model, IDS, even_chunks(23, size), attention)
    torch.testing.assert_close(chunked, logits_of(model, IDS), atol=1e-4, rtol=0)


@both
@pytest.mark.parametrize("sizes", RAGGED_SPLITS, ids=str)
def test_chunks_may_be_of_any_sizes(model: Model, attention: Attention, sizes: list[int]) -> None:
    chunked = in_chunks(model, IDS, sizes, attention)
    torch.testing.assert_close(chunked, logits_of(model, IDS), atol=1e-4, rtol=0)


@both
@pytest.mark.parametrize("size", [1, 2, 4, 6, 22])
def test_a_sliding_window_slides_over_chunks_too(windowed: Model, attention: Attention, size: int) -> None:
    chunked = in_chunks(windowed, IDS, even_chunks(23, size), attention)
    torch.testing.assert_close(chunked, logits_of(windowed, IDS), atol=1e-4, rtol=0)


@both
@pytest.mark.parametrize("later", [1, 5, 6, 12, 22])
def test_a_later_token_changes_no_earlier_logits(model: Model, attention: Attention, later: int) -> None:
    changed = [*IDS[:later], (IDS[later] + 1) % 64, *IDS[later + 1 :]]
    before, after = (in_chunks(model, ids, [5, 1, 6, 11], attention) for ids in (IDS, changed))
    assert torch.equal(before[:later], after[:later])
    assert not torch.allclose(before[later:], after[later:], atol=1e-2)


@both
def test_half_precision_chunks_agree_with_the_whole_up_to_its_rounding(attention: Attention) -> None:
    model = random_model(tiny_config(heads=9, kv_heads=3), std=0.2, dtype="bfloat16")
    chunked = in_chunks(model, IDS, [5, 1, 1, 16], attention)
    torch.testing.assert_close(chunked, logits_of(model, IDS), atol=0.1, rtol=0.05)


# ---- neighbours in the same step


@both
def test_one_step_may_hold_a_decode_a_later_chunk_and_a_newcomer(model: Model, attention: Attention) -> None:
    rng = random.Random(1)
    prompts = {name: random_ids(rng, n) for name, n in (("a", 9), ("b", 18), ("c", 8))}
    steps = Steps(model, prompts, attention)
    steps(a=8, b=6)
    mixed = steps(a=1, b=6, c=8)
    for name, rows in (("a", slice(8, 9)), ("b", slice(6, 12)), ("c", slice(0, 8))):
        expected = logits_of(model, prompts[name])[rows]
        torch.testing.assert_close(mixed[name], expected, atol=1e-4, rtol=0, msg=f"request {name}")


@both
def test_packed_requests_have_the_logits_that_they_have_alone(model: Model, attention: Attention) -> None:
    rng = random.Random(2)
    prompts = {name: random_ids(rng, n) for name, n in (("a", 5), ("b", 9), ("c", 4))}
    prompts["b"][0] = prompts["a"][-1]  # the border between two requests is no token of its own
    together = Steps(model, prompts, attention)(a=5, b=9, c=4)
    for name, ids in prompts.items():
        torch.testing.assert_close(together[name], logits_of(model, ids), atol=1e-4, rtol=0, msg=f"request {name}")


@both
def test_another_prompt_next_door_changes_nothing_at_all(model: Model, attention: Attention) -> None:
    rng = random.Random(3)
    prompts = {name: random_ids(rng, n) for name, n in (("a", 7), ("b", 9), ("c", 4))}
    other = {**prompts, "a": [(token + 1) % 64 for token in prompts["a"]]}
    plans: list[dict[str, int]] = [{"a": 5, "b": 8}, {"a": 1, "b": 1, "c": 3}, {"a": 1, "c": 1}]
    one, two = (Steps(model, ids, attention) for ids in (prompts, other))
    for plan in plans:
        before, after = one(**plan), two(**plan)
        assert not torch.equal(before["a"], after["a"])
        assert all(torch.equal(before[name], after[name]) for name in plan if name != "a"), plan


@both
def test_the_order_of_the_requests_in_a_step_does_not_matter(model: Model, attention: Attention) -> None:
    rng = random.Random(4)
    prompts = {name: random_ids(rng, n) for name, n in (("a", 5), ("b", 9), ("c", 4))}
    forth = Steps(model, prompts, attention)(a=5, b=9, c=4)
    back = Steps(model, prompts, attention)(c=4, b=9, a=5)
    for name in prompts:
        torch.testing.assert_close(forth[name], back[name], atol=1e-5, rtol=0)


@pytest.mark.parametrize("new", [[5, 9, 4], [1, 6, 4], [1, 1, 1]], ids=["all start", "one of each", "all decode"])
def test_the_mask_of_a_step_lets_nobody_look_at_another_request(new: list[int]) -> None:
    kv_len = [5, 9, 4]
    mask = step_mask(make_batch(random.Random(8), 4, kv_len, new)[0])
    for i, rows in enumerate(mask.split(new)):
        for j, part in enumerate(rows.split(kv_len, dim=1)):
            expected = torch.ones(new[i], kv_len[j], dtype=torch.bool).tril(kv_len[i] - new[i]) & (i == j)
            assert torch.equal(part, expected), (i, j)


def test_a_nan_that_one_request_left_in_its_slot_never_reaches_the_next_owner(model: Model) -> None:
    engine = Engine(model, max_num_seqs=2, max_model_len=64)
    alone = Engine(model, max_num_seqs=1, max_model_len=64)
    poison(engine.cache)
    answers = []
    for one in (engine, alone):
        one.add_request(IDS[:3], SamplingParams(max_tokens=6), "short")
        if one is engine:
            one.add_request(IDS, SamplingParams(max_tokens=6), "long")
        outputs = {e.request_id: e.output for _ in range(20) for e in one.step() if e.output}
        answers.append(outputs["short"].token_ids)
    assert answers[0] == answers[1]


# ---- positions, each once


def record_positions(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """What is handed to the rotary step, one list for each step of the engine."""
    seen: list[list[int]] = []
    angles = Model.angles

    def record(self: Model, positions: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(positions.tolist())
        return angles(self, positions)

    monkeypatch.setattr(Model, "angles", record)
    return seen


def run(engine: Engine, ids: Sequence[int], n: int) -> tuple[int, ...]:
    engine.add_request(ids, SamplingParams(max_tokens=n))
    while True:
        for event in engine.step():
            if event.output:
                return event.output.token_ids


def test_positions_count_on_after_the_prompt_each_once(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = record_positions(monkeypatch)
    run(Engine(model, max_model_len=64), IDS[:6], 5)
    assert seen == [[0, 1, 2, 3, 4, 5], [6], [7], [8], [9]]


def test_positions_count_on_from_chunk_to_chunk(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = record_positions(monkeypatch)
    run(Engine(model, max_model_len=64, max_num_batched_tokens=4), IDS[:6], 3)
    assert seen == [[0, 1, 2, 3], [4, 5], [6], [7]]


def test_each_request_counts_its_own_positions(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = record_positions(monkeypatch)
    engine = Engine(model, max_model_len=64)
    for n in (3, 5):
        engine.add_request(IDS[:n], SamplingParams(max_tokens=2))
    engine.step()
    engine.step()
    assert seen == [[0, 1, 2, 0, 1, 2, 3, 4], [3, 5]]


def test_the_same_prompt_twice_on_one_engine_gives_the_same_answer(model: Model) -> None:
    engine = Engine(model, max_model_len=64)
    assert run(engine, IDS, 8) == run(engine, IDS, 8)


def test_a_short_prompt_after_a_long_one_is_answered_as_on_a_fresh_engine(model: Model) -> None:
    used, fresh = Engine(model, max_model_len=64, max_num_seqs=1), Engine(model, max_model_len=64, max_num_seqs=1)
    run(used, IDS, 16)
    assert run(used, IDS[:3], 8) == run(fresh, IDS[:3], 8)


def test_after_a_fault_in_the_middle_of_an_answer_a_reset_engine_is_as_good_as_new(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(Engine(model, max_model_len=64), IDS, 8)
    engine = Engine(model, max_model_len=64)
    engine.add_request(IDS, SamplingParams(max_tokens=8))
    engine.step()
    engine.step()
    with monkeypatch.context() as broken:
        broken.setattr(Model, "logits", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.step()
    engine.reset()
    assert run(engine, IDS, 8) == expected


# ---- grouped heads


def head_by_head(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """q: [T, H, D]   k, v: [S, Hkv, D]   mask: bool [T, S]   returns: [T, H, D]"""
    group = q.shape[1] // k.shape[1]
    heads = []
    for h in range(q.shape[1]):
        scores = q[:, h] @ k[:, h // group].T / math.sqrt(q.shape[2])
        heads.append(torch.softmax(scores.masked_fill(~mask, -math.inf), dim=-1) @ v[:, h // group])
    return torch.stack(heads, dim=1)


@pytest.mark.parametrize(("heads", "kv_heads"), [(9, 3), (8, 4), (6, 1), (4, 4), (14, 2)])
def test_each_kv_head_serves_neighbouring_query_heads(heads: int, kv_heads: int) -> None:
    generator = torch.Generator().manual_seed(heads)
    q = torch.randn(4, heads, 8, generator=generator)
    k, v = torch.randn(2, 11, kv_heads, 8, generator=generator)
    mask = torch.ones(4, 11, dtype=torch.bool).tril(7)
    torch.testing.assert_close(attend(q, k, v, mask), head_by_head(q, k, v, mask))


def test_kv_heads_are_repeated_and_not_tiled() -> None:
    heads = torch.arange(3.0).reshape(1, 3, 1)
    assert repeat_kv(heads, 3).flatten().tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


# ---- every back end against the reference, over random ragged shapes


SHAPES = [(group, size) for group in (1, 2, 3, 4, 7) for size in (8, 64, 128)]
shapes = pytest.mark.parametrize(("group", "head_dim"), SHAPES)


@shapes
@pytest.mark.parametrize("window", [None, 1, 8, 40])
def test_the_grouped_back_end_equals_the_reference_in_float32(group: int, head_dim: int, window: int | None) -> None:
    for seed in range(5):
        reference, grouped = attend_both(GroupedAttention(), seed, group, head_dim, window)
        assert reference.isfinite().all()
        torch.testing.assert_close(grouped, reference, atol=2e-5, rtol=1e-5, msg=lambda m, s=seed: f"seed {s}: {m}")


@shapes
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_in_half_precision_they_differ_by_its_rounding_only(group: int, head_dim: int, dtype: torch.dtype) -> None:
    coarse = 0.03 if dtype is torch.bfloat16 else 0.004  # about 8 bits and 11 bits of shares that add up to 1
    for seed in range(100, 103):
        reference, grouped = attend_both(GroupedAttention(), seed, group, head_dim, None, dtype)
        torch.testing.assert_close(grouped, reference, atol=coarse, rtol=coarse, msg=lambda m, s=seed: f"seed {s}: {m}")


@pytest.mark.parametrize("window", [None, 6])
def test_the_reference_equals_a_loop_over_requests_and_heads(window: int | None) -> None:
    rng, generator = random.Random(5), torch.Generator().manual_seed(5)
    kv_len, new = [7, 1, 12, 20], [1, 1, 12, 6]
    batch, pages = make_batch(rng, 4, kv_len, new)
    config = ModelConfig(8, 8, 8, 1, 6, 2, 8, RopeConfig(1e4), 512)
    cache = KVCache(config, pages, 4, torch.device("cpu"), torch.float32)
    poison(cache)
    history = [torch.randn(2, n, 2, 8, generator=generator) for n in kv_len]
    for slots, (keys, values) in zip(owned_slots(batch, 4), history, strict=True):
        cache.write(0, slots, keys, values)
    newest = torch.cat([one[:, len(one[0]) - n :] for one, n in zip(history, new, strict=True)], dim=1)
    q = torch.randn(sum(new), 6, 8, generator=generator)
    out = ReferenceAttention().bind(batch, cache)(0, window, q, *newest)
    for own, n, context, (keys, values) in zip(q.split(new), new, kv_len, history, strict=True):
        at = torch.arange(context - n, context)[:, None]
        mask = torch.arange(context) <= at
        if window is not None:
            mask &= torch.arange(context) > at - window
        torch.testing.assert_close(out[:n], head_by_head(own, keys, values, mask))
        out = out[n:]


@both
def test_the_memory_layout_of_q_k_and_v_does_not_matter(attention: Attention) -> None:
    generator = torch.Generator().manual_seed(6)
    batch, pages = make_batch(random.Random(6), 4, [7, 9, 12, 20], [1, 1, 12, 6])
    config = ModelConfig(8, 8, 8, 1, 6, 2, 8, RopeConfig(1e4), 512)
    q, k, v = (torch.randn(20, heads, 8, generator=generator) for heads in (6, 2, 2))
    results = []
    for permute in (False, True):
        cache = KVCache(config, pages, 4, torch.device("cpu"), torch.float32)
        given = [x.permute(2, 1, 0).contiguous().permute(2, 1, 0) if permute else x for x in (q, k, v)]
        assert given[0].is_contiguous() is not permute
        results.append(attention.bind(batch, cache)(0, None, *given))
    torch.testing.assert_close(results[0], results[1])


@both
def test_writing_a_slot_again_replaces_what_was_there(attention: Attention) -> None:
    generator = torch.Generator().manual_seed(7)
    batch, pages = make_batch(random.Random(7), 4, [9], [9])
    config = ModelConfig(8, 8, 8, 1, 6, 2, 8, RopeConfig(1e4), 512)
    cache = KVCache(config, pages, 4, torch.device("cpu"), torch.float32)
    first, second = ([torch.randn(9, heads, 8, generator=generator) for heads in (6, 2, 2)] for _ in range(2))
    attention.bind(batch, cache)(0, None, *first)
    reused = attention.bind(batch, cache)(0, None, *second)
    fresh = attention.bind(batch, KVCache(config, pages, 4, torch.device("cpu"), torch.float32))(0, None, *second)
    assert torch.equal(reused, fresh)
