"""Small rules of the core that hold by themselves, also where today's engine never comes near their borders."""

from __future__ import annotations

import pytest
import torch

from minicb.cache import SlotPool
from minicb.masks import block_mask, visible
from minicb.request import Limits, Request, next_chunk, open_request
from minicb.sampling import SamplingParams
from minicb.scheduler import Scheduler, may_join, plan_running


def make_request(name: str, num_tokens: int = 3) -> Request:
    return open_request(name, [1] * num_tokens, SamplingParams(), Limits(8, 256, frozenset()), None, seed=0, now=0.0)


def test_a_query_sees_only_the_keys_of_its_own_sequence() -> None:
    positions, owners = torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1])
    seen = visible(positions, owners, positions, owners)
    assert seen.tolist() == [
        [True, False, False, False],
        [True, True, False, False],
        [False, False, True, False],
        [False, False, True, True],
    ]
    assert torch.equal(block_mask([2, 2]), seen)


@pytest.mark.parametrize(("tokens", "computed", "budget", "chunk"), [(9, 0, 4, 4), (9, 8, 4, 1), (9, 7, 9, 2)])
def test_a_chunk_is_what_is_left_but_no_more_than_the_budget(
    tokens: int, computed: int, budget: int, chunk: int
) -> None:
    assert next_chunk(tokens, computed, budget) == chunk


@pytest.mark.parametrize(
    ("wanted", "budget", "counts"), [([9, 1, 1], 4, [2, 1, 1]), ([1, 9, 9], 4, [1, 2, 1]), ([2, 2], 9, [2, 2])]
)
def test_nobody_who_runs_takes_the_last_token_of_those_behind(
    wanted: list[int], budget: int, counts: list[int]
) -> None:
    assert plan_running(wanted, budget) == counts


def test_a_full_house_takes_nobody_in_even_with_tokens_to_spare() -> None:
    assert may_join(3, 4, 1)
    assert not may_join(4, 4, 100)
    assert not may_join(0, 4, 0)


def test_no_more_run_than_may_though_the_cache_has_room() -> None:
    scheduler = Scheduler(SlotPool(8, 256), max_num_batched_tokens=64, max_num_seqs=3)
    for n in range(6):
        scheduler.add(make_request(f"{n}"))
    assert [chunk.request.request_id for chunk in scheduler.schedule(0.0)] == ["0", "1", "2"]
    assert scheduler.num_unfinished == 6
    scheduler.check()


def test_whoever_ends_a_request_second_changes_nothing() -> None:
    request = make_request("a")
    request.finish("length", 1.0)
    request.finish("abort", 2.0)
    assert (request.finish_reason, request.finished_s) == ("length", 1.0)
