"""Memory: the cache is allocated once, and a request that has ended leaves nothing behind.

2,000 requests run in a process of their own, where nothing else has been, and are measured after 200 and at the end.
"""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
from oracle import one_thread, random_ids

from minicb.cache import KVCache
from minicb.engine import Engine
from minicb.llm import LLM
from minicb.model import Model
from minicb.request import Request
from minicb.sampling import SamplingParams
from minicb.weights import random_model, tiny_config

FIRST, ALL = 200, 2_000
Measures = dict[str, int]


def tensor_bytes() -> int:
    """Bytes of all live tensors of this process; a storage that several share counts once."""
    gc.collect()
    tensors = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def steady_traffic(engine: Engine, total: int, in_flight: int = 40) -> Iterator[int]:
    """Keeps so many requests in the engine until all have ended; yields how many have, after every step.

    Long and short, greedy and drawn, with log-probabilities and stop texts; every fiftieth is aborted.
    """
    rng, sent, done = random.Random(0), 0, 0
    while done < total:
        while sent < total and sent - done < in_flight:
            params = SamplingParams(
                max_tokens=rng.randint(1, 8), temperature=rng.choice([0.0, 1.0]), logprobs=2, stop="xyz"
            )
            name = engine.add_request(random_ids(rng, rng.randint(1, 40)), params)
            sent += 1
            if sent % 50 == 0:
                engine.abort_request(name)
                done += 1
        done += sum(event.output is not None for event in engine.step())
        yield done


def measure(engine: Engine) -> Measures:
    gc.collect()
    objects = gc.get_objects()
    return {
        "resident_bytes": psutil.Process().memory_info().rss,
        "tensor_bytes": tensor_bytes(),
        "requests": sum(type(thing) is Request for thing in objects),
        "objects": len(objects),
        "in_engine": len(engine.requests) + len(engine.pool.owners()) + len(engine.outbox),
        "cache_at": engine.cache.k.data_ptr(),
        "free_pages": engine.pool.free_pages,
    }


def run_2000() -> None:
    """Prints the measures after the first and after all requests. This is the process of its own."""
    engine = Engine(
        random_model(), lambda ids: "".join(chr(97 + i % 26) for i in ids), max_num_seqs=16, max_model_len=64, seed=0
    )
    measures = []
    for total in (FIRST, ALL - FIRST):
        with one_thread():
            for _ in steady_traffic(engine, total):
                pass
        measures.append(measure(engine))
    print(json.dumps(measures))


@pytest.fixture(scope="module")
def measures() -> tuple[Measures, Measures]:
    here = Path(__file__)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(here.parents[1]), os.environ.get("PYTHONPATH", "")]),
    }
    run = subprocess.run(
        [sys.executable, str(here)], capture_output=True, encoding="utf-8", check=False, env=environment
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    first, last = json.loads(run.stdout)
    return first, last


def test_the_resident_set_after_2000_requests_is_that_after_200(measures: tuple[Measures, Measures]) -> None:
    first, last = measures
    assert last["resident_bytes"] <= 1.05 * first["resident_bytes"]


def test_the_bytes_of_live_tensors_do_not_grow_with_the_requests(measures: tuple[Measures, Measures]) -> None:
    first, last = measures
    assert last["tensor_bytes"] == first["tensor_bytes"]


def test_no_request_outlives_its_answer(measures: tuple[Measures, Measures]) -> None:
    for one in measures:
        assert (one["requests"], one["in_engine"]) == (0, 0)


def test_python_objects_do_not_pile_up(measures: tuple[Measures, Measures]) -> None:
    """A single object kept for each request would be 1,800 more."""
    first, last = measures
    assert last["objects"] - first["objects"] < 500


def test_the_cache_stays_where_it_was_allocated_and_every_page_is_free_again(
    measures: tuple[Measures, Measures],
) -> None:
    first, last = measures
    assert last["cache_at"] == first["cache_at"]
    assert first["free_pages"] == last["free_pages"] == 16


def test_a_step_allocates_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(random_model(), max_num_seqs=4, max_model_len=64)
    before = engine.cache.k.data_ptr(), engine.cache.v.data_ptr(), engine.cache.nbytes
    monkeypatch.setattr("minicb.cache.zeros", lambda *_: pytest.fail("a second cache"))
    for _ in range(3):
        engine.add_request([1, 2, 3], SamplingParams(max_tokens=4))
        while engine.has_unfinished_requests:
            engine.step()
            assert (engine.cache.k.data_ptr(), engine.cache.v.data_ptr(), engine.cache.nbytes) == before


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system decides how much it backs")
def test_a_large_cache_takes_memory_for_what_is_written_only() -> None:
    """One token in each of 64 pages of a cache of 1 GiB: a huge page behind each would be all of it."""
    cpu, token = torch.device("cpu"), 2 * 64 * 4  # bytes of a layer's keys
    before = psutil.Process().memory_info().rss
    cache = KVCache(tiny_config(layers=4, kv_heads=2, head_dim=64), 64, 4096, cpu, torch.float32)
    for page in range(64):
        for layer in range(4):
            cache.write(layer, torch.tensor([page * 4096]), torch.ones(1, 2, 64), torch.ones(1, 2, 64))
    assert cache.k.nbytes == 4 * 64 * 4096 * token == 2**29
    assert psutil.Process().memory_info().rss - before < 2**25
    assert float(cache.k.view(-1)[:: 2**20].sum() + cache.k[0, 1].sum()) == 4 * 64 / 2


def answer_and_forget(model: Model | None = None) -> int:
    """One LLM, used as in a notebook's cell, with a stream that is left early; bytes of all tensors while it lives."""
    llm = LLM(model or random_model(), max_num_seqs=4, max_model_len=64)
    llm.generate([[1, 2, 3], [4, 5]], SamplingParams(max_tokens=4, temperature=1.0))
    next(llm.stream([7, 8, 9], SamplingParams(max_tokens=8)))
    return tensor_bytes()


def test_an_llm_that_is_let_go_takes_model_and_cache_with_it() -> None:
    before = tensor_bytes()
    assert answer_and_forget() > before
    assert tensor_bytes() == before


def test_running_the_load_cell_three_times_keeps_one_model() -> None:
    assert len({answer_and_forget() for _ in range(3)}) == 1


def test_a_name_that_is_bound_again_keeps_one_model_too() -> None:
    sizes = set()
    for _ in range(3):
        llm = LLM(random_model(), max_num_seqs=4, max_model_len=64)
        llm.generate([1, 2, 3], SamplingParams(max_tokens=2))
        sizes.add(tensor_bytes())
    assert len(sizes) == 1


def test_several_llms_on_one_model_share_its_weights() -> None:
    model = random_model()
    first = LLM(model, max_num_seqs=4, max_model_len=64)
    before = tensor_bytes()
    second = LLM(model, max_num_seqs=4, max_model_len=64)
    assert tensor_bytes() - before == second.engine.cache.nbytes == first.engine.cache.nbytes


if __name__ == "__main__":
    run_2000()
