"""Who is next: what every order promises, over random traffic in simulated time; and that no order changes an answer.

The scheduler, the policies and the requests are the engine's; only the step is a formula. Each property is checked
after every step of many small workloads.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from stand_ins import Scripted, digest, small_engine

from minicb import cli, commands
from minicb import policy as policy_module
from minicb import scheduler as scheduler_module
from minicb.bench.arrivals import Job
from minicb.bench.simulate import Simulation, Step, TokenPool, open_job, simulate
from minicb.bench.steptime import Constant, Roofline
from minicb.policy import (
    POLICIES,
    READ_PRICE,
    WRITE_PRICE,
    Fcfs,
    Hrrn,
    Policy,
    Ranked,
    Vtc,
    aged_size,
    charge,
    latest_overtaker,
    lift,
    make_policy,
    response_ratio,
)  # fmt: skip
from minicb.request import Request
from minicb.sampling import SamplingParams
from minicb.scheduler import STEP_ORDERS, Scheduler
from minicb.weights import random_model, tiny_config

pytestmark = pytest.mark.usefixtures("one_thread")
CLOCK = Roofline("a small machine", 1e6, 1e6, 1e3, 1e2, 1e9, 1e9, overhead_s=0.001)


def draw_jobs(draw: random.Random, count: int = 40) -> list[Job]:
    spread = draw.choice((0.0, 0.5, 3.0))
    return [
        Job(
            draw.random() * spread, draw.choice((1, 5, 30, draw.randint(1, 120))), draw.randint(1, 12),
            draw.choice("abc"), draw.randint(0, 3),
        )
        for _ in range(count)
    ]  # fmt: skip


def draw_knobs(draw: random.Random) -> dict[str, Any]:
    chunked = draw.random() < 0.8
    return {
        "max_num_batched_tokens": draw.choice((1, 7, 16, 64)), "max_num_seqs": draw.randint(1, 9),
        "cache_tokens": draw.choice((144, 256, 2_000)), "policy": draw.choice(list(POLICIES)),
        "aging_tokens_per_s": draw.choice((0.0, 10.0, 500.0)), "step_order": draw.choice(STEP_ORDERS),
        "backfill": draw.choice((0, 0, 1, 3)), "enable_chunked_prefill": chunked,
        "long_prefill_token_threshold": draw.choice((0, 3, 20)) if chunked else 0,
        "client_weights": {"a": 1.0, "b": 2.0},
    }  # fmt: skip


class Watch:
    """Audits after every step, and remembers the steps and who started in which order."""

    def __init__(self) -> None:
        self.started: list[Request] = []
        self.steps: list[Step] = []

    def __call__(self, step: Step, scheduler: Scheduler) -> None:
        scheduler.check()
        self.steps.append(step)
        self.started += [c.request for c in step.plan if c.start == 0]


def watched(jobs: list[Job], **knobs: Any) -> tuple[Simulation, Watch]:
    watch = Watch()
    return simulate(jobs, CLOCK, on_step=watch, log=True, **knobs), watch


SEEDS = pytest.mark.parametrize("seed", range(25))


@SEEDS
def test_nobody_is_lost_and_the_limits_hold_under_every_knob(seed: int) -> None:
    """Budget, seats, pages, liveness, the right number of tokens, and never an empty step while there is work."""
    draw = random.Random(seed)
    jobs, knobs = draw_jobs(draw), draw_knobs(draw)
    run, watch = watched(jobs, **knobs)
    assert [r.finish_reason for r in run.requests] == ["length"] * len(jobs)
    assert [r.num_output_tokens for r in run.requests] == [job.answer for job in jobs]
    assert run.tokens == sum(job.prompt + job.answer - 1 for job in jobs), "a token was computed twice, or not at all"
    for step in watch.steps:
        counts = [chunk.num_new for chunk in step.plan]
        assert min(counts) >= 1
        assert sum(counts) <= knobs["max_num_batched_tokens"]
        assert len(counts) <= knobs["max_num_seqs"]
        if knobs["long_prefill_token_threshold"]:
            assert max(counts) <= knobs["long_prefill_token_threshold"]
    assert all(r.times_passed <= knobs["backfill"] for r in run.requests)


@SEEDS
def test_the_same_traffic_gives_the_same_log_byte_for_byte(seed: int) -> None:
    draw = random.Random(seed)
    jobs, knobs = draw_jobs(draw, 20), draw_knobs(draw)
    assert "\n".join(watched(jobs, **knobs)[0].log).encode() == "\n".join(watched(jobs, **knobs)[0].log).encode()


@SEEDS
def test_no_order_creates_capacity(seed: int) -> None:
    """Everybody is there from the start: the same tokens under every order, and nearly the same end."""
    draw = random.Random(seed)
    jobs = [Job(0.0, job.prompt, job.answer, job.client, job.priority) for job in draw_jobs(draw)]
    runs = [simulate(jobs, Constant(1.0), max_num_batched_tokens=16, max_num_seqs=4, policy=name) for name in POLICIES]
    assert len({run.tokens for run in runs}) == 1
    longest = max(job.prompt // 16 + job.answer + 1 for job in jobs)
    ends = [run.end_s for run in runs]
    assert max(ends) - min(ends) <= longest


@SEEDS
def test_first_come_first_served_starts_in_order_of_arrival(seed: int) -> None:
    draw = random.Random(seed)
    knobs = draw_knobs(draw) | {"policy": "fcfs", "backfill": 0}
    _, watch = watched(draw_jobs(draw), **knobs)
    assert [r.number for r in watch.started] == sorted(r.number for r in watch.started)


@SEEDS
def test_while_streams_come_first_none_of_them_ever_stalls(seed: int) -> None:
    """Whoever has a token and is not done gets the next one in every step: a gap is one step long."""
    draw = random.Random(seed)
    run, watch = watched(draw_jobs(draw), **(draw_knobs(draw) | {"step_order": "stall_free"}))
    ends = {step.start_s + step.seconds: step.seconds for step in watch.steps}
    for request in run.requests:
        for before, now in itertools.pairwise(request.token_times_s):
            assert now - before == pytest.approx(ends[now]), "a stream stood still"


def test_prompts_first_lets_streams_stall_and_prompts_start_earlier() -> None:
    jobs = [Job(0.0, 4, 30), Job(0.005, 60, 1), Job(0.005, 60, 1)]
    free, first = (
        simulate(jobs, CLOCK, max_num_batched_tokens=8, max_num_seqs=4, step_order=order).requests
        for order in ("stall_free", "prefill_first")
    )
    stall = [max(b - a for a, b in itertools.pairwise(r[0].token_times_s)) for r in (free, first)]
    assert stall[1] > 5 * stall[0]
    assert first[2].token_times_s[0] < free[2].token_times_s[0]


# ---- aging


def overtakings(started: list[Request]) -> Iterator[tuple[Request, Request]]:
    """(victim, overtaker): both had come, the later one started first."""
    for i, request in enumerate(started):
        for earlier in started[:i]:
            if earlier.arrival_s > request.arrival_s:
                yield request, earlier


@pytest.mark.parametrize("aging", [5.0, 50.0, 1_000.0])
@pytest.mark.parametrize("seed", range(20))
def test_with_aging_nobody_is_overtaken_by_more_than_the_bound(seed: int, aging: float) -> None:
    jobs = draw_jobs(random.Random(seed), 60)
    knobs = {"max_num_batched_tokens": 16, "max_num_seqs": 3, "policy": "sjf_aging", "aging_tokens_per_s": aging}
    _, watch = watched(jobs, **knobs)
    for victim, other in overtakings(watch.started):
        bound = latest_overtaker(victim.num_prompt_tokens, victim.arrival_s, other.num_prompt_tokens, aging)
        assert other.arrival_s <= bound + 1e-9


def flood(policy: str, count: int, aging: float = 20.0) -> Simulation:
    """A long request, and short ones that come just fast enough that one always waits."""
    jobs = [Job(0.0, 1, 8), Job(0.0, 100, 1)] + [Job(0.004 * i, 1, 4) for i in range(count)]
    return simulate(
        jobs, Constant(0.001), max_num_batched_tokens=128, max_num_seqs=1, policy=policy, aging_tokens_per_s=aging
    )


def test_shortest_first_starves_a_long_request_as_long_as_short_ones_come() -> None:
    for count in (200, 800):
        run = flood("shortest_prefill_first", count)
        assert run.requests[1].token_times_s[0] >= 0.004 * count, "it ran before the stream of short ones ended"


def test_so_does_a_static_priority() -> None:
    jobs = [Job(0.0, 1, 8), Job(0.0, 1, 1, priority=1)] + [Job(0.004 * i, 1, 4) for i in range(300)]
    run = simulate(jobs, Constant(0.001), max_num_batched_tokens=8, max_num_seqs=1, policy="priority")
    assert run.requests[1].token_times_s[0] >= 0.004 * 300


@pytest.mark.parametrize("policy", ["fcfs", "sjf_aging", "hrrn"])
def test_first_come_aging_and_ratios_let_nobody_starve(policy: str) -> None:
    waits = [flood(policy, count).requests[1].token_times_s[0] for count in (2_000, 4_000)]
    assert waits[0] == waits[1], "more short ones behind it make it wait longer"


def test_aging_slides_from_shortest_first_to_first_come() -> None:
    draw = random.Random(1)
    jobs = [Job(i / 100, draw.randint(1, 99), draw.randint(1, 9)) for i in range(40)]
    starts = {}
    for policy, aging in (("fcfs", 0.0), ("sjf_aging", 1e9), ("shortest_prefill_first", 0.0), ("sjf_aging", 0.0)):
        knobs = {"max_num_batched_tokens": 16, "max_num_seqs": 2, "policy": policy, "aging_tokens_per_s": aging}
        _, watch = watched(jobs, **knobs)
        starts[policy, aging] = [r.request_id for r in watch.started]
    assert starts["fcfs", 0.0] == starts["sjf_aging", 1e9]
    assert starts["shortest_prefill_first", 0.0] == starts["sjf_aging", 0.0]


def test_the_formulas() -> None:
    assert response_ratio(0, 5) == 1.0
    assert response_ratio(15, 5) == 4.0
    assert aged_size(100, 2.0, 50.0) == 200.0
    assert latest_overtaker(100, 2.0, 40, 20.0) == 5.0
    assert charge(10.0, 4, 2.0, 2.0) == 14.0
    assert lift(3.0, [5.0, 9.0]) == 5.0
    assert lift(7.0, [5.0, 9.0]) == 7.0
    assert lift(7.0, []) == 7.0


# ---- backfill and whole prompts


def blocked_head(backfill: int) -> Simulation:
    """One runs and holds most of the cache; a big one is next; ten small ones stand behind it."""
    jobs = [Job(0.0, 100, 60), Job(0.01, 200, 8)] + [Job(0.02, 8, 4) for _ in range(10)]
    return simulate(jobs, CLOCK, cache_tokens=256, max_num_batched_tokens=64, max_num_seqs=16, backfill=backfill)


@pytest.mark.parametrize("backfill", [0, 1, 3, 20])
def test_at_most_so_many_pass_a_request_that_found_no_room(backfill: int) -> None:
    _, head, *small = blocked_head(backfill).requests
    passed = sum(r.first_scheduled_s < head.first_scheduled_s for r in small)  # type: ignore[operator]
    assert passed == head.times_passed == min(backfill, 10)


def test_a_blocked_request_keeps_its_place_under_every_policy() -> None:
    """Whoever was popped and put back is next again."""
    for name in POLICIES:
        policy = make_policy(name, 10.0, {})
        requests = [numbered(i, Job(float(i), 5 + i, 1, "ab"[i % 2])) for i in range(6)]
        for request in requests:
            policy.add(request)
        first, second = policy.pop(), policy.pop()
        policy.put_back(second)
        policy.put_back(first)
        assert len(policy) == len(list(policy)) == 6
        assert policy.pop() is first
        assert policy.pop() is second


def numbered(number: int, job: Job) -> Request:
    request = open_job(job, str(number), job.at_s)
    request.number = number
    return request


def test_without_chunks_a_prompt_is_computed_whole_unless_no_step_could_hold_it() -> None:
    jobs = [Job(0.0, 30, 5), Job(0.0, 30, 5), Job(0.0, 50, 5), Job(0.0, 100, 2)]
    chunks: dict[str, list[int]] = {}

    def watch(step: Step, _: Scheduler) -> None:
        for c in step.plan:
            if c.start < c.request.num_prompt_tokens:
                chunks.setdefault(c.request.request_id, []).append(c.num_new)

    knobs = {"max_num_batched_tokens": 64, "max_num_seqs": 8, "enable_chunked_prefill": False}
    simulate(jobs, CLOCK, on_step=watch, **knobs)
    assert chunks == {"0": [30], "1": [30], "2": [50], "3": [64, 36]}


# ---- fair shares


def service(jobs: list[Job], weights: Mapping[str, float], until_s: float) -> tuple[list[dict[str, float]], list[bool]]:
    """After each step: what each client got so far, and whether all had somebody waiting."""
    total = {job.client: 0.0 for job in jobs}
    seen: list[dict[str, float]] = []
    backlogged: list[bool] = []

    def watch(step: Step, scheduler: Scheduler) -> None:
        for c in step.plan:
            read = max(0, min(c.end, c.request.num_prompt_tokens) - c.start)
            total[c.request.params.client] += READ_PRICE * read + WRITE_PRICE * c.samples
        seen.append(dict(total))
        backlogged.append({r.params.client for r in scheduler.waiting} == set(total))

    simulate(
        jobs, CLOCK, until_s=until_s, on_step=watch, policy="vtc", client_weights=weights, cache_tokens=512,
        max_num_batched_tokens=32, max_num_seqs=6,
    )  # fmt: skip
    return seen, backlogged


@pytest.mark.parametrize("seed", range(10))
def test_two_clients_who_both_wait_get_the_same_within_the_bound(seed: int) -> None:
    draw = random.Random(seed)
    jobs = [Job(0.0, draw.randint(1, 60), draw.randint(1, 20), draw.choice("aab")) for _ in range(300)]
    longest = max(job.prompt for job in jobs)
    bound = 2 * max(READ_PRICE * longest, WRITE_PRICE * 512)
    seen, backlogged = service(jobs, {}, until_s=1e9)
    both = [total for total, waiting in zip(seen, backlogged, strict=True) if waiting]
    assert len(both) > 100
    assert all(abs(total["a"] - total["b"]) <= bound for total in both)


def test_weights_are_shares() -> None:
    jobs = [Job(0.0, 8, 8, client) for client in "abc" for _ in range(400)]
    seen, backlogged = service(jobs, {"a": 1.0, "b": 2.0, "c": 3.0}, until_s=1e9)
    last = [total for total, waiting in zip(seen, backlogged, strict=True) if waiting][-1]
    whole = sum(last.values())
    assert [round(last[client] / whole, 2) for client in "abc"] == pytest.approx([1 / 6, 2 / 6, 3 / 6], abs=0.02)


def test_counters_never_fall_and_silence_earns_no_credit() -> None:
    draw, vtc = random.Random(3), Vtc({})
    waiting, before = 0, dict[str, float]()
    for number in range(2_000):
        if draw.random() < 0.5 or not waiting:
            request = numbered(number, Job(0.0, draw.randint(1, 50), 1, draw.choice("abcd")))
            others = [vtc.counters[client] for client in vtc.rows]
            absent = request.params.client not in vtc.rows
            vtc.add(request)
            waiting += 1
            assert not (absent and others) or vtc.counters[request.params.client] >= min(others)
        else:
            chosen = vtc.pop()
            assert vtc.counters[chosen.params.client] == min(
                [vtc.counters[c] for c in vtc.rows] + [vtc.counters[chosen.params.client]]
            )
            vtc.started(chosen)
            vtc.computed(1, [chosen])
            waiting -= 1
        assert all(vtc.counters[client] >= value for client, value in before.items())
        before = dict(vtc.counters)


def test_the_scheduler_tells_its_policy_what_was_read_and_written() -> None:
    draw = random.Random(4)
    jobs = [Job(0.0, draw.randint(1, 40), draw.randint(1, 9), "ab"[i % 2]) for i in range(20)]
    vtc, hrrn = Vtc({"b": 4.0}), Hrrn()
    for policy in (vtc, hrrn):
        run = simulate(jobs, CLOCK, policy=policy, max_num_batched_tokens=16, max_num_seqs=3)
    assert hrrn.total == run.tokens
    for client, weight in (("a", 1.0), ("b", 4.0)):
        own = [job for job in jobs if job.client == client]
        cost = READ_PRICE * sum(job.prompt for job in own) + WRITE_PRICE * sum(job.answer for job in own)
        assert vtc.counters[client] == pytest.approx(cost / weight)


# ---- the queues


@pytest.mark.parametrize("name", POLICIES)
def test_a_queue_loses_nobody_whoever_leaves_in_between(name: str) -> None:
    draw, policy = random.Random(name), make_policy(name, 20.0, {"a": 2.0})
    there: dict[str, Request] = {}
    for number in range(1_500):
        action = draw.random()
        if action < 0.5 or not there:
            request = numbered(number, Job(number / 10, draw.randint(1, 9), 1, draw.choice("abc"), draw.randint(0, 2)))
            policy.add(request)
            there[request.request_id] = request
        elif action < 0.7:
            policy.remove(there.pop(draw.choice(list(there))))
        else:
            request = policy.pop()
            assert there.pop(request.request_id) is request
            policy.started(request)
            policy.computed(draw.randint(1, 30), [request])
        assert len(policy) == len(there)
        assert {r.request_id for r in policy} == set(there)
    policy.clear()
    assert not list(policy)
    assert not policy


def test_of_equals_the_first_is_next_under_every_policy() -> None:
    for name in POLICIES:
        policy = make_policy(name, 10.0, {})
        for number in range(20):
            policy.add(numbered(number, Job(0.0, 7, 1)))
        assert [policy.pop().number for _ in range(20)] == list(range(20)), name


@pytest.mark.parametrize(("sizes", "off"), [((1, 15), 1.0), ((1, 5_000), 9 / 8)])
def test_the_queue_of_ratios_agrees_with_a_plain_search(sizes: tuple[int, int], off: float) -> None:
    """Exactly where each size has its own row, within an eighth where similar ones share one."""
    draw, policy = random.Random(5), Hrrn()
    waiting: dict[int, tuple[int, int]] = {}  # number -> size, total at arrival
    for number in range(800):
        size = draw.randint(*sizes)
        policy.add(numbered(number, Job(0.0, size, 1)))
        waiting[number] = size, policy.total
        policy.computed(draw.randint(0, 2 * sizes[1]), [])
        if draw.random() < 0.45:
            ratios = {n: response_ratio(policy.total - came, size) for n, (size, came) in waiting.items()}
            chosen = policy.pop().number
            assert ratios[chosen] * off >= max(ratios.values())
            assert off > 1 or chosen == min(n for n in ratios if ratios[n] == ratios[chosen])
            del waiting[chosen]


def test_a_policy_of_your_own_is_asked() -> None:
    longest_first = Ranked(lambda r: -r.num_uncomputed_tokens)
    jobs = [Job(0.0, size, 1) for size in (3, 9, 1, 7)]
    run = simulate(jobs, Constant(1.0), policy=longest_first, max_num_batched_tokens=16, max_num_seqs=1)
    assert sorted(range(4), key=lambda i: run.requests[i].token_times_s[0]) == [1, 3, 0, 2]


def test_first_come_is_a_plain_deque_and_the_default() -> None:
    policy: Policy = Scheduler(TokenPool(64), max_num_batched_tokens=8, max_num_seqs=8).waiting
    assert isinstance(policy, Fcfs)


# ---- the door


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"policy": "lifo"}, "policy must be one of fcfs, priority, .*, not 'lifo'"),
        ({"step_order": "both"}, "step_order must be one of stall_free, prefill_first, not 'both'"),
        ({"aging_tokens_per_s": -1.0}, "aging_tokens_per_s must be a finite number of at least 0"),
        ({"aging_tokens_per_s": float("nan")}, "aging_tokens_per_s must be"),
        ({"backfill": -1}, "backfill must be a whole number"),
        ({"backfill": True}, "backfill must be a whole number"),
        ({"long_prefill_token_threshold": 1.5}, "long_prefill_token_threshold must be a whole number"),
        ({"client_weights": {"a": 0}}, "client weight of 'a' must be a finite number above 0"),
        ({"enable_chunked_prefill": False, "long_prefill_token_threshold": 4}, "choose one"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens"),
    ],
)
def test_a_knob_out_of_range_is_one_line_that_says_what_is_allowed(knobs: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        small_engine(Scripted(digest), None, max_model_len=16, **knobs)


def test_a_priority_and_a_client_are_checked_at_the_door() -> None:
    for field, value in (("priority", 1.5), ("priority", None), ("priority", "high"), ("client", 3), ("client", None)):
        with pytest.raises(ValueError, match=field):
            SamplingParams(**{field: value})


def test_the_demo_refuses_a_knob_before_it_loads_anything(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--backfill", "-1"]) == 1
    assert "backfill must be a whole number of at least 0" in capsys.readouterr().err


def test_the_command_line_knows_the_same_names() -> None:
    assert tuple(POLICIES) == commands.POLICIES
    assert STEP_ORDERS == commands.STEP_ORDERS


# ---- outputs


def answers(model: Any, prompts: list[list[int]], lengths: list[int], **knobs: Any) -> list[tuple[int, ...]]:
    engine = small_engine(model, None, max_model_len=64, **knobs)
    ended: dict[str, tuple[int, ...]] = {}
    for i, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
        params = SamplingParams(max_tokens=length, ignore_eos=True, client="abc"[i % 3], priority=i % 4)
        engine.add_request(prompt, params, str(i))
        if i % 3 == 0:
            ended |= {e.request_id: e.output.token_ids for e in engine.step() if e.output}
            engine.check()
    while engine.has_unfinished_requests:
        ended |= {e.request_id: e.output.token_ids for e in engine.step() if e.output}
        engine.check()
    return [ended[str(i)] for i in range(len(prompts))]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(6))
def test_no_policy_budget_or_order_changes_an_answer(seed: int, dtype: str) -> None:
    draw = random.Random(seed)
    model = random_model(tiny_config(layers=2), seed=seed, std=0.3, dtype=dtype)
    vocab = model.config.vocab_size
    prompts = [[draw.randrange(vocab) for _ in range(draw.choice((1, 4, 11, 40)))] for _ in range(9)]
    lengths = [draw.randint(1, 10) for _ in prompts]
    alone = [
        answers(model, [p], [n], max_num_seqs=1, max_num_batched_tokens=64)[0]
        for p, n in zip(prompts, lengths, strict=True)
    ]
    for policy, order in itertools.product(POLICIES, STEP_ORDERS):
        budget, seqs = draw.choice((3, 8, 48)), draw.choice((2, 3, 9))
        knobs = {"max_num_batched_tokens": budget, "max_num_seqs": seqs, "policy": policy, "step_order": order}
        knobs |= draw.choice(({}, {"enable_chunked_prefill": False}, {"long_prefill_token_threshold": 2}))
        assert answers(model, prompts, lengths, backfill=draw.choice((0, 2)), **knobs) == alone, knobs


def test_the_command_line_offers_every_policy_and_step_order_there_is() -> None:
    """It keeps the names of its own, so that --help need not wait for torch."""
    assert tuple(policy_module.POLICIES) == commands.POLICIES
    assert commands.STEP_ORDERS == scheduler_module.STEP_ORDERS
