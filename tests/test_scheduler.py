"""Who runs when: the promises of continuous batching, checked in the record of every step.

The invariants hold for random workloads; the scenarios below them are the ones in which other engines broke.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from stand_ins import Scripted, alone, digest, drain, outputs, reciting, same_answer, small_engine

from minicb.batch import Plan, next_tokens, pack
from minicb.cache import DUMMY_PAGE
from minicb.engine import Engine
from minicb.metrics import StepRecord
from minicb.outputs import Event, RequestOutput
from minicb.padding import PaddedRunner
from minicb.request import Limits, RefusedError, open_request
from minicb.sampling import SamplingParams
from minicb.weights import random_model, tiny_config

pytestmark = pytest.mark.usefixtures("one_thread")
MODEL = Scripted(digest, max_position=512)
SLOT_BYTES = 8  # of one token in the scripted model's cache


@dataclass
class Run:
    """An engine whose every step is kept."""

    engine: Engine
    records: list[StepRecord] = field(default_factory=list)
    events: dict[str, list[Event]] = field(default_factory=dict)

    def step(self, times: int = 1) -> list[Event]:
        events: list[Event] = []
        for _ in range(times):
            events += self.engine.step()
            self.engine.check()
        for event in events:
            self.events.setdefault(event.request_id, []).append(event)
        return events

    def drain(self, limit: int = 1_000) -> dict[str, RequestOutput]:
        for _ in range(limit):
            if not self.engine.has_unfinished_requests:
                return outputs(self.events)
            self.step()
        pytest.fail(f"not idle after {limit} steps: {self.engine.scheduler.waiting} {self.engine.scheduler.running}")

    def add(self, name: str, prompt: int | Sequence[int], max_tokens: int = 4) -> None:
        ids = [len(name) + 7 * i for i in range(prompt)] if isinstance(prompt, int) else list(prompt)
        self.engine.add_request([i % 250 for i in ids], SamplingParams(max_tokens=max_tokens), name)


def start(slots: int = 32, room: int = 512, model: Scripted = MODEL, **options: Any) -> Run:
    """An engine with a clock that counts and a cache of so many slots."""
    records: list[StepRecord] = []
    memory = (slots + 1) * room * SLOT_BYTES
    return Run(
        small_engine(
            model, None, max_model_len=room, kv_cache_memory_bytes=memory, on_step=records.append,
            clock=itertools.count().__next__, **options,
        ),
        records,
    )  # fmt: skip


# ---- invariants, over random workloads


@dataclass
class Workload:
    run: Run
    budget: int
    seqs: int
    slots: int
    prompts: dict[str, list[int]]
    lengths: dict[str, int]
    ended: dict[str, RequestOutput]


def random_workload(seed: int) -> Workload:
    rng = random.Random(seed)
    budget, seqs, slots = rng.choice((1, 2, 5, 16, 64)), rng.randint(1, 8), rng.randint(1, 6)
    run = start(slots, 64, max_num_batched_tokens=budget, max_num_seqs=seqs)
    prompts = {
        f"r{i}": [rng.randrange(250) for _ in range(rng.choice((1, 3, 20, 50)))] for i in range(rng.randint(2, 12))
    }
    lengths = {name: rng.randint(1, 12) for name in prompts}
    for name, prompt in prompts.items():
        run.add(name, prompt, lengths[name])
        run.step(rng.choice((0, 0, 1, 4)))
    return Workload(run, budget, seqs, slots, prompts, lengths, run.drain(5_000))


@pytest.fixture(scope="module", params=range(40))
def load(request: pytest.FixtureRequest) -> Workload:
    return random_workload(request.param)


def test_no_step_is_over_budget_and_no_more_run_than_may(load: Workload) -> None:
    for record in load.run.records:
        assert 1 <= sum(entry.num_new for entry in record.entries) <= load.budget
        assert len(record.entries) <= min(load.seqs, load.slots, load.budget)
        assert all(entry.num_new >= 1 for entry in record.entries)
        assert record.token_slots == record.useful_slots == sum(entry.num_new for entry in record.entries)


def test_whoever_runs_comes_before_whoever_joins(load: Workload) -> None:
    running: list[str] = []
    for record in load.run.records:
        names = [entry.request_id for entry in record.entries]
        assert names[: len(running)] == running, "everybody who runs is in every step, in the same order"
        gone = {name for name, _ in record.finished}
        running = [name for name in names if name not in gone]


def test_requests_start_in_the_order_of_arrival(load: Workload) -> None:
    started = list(dict.fromkeys(entry.request_id for record in load.run.records for entry in record.entries))
    arrived = [name for record in load.run.records for name in record.arrived]
    assert started == arrived == list(load.prompts)


def test_a_stream_that_has_begun_gets_one_token_in_every_step(load: Workload) -> None:
    streaming: set[str] = set()
    for record in load.run.records:
        sampled = {entry.request_id for entry in record.entries if entry.sampled}
        assert streaming <= sampled
        assert all(entry.num_new == 1 for entry in record.entries if entry.request_id in streaming)
        streaming = (streaming | sampled) - {name for name, _ in record.finished}


def test_chunks_follow_each_other_without_gap_or_overlap(load: Workload) -> None:
    computed = dict.fromkeys(load.prompts, 0)
    for record in load.run.records:
        for entry in record.entries:
            assert entry.num_computed == computed[entry.request_id]
            computed[entry.request_id] += entry.num_new
            if entry.sampled:
                assert computed[entry.request_id] >= entry.num_prompt
            else:
                assert computed[entry.request_id] < entry.num_prompt
    assert computed == {name: len(prompt) + load.lengths[name] - 1 for name, prompt in load.prompts.items()}


def test_nobody_waits_while_there_is_room(load: Workload) -> None:
    for record in load.run.records:
        full = (
            record.token_slots == load.budget
            or len(record.entries) == min(load.seqs, load.budget)
            or len(record.entries) == load.slots
        )
        assert full or record.num_waiting == 0


def test_everybody_ends_once_with_what_they_say_alone_and_gives_everything_back(load: Workload) -> None:
    ended = [name for record in load.run.records for name, _ in record.finished]
    assert sorted(ended) == sorted(load.ended) == sorted(load.prompts)
    for name, output in load.ended.items():
        params = SamplingParams(max_tokens=load.lengths[name])
        assert same_answer(output, alone(MODEL, load.prompts[name], params, decode=None)), name
    pool = load.run.engine.pool
    assert pool.free_pages == pool.num_pages == min(load.slots, load.seqs)
    assert not load.run.engine.pool.owners()


def test_the_place_of_whoever_ends_is_taken_in_the_very_next_step() -> None:
    run = start(slots=1)
    run.add("a", 5, 3)
    run.add("b", 5, 3)
    run.drain()
    ran = [[entry.request_id for entry in record.entries] for record in run.records]
    assert ran == [["a"]] * 3 + [["b"]] * 3


# ---- nothing to do


def test_a_step_with_nothing_to_do_changes_nothing() -> None:
    run = start()

    def state() -> tuple[Any, ...]:
        engine = run.engine
        return engine.steps, len(run.records), MODEL.calls, engine.pool.free_pages, engine.cache.k.clone().sum().item()

    for _ in range(2):
        before = state()
        assert run.step(3) == []
        assert state() == before
        run.add("a", 5, 2)
        run.drain()
        run.events.clear()
    assert [record.step for record in run.records] == [0, 1, 2, 3]


def test_after_the_only_request_was_aborted_a_step_does_nothing() -> None:
    run = start()
    run.add("a", 5)
    run.engine.abort_request("a")
    assert run.step() == []
    assert not run.records
    assert not run.engine.has_unfinished_requests


# ---- what can never fit


def test_a_request_that_can_never_fit_is_refused_and_the_queue_goes_on() -> None:
    run = start(slots=1, room=16)
    for prompt, most in ((20, 1), (16, 1), (10, 20)):
        with pytest.raises(RefusedError, match="16"):
            run.add("never", prompt, most)
    run.add("a", 4, 4)
    run.add("b", 15, 1)
    assert [output.finish_reason for output in run.drain(200).values()] == ["length"] * 2


def test_two_that_fit_alone_but_not_together_both_end() -> None:
    run = start(slots=1, room=16)
    run.add("a", 10, 6)
    run.add("b", 9, 6)
    ended = run.drain(200)
    for name, prompt in (("a", 10), ("b", 9)):
        ids = [(len(name) + 7 * i) % 250 for i in range(prompt)]
        assert same_answer(ended[name], alone(MODEL, ids, SamplingParams(max_tokens=6), decode=None))


@pytest.mark.parametrize("budget", [1, 7, 8, 9])
def test_a_prompt_longer_than_the_budget_is_read_in_pieces_and_never_waits_for_ever(budget: int) -> None:
    run = start(max_num_batched_tokens=budget)
    run.add("a", 8, 2)
    run.drain(50)
    assert len(run.records) == -(-8 // budget) + 1


def test_the_page_that_belongs_to_nobody_is_not_counted_as_room() -> None:
    run = start(slots=3)
    assert run.engine.pool.num_pages == 3
    for name in "abcd":
        run.add(name, 4, 8)
    run.step()
    pages = [page for own in run.engine.pool.owners().values() for page in own]
    assert sorted(pages) == [1, 2, 3]
    assert run.records[0].num_waiting == 1


# ---- a long prompt


def test_a_long_prompt_never_freezes_the_streams_that_run() -> None:
    run = start(max_num_batched_tokens=16)
    for name in "ab":
        run.add(name, 3, 60)
    run.step(2)
    run.add("long", 400, 3)
    run.add("short", 5, 3)
    reading: list[StepRecord] = []
    while not run.events.get("long"):
        events = run.step()
        assert [event.request_id for event in events[:2]] == ["a", "b"], "both streams get their token in every step"
        reading.append(run.records[-1])
    counts = [{entry.request_id: entry.num_new for entry in record.entries} for record in reading]
    assert all(count["long"] == 14 for count in counts[:-1]), "all of the budget that is left goes to the prompt"
    assert len(reading) == -(-400 // 14)
    while not run.events.get("short"):
        run.step()
    assert len(run.records) - 2 - len(reading) <= 1, "the next in the queue starts as soon as the prompt is read"
    ended = run.drain()
    work = sum(len(o.prompt_token_ids) + len(o.token_ids) - 1 for o in ended.values())
    assert len(run.records) <= -(-work // 16) + 60
    for output in ended.values():
        params = SamplingParams(max_tokens=len(output.token_ids))
        assert same_answer(output, alone(MODEL, output.prompt_token_ids, params, decode=None))


def test_no_token_and_no_first_token_time_before_the_last_chunk() -> None:
    """The clock counts its readings: arrival, then begin and end of each step."""
    run = start(max_num_batched_tokens=4)
    run.add("a", 10, 2)
    assert [len(run.step()) for _ in range(4)] == [0, 0, 1, 1]
    assert [entry.sampled for record in run.records for entry in record.entries] == [False, False, True, True]
    metrics = outputs(run.events)["a"].metrics
    third = run.records[2]
    assert metrics.queue_s == run.records[0].start_s - 0
    assert metrics.ttft_s == third.start_s + third.duration_s
    assert len(metrics.itl_s) == 1


# ---- aborts in every state


def at_once(run: Run) -> None:
    run.add("victim", 12, 5)


def until_first_chunk(run: Run) -> None:
    at_once(run)
    while not any(r.request_id == "victim" for r in run.engine.scheduler.running):
        run.step()


def in_its_prompt(run: Run) -> None:
    until_first_chunk(run)
    run.step()


def while_it_writes(run: Run) -> None:
    at_once(run)
    while len(run.events.get("victim", ())) < 2:
        run.step()


def after_its_end(run: Run) -> None:
    at_once(run)
    while not any(event.output for event in run.events.get("victim", ())):
        run.step()


def never_there(_: Run) -> None:
    pass


@pytest.mark.parametrize(
    ("reach", "ends"),
    [
        (at_once, 0),
        (until_first_chunk, 0),
        (in_its_prompt, 0),
        (while_it_writes, 2),
        (after_its_end, None),
        (never_there, None),
    ],
)
def test_an_abort_ends_its_request_in_any_state_and_leaves_the_others_alone(
    reach: Callable[[Run], None], ends: int | None
) -> None:
    run = start(slots=2, max_num_batched_tokens=5, max_num_seqs=2)
    run.add("bystander", 6, 30)
    run.step(3)
    free = run.engine.pool.free_pages
    reach(run)
    event = run.engine.abort_request("victim")
    run.engine.check()
    assert run.engine.pool.free_pages == free
    if ends is None:
        assert event is None
    else:
        assert event is not None
        assert event.output is not None
        assert (event.finish_reason, len(event.output.token_ids)) == ("abort", ends)
    assert run.engine.abort_request("victim") is None, "twice is once"
    run.engine.add_request([9] * 4, SamplingParams(max_tokens=2), "victim")  # the name is free again
    run.events.pop("victim", None)
    ended = run.drain()
    assert ended["victim"].token_ids == alone(MODEL, [9] * 4, SamplingParams(max_tokens=2), decode=None).token_ids
    wanted = alone(MODEL, ended["bystander"].prompt_token_ids, SamplingParams(max_tokens=30), decode=None)
    assert same_answer(ended["bystander"], wanted)


@pytest.mark.parametrize("step", [0, 1, 2])
def test_an_abort_while_the_model_runs_wins_over_the_token_that_it_computes(step: int) -> None:
    model = Scripted(digest, max_position=512)
    run, aborted = start(slots=2, model=model), list[Event | None]()
    run.add("victim", 4, 3)
    run.add("bystander", 4, 6)
    model.after = lambda now: aborted.append(run.engine.abort_request("victim")) if now == step else None
    events = drain(run.engine)
    (event,) = aborted
    assert event is not None
    assert event.output is not None
    assert (event.finish_reason, len(event.output.token_ids)) == ("abort", step)
    assert [e.output for e in events.get("victim", ())] == [None] * step
    assert len(events["bystander"]) == 6
    assert run.engine.pool.free_pages == 2


def test_an_abort_in_the_callback_of_the_step_that_ended_it_comes_too_late() -> None:
    run = start(slots=2)
    run.add("victim", 4, 3)
    run.add("bystander", 4, 6)
    run.engine.on_step = lambda _: late.append(run.engine.abort_request("victim")) if run.engine.steps >= 3 else None
    late: list[Event | None] = []
    ended = run.drain()
    assert late == [None] * 4
    assert [ended[name].finish_reason for name in ("victim", "bystander")] == ["length", "length"]
    assert run.engine.pool.free_pages == 2


def test_all_aborted_at_once_leave_an_empty_engine_that_works() -> None:
    run = start(slots=3, max_num_batched_tokens=6)
    for name in "abcdef":
        run.add(name, 5, 9)
    run.step(2)
    ends = [run.engine.abort_request(name) for name in "abcdef"]
    assert [event.finish_reason for event in ends if event] == ["abort"] * 6
    run.engine.check()
    assert run.engine.pool.free_pages == 3
    assert run.step() == []
    run.events.clear()
    run.add("g", 5, 3)
    assert list(run.drain()) == ["g"]


# ---- slots


def changed_slots(before: torch.Tensor, after: torch.Tensor) -> set[int]:
    return set((before != after).flatten(2).any(-1).any(0).nonzero().flatten().tolist())


def test_a_step_writes_its_own_slots_and_no_others() -> None:
    """Not the dummy page, not the last page (-1 in Python), not a slot beyond the new tokens."""
    model, records = random_model(tiny_config(max_position=32), dtype="float64"), list[StepRecord]()
    engine = small_engine(
        model, None, max_model_len=32, max_num_seqs=4, max_num_batched_tokens=9, on_step=records.append
    )
    engine.cache.k.fill_(7.0)
    pages = {"a": 1, "b": 2, "c": 3}  # the lowest free one, in the order of arrival
    for name, length in (("a", 3), ("b", 12), ("c", 1)):
        engine.add_request([5] * length, SamplingParams(max_tokens=5), name)
    while engine.has_unfinished_requests:
        before = engine.cache.k.clone()
        engine.step()
        assert changed_slots(before, engine.cache.k) == {
            pages[entry.request_id] * 32 + entry.num_computed + i
            for entry in records[-1].entries
            for i in range(entry.num_new)
        }


def test_a_table_is_padded_with_the_dummy_page_and_never_with_minus_one() -> None:
    class TwoPages:
        page_size = 4

        def pages(self, name: str) -> list[int]:
            return {"short": [3], "long": [2, 5, 1]}[name]

    limits = Limits(300, 64, frozenset())
    chunks = []
    for name, length in (("short", 4), ("long", 10)):
        request = open_request(name, [1] * length, SamplingParams(max_tokens=1), limits, None, 0, 0.0)
        chunks.append(next_tokens(request, 64))
    batch = pack(Plan(tuple(chunks)), TwoPages(), torch.device("cpu"))
    assert batch.page_table.tolist() == [[3, DUMMY_PAGE, DUMMY_PAGE], [2, 5, 1]]
    assert batch.slots.tolist() == [12, 13, 14, 15, 8, 9, 10, 11, 20, 21, 22, 23, 4, 5]


def test_padding_is_written_to_the_dummy_page_only() -> None:
    model = random_model(tiny_config(max_position=32), dtype="float64")
    runner = PaddedRunner(model, batch_size=3, max_model_len=32)
    runner.cache.k.fill_(7.0)
    limits = Limits(64, 32, frozenset())
    lengths = {"a": 2, "b": 7}
    requests = [
        open_request(name, [5] * n, SamplingParams(max_tokens=3), limits, None, 0, 0.0) for name, n in lengths.items()
    ]
    before = runner.cache.k.clone()
    runner.run(requests)
    written = changed_slots(before, runner.cache.k)
    own = {32 * page + i for page, n in ((1, 2), (2, 7)) for i in range(n + 2)}
    assert written - set(range(32)) == own


@pytest.mark.parametrize("attention", ["reference", "auto"])
def test_a_slot_used_again_answers_as_a_fresh_one(attention: str) -> None:
    """A write replaces: nothing of the longer request before is left in what the shorter one sees."""
    model = random_model(tiny_config(max_position=64), dtype="float64", std=0.4)
    engine = small_engine(model, None, max_num_seqs=1, attention=attention)
    for prompt in ([9] * 40, [1, 2, 3], [4] * 20, [1, 2, 3]):
        name = engine.add_request(prompt, SamplingParams(max_tokens=8))
        output = outputs(drain(engine))[name]
        assert same_answer(output, alone(model, prompt, SamplingParams(max_tokens=8), decode=None))


def test_a_recited_answer_comes_out_in_order_whatever_the_chunks() -> None:
    """The stand-in itself: it reads its history through positions, slots and tables, and tells a fault apart."""
    model = Scripted(reciting(6, [10, 20, 30]))
    for budget in (1, 4, 64):
        output = alone(model, [1, 2, 3, 4, 5, 6], SamplingParams(max_tokens=3), max_num_batched_tokens=budget)
        assert output.token_ids == (10, 20, 30)
