"""Decode steps by buckets, as CUDA graphs replay them; here the replay is an ordinary call, so no GPU is needed.

What a graph bakes in is played strictly: each step runs on the buffers that were there when it was recorded.
"""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracle import Steps, random_ids
from ragged import answers_of, make_batch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from minicb import kernels
from minicb.cache import KVCache, in_one_copy
from minicb.kernels.graphs import MAX_ROWS, DecodeStep, GraphedModel, can_replay, round_up
from minicb.kernels.grouped import GroupedAttention
from minicb.kernels.varlen import VarlenAttention
from minicb.model import Layer
from minicb.reference import Attention, ReferenceAttention
from minicb.request import Limits, open_request
from minicb.sampling import SamplingParams, sample
from minicb.weights import random_model, tiny_config

pytestmark = pytest.mark.usefixtures("one_thread")


class Capturable(ReferenceAttention):
    """The reference, as if its launches depended on the number of rows alone."""

    capturable = True


class Recorder:
    """Stands in for CUDA graphs: notes recordings and replays, and hands out one and the same place each time."""

    def __init__(self) -> None:
        self.recordings, self.replays = 0, 0

    def __call__(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.recordings += 1
        out = work().clone()

        def replay() -> Tensor:
            self.replays += 1
            return out.copy_(work())

        return replay


def graphed(seed: int = 0) -> tuple[GraphedModel, Recorder]:
    recorder = Recorder()
    model = random_model(tiny_config(heads=6, kv_heads=2), std=0.3, dtype="float32", seed=seed)
    return GraphedModel(model, recorder), recorder


def test_buckets_are_powers_of_two_and_never_smaller_than_the_batch() -> None:
    assert [round_up(n) for n in (1, 2, 3, 4, 5, 8, 9, 31, 32, 33, 512)] == [1, 2, 4, 4, 8, 8, 16, 32, 32, 64, 512]


def test_a_batch_that_is_padded_to_its_bucket_has_the_logits_that_it_has_alone() -> None:
    """Sizes go up and down, so that rows of an earlier, larger batch are padding later."""
    model, recorder = graphed()
    rng = random.Random(0)
    prompts = {name: random_ids(rng, 14) for name in "abcdefg"}
    plain, fast = Steps(model, prompts, ReferenceAttention()), Steps(model, prompts, Capturable())
    for names in ("abcdefg", "abcde", "ab", "bcd", "g", "abcdefg", "efg"):
        first = 4 if names == "abcdefg" and recorder.recordings == 0 else 1
        plan = dict.fromkeys(names, first)
        for one, other in zip(plain(**plan).values(), fast(**plan).values(), strict=True):
            torch.testing.assert_close(other, one, atol=1e-5, rtol=1e-5)
        # What was written, and where. Only the dummy page, which belongs to nobody, may differ.
        own = slice(plain.cache.page_size, None)
        torch.testing.assert_close(fast.cache.k[:, own], plain.cache.k[:, own], equal_nan=True, atol=1e-5, rtol=1e-5)
    assert recorder.recordings == 4, "8, 2, 4 and 1 rows"
    assert recorder.replays == 6, "all but the first step, which read chunks"


def test_an_engine_with_graphs_gives_the_tokens_of_one_without() -> None:
    model, recorder = graphed()
    plain = random_model(tiny_config(heads=6, kv_heads=2), std=0.3, dtype="float32", seed=0)
    rng = random.Random(2)
    jobs = [(random_ids(rng, rng.randint(1, 20)), rng.randint(1, 12), rng.choice([0.0, 1.0])) for _ in range(12)]

    limits = {"max_num_batched_tokens": 16, "max_num_seqs": 5, "max_model_len": 40}
    assert answers_of(model, Capturable(), jobs, **limits) == answers_of(plain, ReferenceAttention(), jobs, **limits)
    assert recorder.replays > 5
    assert recorder.recordings <= 4


@pytest.mark.parametrize(
    ("new", "attention", "replays"),
    [
        ([1, 1, 1], Capturable(), True),
        ([1], Capturable(), True),
        ([1, 2, 1], Capturable(), False),  # somebody reads a chunk
        ([1, 1, 1], GroupedAttention(), False),  # its launches depend on lengths
        ([1, 1, 1], ReferenceAttention(), False),  # as where a learner's parts are in
        ([1] * MAX_ROWS, Capturable(), True),
        ([1] * (MAX_ROWS + 1), Capturable(), False),
    ],
)
def test_only_steps_of_decodes_are_replayed_through_a_back_end_that_can_be_recorded(
    new: list[int], attention: Attention, replays: bool
) -> None:
    batch, _ = make_batch(random.Random(0), 4, [max(n, 3) for n in new], new)
    with torch.inference_mode():
        assert can_replay(batch, attention) == replays
    assert not can_replay(batch, attention), "somebody may want gradients"


def test_padding_is_one_token_on_the_dummy_page_and_bounds_are_the_buckets() -> None:
    step = DecodeStep(4, 2, 16, torch.device("cpu"))
    large, _ = make_batch(random.Random(0), 16, [20, 3, 9, 30], [1] * 4)
    small, _ = make_batch(random.Random(1), 16, [7], [1])
    for batch, rows in ((large, 4), (small, 1), (large, 4), (small, 1)):
        step.fill(batch)
        assert torch.equal(step.batch.slots[:rows], batch.slots)
        assert torch.equal(step.batch.kv_len[:rows], batch.kv_len)
        assert torch.equal(step.batch.page_table[:rows, : batch.page_table.shape[1]], batch.page_table)
        assert step.batch.slots[rows:].tolist() == [0] * (4 - rows)
        assert step.batch.kv_len[rows:].tolist() == [1] * (4 - rows)
        assert step.batch.page_table[rows:].tolist() == [[0, 0]] * (4 - rows)
        assert step.batch.q_start.tolist() == [0, 1, 2, 3, 4]
    assert (step.batch.max_new, step.batch.max_kv) == (1, 32)


def test_what_a_step_returned_is_not_changed_by_the_next() -> None:
    model, _ = graphed()
    cache = KVCache(model.config, 9, 8, torch.device("cpu"), torch.float32)
    one, _ = make_batch(random.Random(0), 8, [1, 1], [1, 1])
    with torch.inference_mode():
        first = model(one, cache, Capturable())
        kept = first.clone()
        one.tokens.fill_(5)
        second = model(one, cache, Capturable())
    assert torch.equal(first, kept)
    assert not torch.equal(first, second)


def test_two_caches_have_recordings_of_their_own_and_a_cache_takes_its_own_along() -> None:
    model, recorder = graphed()
    batch, _ = make_batch(random.Random(0), 8, [1, 1], [1, 1])
    caches = [KVCache(model.config, 9, 8, torch.device("cpu"), torch.float32) for _ in range(2)]

    def record(work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """A graph holds addresses, not objects: this stand-in does not keep the cache alive either."""
        out = recorder(work)()
        return lambda: out

    model.record = record
    with torch.inference_mode():
        for cache in caches * 2:
            model(batch, cache, Capturable())
    assert recorder.recordings == 2
    assert len(model.recorded) == 2
    gone = weakref.ref(caches.pop())
    del cache
    gc.collect()
    assert gone() is None
    assert len(model.recorded) == 1


def test_where_recording_fails_steps_go_on_without_and_say_so_once() -> None:
    def fails(_: object) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    plain = random_model(tiny_config(heads=6, kv_heads=2), std=0.3, dtype="float32")
    model = GraphedModel(plain, fails)
    batch, _ = make_batch(random.Random(0), 8, [1, 1], [1, 1])
    cache = KVCache(model.config, 9, 8, torch.device("cpu"), torch.float32)
    with torch.inference_mode():
        with pytest.warns(RuntimeWarning, match="without CUDA graphs: operation not permitted"):
            first = model(batch, cache, Capturable())
        assert torch.equal(model(batch, cache, Capturable()), first)
        assert torch.equal(plain(batch, cache, ReferenceAttention()), first)


def test_on_cuda_without_triton_the_layers_stay_and_decodes_are_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "find_spec", lambda _: None)
    plain = random_model(tiny_config(heads=6, kv_heads=2))
    model = kernels.faster_on_cuda(plain)
    assert isinstance(model, GraphedModel)
    assert all(type(layer) is Layer for layer in model.layers)
    assert {id(p) for p in model.parameters()} == {id(p) for p in plain.parameters()}, "shared, not copied"
    assert kernels.faster_on_cuda(model) is model
    assert isinstance(kernels.attention_on_cuda(model), GroupedAttention), "varlen objects to a CPU"
    monkeypatch.setattr("minicb.kernels.varlen.objection", lambda *_: "")
    assert isinstance(kernels.attention_on_cuda(model), VarlenAttention)


# ---- what goes to the device and what comes back


def test_all_tensors_of_a_step_travel_in_one_copy_and_arrive_as_they_were() -> None:
    sent = [torch.arange(5), torch.empty(0, dtype=torch.int64), torch.arange(3, dtype=torch.int32),
            torch.arange(6, dtype=torch.int32).view(2, 3), torch.tensor([1 << 40])]  # fmt: skip
    arrived = in_one_copy(sent, torch.device("cpu"))
    for one, other in zip(sent, arrived, strict=True):
        assert torch.equal(one, other)
        assert one.dtype == other.dtype
        assert other.storage_offset() * other.itemsize % 16 == 0, "kernels read fastest from such addresses"
    assert len({t.untyped_storage().data_ptr() for t in arrived}) == 1
    batch, _ = make_batch(random.Random(0), 8, [5, 3], [2, 1])
    assert batch.to(torch.device("cpu")) is batch
    moved = batch.to(torch.device("meta"))
    assert (moved.max_new, moved.page_table.shape, moved.kv_len.dtype) == (2, (2, 1), torch.int32)


class Questions(TorchDispatchMode):
    """Counts where Python asks for a tensor's value, which on a GPU is a wait for everything before."""

    asked = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.asked += func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default)
        return func(*args, **(kwargs or {}))


def test_greedy_sampling_asks_the_device_for_nothing_but_the_tokens() -> None:
    limits = Limits(64, 256, frozenset())
    requests = [open_request(str(n), [1, 2], SamplingParams(), limits, None, 0, 0.0) for n in range(3)]
    logits = torch.randn(3, 64)
    with Questions() as questions:
        found = sample(logits, requests)
    assert [one.token_id for one in found] == logits.argmax(dim=-1).tolist()  # type: ignore[union-attr]
    assert questions.asked == 0
    with Questions() as questions:
        bool(logits.isfinite().all())
    assert questions.asked == 1, "this is how a question looks"
