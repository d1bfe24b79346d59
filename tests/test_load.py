"""Ten thousand in the queue, a thousand aborts: nothing is lost, nothing is mixed up, nothing stays behind."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

from minicb.engine import Engine, Event
from minicb.outputs import RequestOutput
from minicb.request import Status
from minicb.sampling import SamplingParams
from tests.harness.scripted import Script, ScriptedModel, history_logits, scripted_config

VOCAB, ROOM = 64, 16
SCRIPT = Script(peak=10.0)


def make_engine(**options: Any) -> Engine:
    model = ScriptedModel(scripted_config(VOCAB, ROOM), SCRIPT)
    limits = {"max_num_batched_tokens": 512, "max_num_seqs": 256, "kv_cache_memory_bytes": 1 << 24}
    clock = itertools.count().__next__
    return Engine(model, max_model_len=ROOM, clock=clock, **{**limits, **options})  # type: ignore[arg-type]


def draw_prompt(rng: random.Random) -> list[int]:
    return [rng.randrange(VOCAB) for _ in range(rng.randint(1, 8))]


def is_what_it_says_alone(output: RequestOutput) -> bool:
    """Greedy, from its own history, without a cache. Checks the ids; how they ended is the caller's question."""
    ids = [*output.prompt_token_ids, *output.token_ids]
    rows = history_logits(ids, VOCAB, SCRIPT)[len(output.prompt_token_ids) - 1 : -1]
    return rows.argmax(axis=-1).tolist() == list(output.token_ids)


def test_ten_thousand_queued_requests_drain() -> None:
    rng, engine = random.Random(0), make_engine()
    wanted = {}
    for _ in range(10_000):
        prompt, most = draw_prompt(rng), rng.randint(1, 4)
        wanted[engine.add_request(prompt, SamplingParams(max_tokens=most))] = (tuple(prompt), most)
    outputs: list[RequestOutput] = []
    work = sum(len(prompt) + most - 1 for prompt, most in wanted.values())
    for _ in range(2 * work // 512 + 100):
        outputs += [event.output for event in engine.step() if event.output]
        engine.check()
    assert not engine.has_unfinished_requests
    assert engine.steps <= work // 256 + 20, "much of the budget stayed idle"
    assert sorted(o.request_id for o in outputs) == sorted(wanted)
    for o in outputs:
        assert (o.prompt_token_ids, len(o.token_ids), o.finish_reason) == (*wanted[o.request_id], "length")
        assert is_what_it_says_alone(o)
    assert engine.pool.free_pages == engine.pool.num_pages


def test_whoever_came_first_starts_first_whatever_the_load() -> None:
    rng, engine = random.Random(1), make_engine(max_num_seqs=7, max_num_batched_tokens=20)
    names = [engine.add_request(draw_prompt(rng), SamplingParams(max_tokens=rng.randint(1, 6))) for _ in range(300)]
    started: list[str] = []
    while engine.has_unfinished_requests:
        engine.step()
        started += [r.request_id for r in engine.scheduler.running if r.request_id not in started]
    assert [name for name in names if name in started] == started


class Desk:
    """Takes events in, and sees to it that each request ends once."""

    def __init__(self) -> None:
        self.texts: dict[str, list[str]] = {}
        self.outputs: dict[str, RequestOutput] = {}

    def take(self, event: Event) -> None:
        assert event.request_id not in self.outputs, "something comes after the end"
        self.texts.setdefault(event.request_id, []).append(event.text)
        if event.output:
            self.outputs[event.request_id] = event.output


def state(engine: Engine, name: str) -> str:
    request = engine.requests.get(name)
    if request is None:
        return "ended"
    if request.status is Status.WAITING:
        return "waiting"
    return "writing" if request.num_output_tokens else "in its prompt"


def test_a_thousand_aborts_at_random_moments_leave_nothing_behind() -> None:
    rng, engine, desk = random.Random(2), make_engine(max_num_seqs=60, max_num_batched_tokens=64), Desk()
    names = [
        engine.add_request(draw_prompt(rng), SamplingParams(max_tokens=rng.randint(1, 8), logprobs=1))
        for _ in range(2_600)
    ]
    states: Counter[str] = Counter()
    while engine.has_unfinished_requests:
        for event in engine.step():
            desk.take(event)
        running = [r.request_id for r in engine.scheduler.running]  # few among many, so they get a share of their own
        for name in rng.choices(names, k=rng.choice((0, 3, 9))) + rng.sample(running, min(len(running), 3)):
            states[state(engine, name)] += 1
            last = engine.abort_request(name)
            assert (last is None) == (name in desk.outputs), "it says whether there was something to abort"
            if last is not None:
                desk.take(last)
        engine.check()
    aborted = [o for o in desk.outputs.values() if o.finish_reason == "abort"]
    assert len(aborted) == states.total() - states["ended"] >= 1_000
    assert min(states[s] for s in ("ended", "waiting", "in its prompt", "writing")) > 10
    assert sorted(desk.outputs) == sorted(names)
    assert all(is_what_it_says_alone(o) for o in desk.outputs.values())
    assert all(len(o.logprobs or ()) == len(o.token_ids) == o.metrics.num_output_tokens for o in desk.outputs.values())
    assert engine.pool.free_pages == engine.pool.num_pages
