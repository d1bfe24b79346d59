"""When something breaks: one bad request fails alone, a fault of the loop is told to everybody at once, an interrupt
ends nothing. Nothing is lost, and nobody waits for ever: every wait in here has an end.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import itertools
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from stand_ins import (
    PATIENCE_S,
    Bytes,
    Scripted,
    alone,
    byte_tokenizer,
    digest,
    drain,
    outputs,
    reciting,
    same_answer,
    small_engine,
    within,
)

import minicb
from minicb import sampling, seams
from minicb.engine import Engine, EngineDeadError
from minicb.interrupts import uninterrupted
from minicb.llm import LLM
from minicb.outputs import Event, RequestOutput
from minicb.sampling import SamplingParams

pytestmark = pytest.mark.usefixtures("one_thread")
PARAMS = SamplingParams(max_tokens=6, logprobs=1)
PROMPTS = {"a": [1, 2, 3], "b": [4] * 9, "c": [5, 6]}
LONG = SamplingParams(max_tokens=60)


class Broken(RuntimeError):  # noqa: N818 - reads as what happened
    pass


def broken(*_: object, **__: object) -> Any:
    raise Broken("a bolt is loose")


def breaks_at(step: int) -> Callable[[int], None]:
    return lambda now: broken() if now == step else None


def make_engine(model: Scripted | None = None, decode: Any = Bytes, **options: Any) -> Engine:
    engine = small_engine(model or Scripted(digest), decode, **{"max_num_batched_tokens": 6, **options})
    for name, prompt in PROMPTS.items():
        engine.add_request(prompt, PARAMS, name)
    return engine


def make_llm(model: Scripted | None = None, **options: Any) -> LLM:
    return LLM(model or Scripted(digest), byte_tokenizer(), kv_cache_memory_bytes=1 << 22, **options)


def said(prompt: Sequence[int], params: SamplingParams = PARAMS) -> RequestOutput:
    return alone(Scripted(digest), prompt, params)


def assert_as_alone(ended: dict[str, RequestOutput], names: Sequence[str] = tuple(PROMPTS)) -> None:
    for name in names:
        assert same_answer(ended[name], said(PROMPTS[name])), name


def is_clean(llm: LLM) -> bool:
    llm.engine.check()
    pool = llm.engine.pool
    return not llm.engine.requests and not llm.mail and pool.free_pages == pool.num_pages


# ---- a fault of the loop


@pytest.mark.parametrize("step", range(6))
@pytest.mark.parametrize("late", [False, True])
def test_a_fault_of_the_model_ends_everybody_with_its_cause_and_a_reset_makes_it_good(step: int, late: bool) -> None:
    model = Scripted(digest)
    engine = make_engine(model)
    if late:
        model.after = breaks_at(step)  # keys and values are in the cache already
    else:
        model.before = breaks_at(step)
    events: dict[str, list[Event]] = {}
    with pytest.raises(Broken, match="a bolt is loose"):
        step_for_ever(engine, events)
    engine.check()
    lost = engine.lost
    for event in engine.collect():
        events.setdefault(event.request_id, []).append(event)
    for name, output in outputs(events).items():
        whole = said(PROMPTS[name])
        assert "".join(event.text for event in events[name]) == output.text
        assert output.token_ids == whole.token_ids[: len(output.token_ids)]
        if name in lost:
            assert (output.finish_reason, output.error) == ("error", "Broken: a bolt is loose")
            assert isinstance(events[name][-1].cause, Broken)
    assert set(events) == set(PROMPTS), "everybody was told, once"
    assert engine.pool.free_pages == engine.pool.num_pages

    for refused in (engine.step, lambda: engine.add_request([1])):
        with pytest.raises(EngineDeadError, match=r"stopped \(Broken: a bolt is loose\): call reset") as told:
            refused()
        assert isinstance(told.value.__cause__, Broken)
    assert engine.abort_request("a") is None

    model.before = model.after = lambda _: None
    engine.reset()
    for name, prompt in PROMPTS.items():
        engine.add_request(prompt, PARAMS, name)
    assert_as_alone(outputs(drain(engine)))


def step_for_ever(engine: Engine, events: dict[str, list[Event]]) -> None:
    while True:
        for event in engine.step():
            events.setdefault(event.request_id, []).append(event)


def break_schedule(engine: Engine) -> None:
    engine.scheduler.schedule = broken


def break_pack(engine: Engine) -> None:
    engine.pool.pages = broken


def break_logits(engine: Engine) -> None:
    engine.model.logits = broken


def break_commit(engine: Engine) -> None:
    engine.scheduler.commit = broken


def break_record(engine: Engine) -> None:
    engine.record, engine.on_step = broken, lambda _: None  # a record is only made for somebody


@pytest.mark.parametrize(
    "part", [break_schedule, break_pack, break_logits, break_commit, break_record], ids=lambda part: part.__name__
)
def test_a_fault_in_any_part_of_the_step_is_one_of_the_loop(part: Callable[[Engine], None]) -> None:
    engine = make_engine()
    engine.step()
    part(engine)
    with pytest.raises(Broken):
        engine.step()
    assert isinstance(engine.failure, Broken)
    assert not engine.requests
    assert {event.request_id for event in engine.collect() if event.output} == set(PROMPTS)


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, AssertionError, StopIteration, torch.OutOfMemoryError])
def test_any_kind_of_exception_is_a_fault(error: type[Exception]) -> None:
    model = Scripted(digest)
    engine = make_engine(model)

    def fail(_: int) -> None:
        raise error("why")

    model.before = fail
    with pytest.raises(error):
        engine.step()
    assert isinstance(engine.failure, error)


@pytest.mark.parametrize("id", ["7.1", "7.2", "4.1", "6.1", "6.3", "3.2"])
def test_a_learners_part_that_raises_is_named_and_does_not_hang(id: str) -> None:
    """Their own version of a function of the loop or of the cache: its error is the cause."""
    engine = make_engine()
    with seams.swapped(id, broken), pytest.raises(Broken):
        step_for_ever(engine, {})
    assert isinstance(engine.failure, Broken)


def test_a_plan_that_forgets_somebody_is_a_fault_and_not_a_silence() -> None:
    engine = make_engine()
    engine.step()
    with seams.swapped("7.2", lambda wanted, _: [1] * (len(wanted) - 1)), pytest.raises(ValueError, match="zip"):
        engine.step()
    assert engine.failure is not None


# ---- ... and everybody who waits


def test_every_thread_that_waits_is_told_at_once() -> None:
    model = Scripted(digest)
    llm = make_llm(model)
    streams = [llm.stream([i, 1], LONG) for i in range(8)]
    done = llm.stream([9, 9], SamplingParams(max_tokens=1))
    model.before = breaks_at(3)

    def wait(stream: Any) -> str:
        try:
            stream.finish()
        except EngineDeadError as error:
            return f"{error.__cause__!r} after {len(stream.output.token_ids)}"
        return "an answer"

    with ThreadPoolExecutor(8) as pool:
        told = within(lambda: list(pool.map(wait, streams)))
    assert told == ["Broken('a bolt is loose') after 3"] * 8
    assert len(done.finish().token_ids) == 1, "an answer that was whole before is still there to read"
    with pytest.raises(EngineDeadError, match="a bolt is loose"):
        within(lambda: llm.generate([[1]]))
    assert not llm.mail


def test_every_task_that_waits_is_told_at_once() -> None:
    model = Scripted(digest)
    llm = make_llm(model)
    model.before = breaks_at(3)

    async def read() -> None:
        async for _ in llm.astream([1, 2], LONG):
            pass

    async def work() -> list[Any]:
        waiting = [llm.agenerate([[i], [i, i]], LONG) for i in range(10)]
        return await asyncio.gather(*waiting, read(), return_exceptions=True)

    told = within(lambda: asyncio.run(asyncio.wait_for(work(), PATIENCE_S)))
    assert [type(error) for error in told] == [EngineDeadError] * 11
    assert {repr(error.__cause__) for error in told} == {"Broken('a bolt is loose')"}
    assert not llm.mail


def test_generate_tells_the_cause_and_works_again_after_a_reset() -> None:
    model = Scripted(digest)
    llm = make_llm(model)
    model.before = breaks_at(2)
    with pytest.raises(EngineDeadError, match=r"stopped \(Broken: a bolt is loose\)") as told:
        llm.generate(list(PROMPTS.values()), PARAMS)
    assert isinstance(told.value.__cause__, Broken)
    assert told.value.__cause__.__traceback__ is not None, "and where it happened"
    llm.engine.reset()
    ended = dict(zip(PROMPTS, llm.generate(list(PROMPTS.values()), PARAMS), strict=True))
    assert_as_alone(ended)
    assert is_clean(llm)


def test_a_reset_before_a_waiter_has_read_does_not_hide_the_cause() -> None:
    model = Scripted(digest)
    llm = make_llm(model)
    first, second = llm.stream([1], LONG), llm.stream([2], LONG)
    model.before = breaks_at(2)
    with pytest.raises(EngineDeadError):
        first.finish()
    llm.engine.reset()
    with pytest.raises(EngineDeadError, match="a bolt is loose"):
        within(second.finish)
    assert same_answer(llm.generate([[1, 2, 3]], PARAMS)[0], said([1, 2, 3]))


def test_who_failed_alone_before_keeps_its_own_error() -> None:
    model = Scripted(lambda history: torch.full((300,), torch.nan) if history[0] == 1 else digest(history))
    llm = make_llm(model)
    bad, other = llm.stream([1], LONG), llm.stream([2], LONG)
    next(other)
    model.before = broken
    with pytest.raises(EngineDeadError):
        other.finish()
    assert (bad.finish().error or "").startswith("FloatingPointError")


def test_a_step_that_somebody_else_made_and_broke_reaches_the_readers() -> None:
    model = Scripted(digest)
    llm = make_llm(model)
    stream = llm.stream([1], LONG)
    next(stream)
    model.before = broken
    with pytest.raises(Broken):
        llm.engine.step()
    with pytest.raises(EngineDeadError, match="a bolt is loose"):
        within(stream.finish)


def test_two_engines_in_one_process_break_apart() -> None:
    model = Scripted(digest)
    broken_llm, good = make_llm(model), make_llm()
    model.before = broken
    with pytest.raises(EngineDeadError):
        broken_llm.generate([[1]])
    assert same_answer(good.generate([[1, 2, 3]], PARAMS)[0], said([1, 2, 3]))


@pytest.mark.parametrize("end", ["a fault of the loop", "an abort"])
def test_text_that_could_have_become_a_stop_text_is_not_lost_at_the_end(end: str) -> None:
    model = Scripted(reciting(1, b"xyST"))
    engine = small_engine(model)
    engine.add_request([1], SamplingParams(stop="STOP", max_tokens=9), "r")
    events = [event for _ in range(4) for event in engine.step()]
    assert "".join(event.text for event in events) == "xy"
    model.before = broken
    if end == "an abort":
        last = engine.abort_request("r")
        events += [last] if last else []
    else:
        with pytest.raises(Broken):
            engine.step()
        events += engine.collect()
    assert "".join(event.text for event in events) == outputs({"r": events})["r"].text == "xyST"


# ---- one request's fault


def test_logits_that_are_not_finite_end_their_request_alone() -> None:
    def answer(history: list[int]) -> Any:
        return torch.full((300,), torch.nan) if history[0] == 4 and len(history) == 11 else digest(history)

    engine = make_engine(Scripted(answer))
    ended = outputs(drain(engine))
    assert_as_alone(ended, ["a", "c"])
    assert (ended["b"].finish_reason, len(ended["b"].token_ids)) == ("error", 2)
    assert ended["b"].error == "FloatingPointError: the model's logits are not finite"
    assert engine.failure is None


def test_a_sampler_that_breaks_for_one_row_ends_that_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    uniform = sampling.uniform
    monkeypatch.setattr(sampling, "uniform", lambda seed, at: broken() if seed == 13 else uniform(seed, at))
    engine = make_engine()
    engine.add_request([9], SamplingParams(temperature=1.0, seed=13), "d")
    drawn = SamplingParams(temperature=1.0, seed=14, max_tokens=6)
    engine.add_request([9], drawn, "e")
    ended = outputs(drain(engine))
    assert_as_alone(ended)
    assert (ended["d"].finish_reason, ended["d"].error) == ("error", "Broken: a bolt is loose")
    assert same_answer(ended["e"], said([9], drawn))


def test_a_sampler_that_breaks_for_everybody_ends_each_with_the_cause() -> None:
    engine = make_engine()
    with seams.swapped("0.1", broken):
        ended = outputs(drain(engine))
    assert [output.error for output in ended.values()] == ["Broken: a bolt is loose"] * 3
    engine.add_request(PROMPTS["a"], PARAMS, "a")
    assert_as_alone(outputs(drain(engine)), ["a"])


@pytest.mark.parametrize("moment", ["at the first token", "at a later token", "at the last token", "at the flush"])
def test_an_answer_that_cannot_be_decoded_ends_alone(moment: str) -> None:
    """Id 280 has no text, and neither have the bytes of half a character when the answer ends."""
    bad = {"at the first token": [280], "at a later token": [97, 98, 280], "at the last token": [97] * 5 + [280]}
    said_by_b = bad.get(moment, [*b"abcd", 0xF0, 0x9F])
    recite = reciting(9, said_by_b)
    model = Scripted(lambda h: recite(h) if h[0] == 4 and len(h) >= 9 else digest(h))
    ended_halves = {0}

    def decode(ids: Sequence[int]) -> str:
        if 280 in ids:
            raise LookupError("no text for 280")
        if moment == "at the flush" and list(ids[-2:]) == [0xF0, 0x9F]:
            ended_halves.add(len(ended_halves))
            if len(ended_halves) > 2:  # pushing the id was fine; the last look at it is not
                raise LookupError("no text for half a character")
        return Bytes(ids)

    engine = make_engine(model, decode)
    events = drain(engine)
    ended = outputs(events)
    assert_as_alone(ended, ["a", "c"])
    b = ended["b"]
    assert (b.finish_reason, (b.error or "").partition(":")[0]) == ("error", "LookupError")
    assert list(b.token_ids) == said_by_b
    assert b.logprobs is not None
    assert len(b.logprobs) == len(b.token_ids)
    assert "".join(event.text for event in events["b"]) == b.text == Bytes([i for i in said_by_b if i < 128])
    assert engine.failure is None
    assert engine.pool.free_pages == engine.pool.num_pages


def test_a_decoder_that_returns_no_text_ends_its_request_alone() -> None:
    engine = make_engine(decode=lambda ids: None if 4 in ids or ids else "")
    ended = outputs(drain(engine))
    assert {output.finish_reason for output in ended.values()} == {"error"}
    assert engine.failure is None


def test_text_that_was_held_back_is_not_lost_when_decoding_breaks() -> None:
    """ "ab" could have become the stop text "abc"; then the next id has no text."""
    said_here = [97, 98, 280]
    model = Scripted(lambda h: said_here[len(h) - 1])

    def decode(ids: Sequence[int]) -> str:
        return broken() if 280 in ids else Bytes(ids)

    engine = small_engine(model, decode)
    engine.add_request([1], SamplingParams(stop="abc", max_tokens=9), "r")
    events = drain(engine)["r"]
    assert [event.text for event in events] == ["", "", "ab"]
    assert outputs({"r": events})["r"].text == "ab"


# ---- the user's callback


@pytest.mark.parametrize("step", range(5))
def test_an_exception_in_on_step_comes_out_as_it_is_and_costs_nothing(step: int) -> None:
    engine = make_engine(on_step=lambda record: broken() if record.step == step else None)
    events: dict[str, list[Event]] = {}
    raised = 0
    while engine.has_unfinished_requests:
        try:
            stepped = engine.step()
        except Broken:
            raised += 1
            assert engine.failure is None
            continue
        for event in stepped:
            events.setdefault(event.request_id, []).append(event)
    assert raised == 1
    assert_as_alone(outputs(events))


def test_an_exception_in_on_step_leaves_other_readers_their_events() -> None:
    llm = make_llm(on_step=lambda record: broken() if record.step == 2 else None)
    other = llm.stream(PROMPTS["b"], PARAMS)
    with pytest.raises(Broken):
        llm.generate([PROMPTS["a"]], PARAMS)
    assert list(llm.engine.requests) == [other.request_id]
    assert same_answer(other.finish(), said(PROMPTS["b"]))
    assert same_answer(llm.generate([PROMPTS["a"]], PARAMS)[0], said(PROMPTS["a"]))
    assert is_clean(llm)


def test_a_callback_may_abort_add_and_close() -> None:
    """It runs in the middle of a step, where everything is in order already."""
    llm = make_llm()
    victim, bystander = llm.stream(PROMPTS["a"], PARAMS), llm.stream(PROMPTS["b"], PARAMS)
    late: list[Any] = []

    def meddle(record: Any) -> None:
        if record.step == 1:
            victim.close()
            late.append(llm.stream(PROMPTS["c"], PARAMS))

    llm.engine.on_step = meddle
    assert same_answer(bystander.finish(), said(PROMPTS["b"]))
    assert same_answer(late[0].finish(), said(PROMPTS["c"]))
    assert list(victim) == []
    assert is_clean(llm)


# ---- readers that are gone


def test_a_stream_collected_in_the_middle_of_a_step_waits_for_its_end() -> None:
    """The garbage collector may come at any moment, also inside the scheduler; it must only leave a note."""
    model = Scripted(digest)
    llm = make_llm(model)

    def forget() -> None:
        stream = llm.stream([7], LONG)
        stream.itself = stream  # only the collector can free a circle

    forget()
    model.before = lambda step: gc.collect() if step == 1 else None
    assert same_answer(llm.generate([PROMPTS["a"]], PARAMS)[0], said(PROMPTS["a"]))
    assert llm.generate([[1]], SamplingParams(max_tokens=1))
    assert is_clean(llm)


# ---- interrupts: a real signal


@pytest.fixture(autouse=True)
def plain_ctrl_c() -> Iterator[None]:
    """The handler of a script and of a notebook's kernel, whatever the test runner has; and it is there afterwards."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    after = signal.signal(signal.SIGINT, before)
    assert after is signal.default_int_handler, "an interrupt was held back and never let go"


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def press_at(step: int) -> Callable[[int], None]:
    return lambda now: press() if now == step else None


def drain_interrupted(engine: Engine) -> tuple[dict[str, list[Event]], int]:
    events: dict[str, list[Event]] = {}
    pressed = 0
    for _ in range(100):
        if not engine.has_unfinished_requests:
            return events, pressed
        try:
            stepped = engine.step()
        except KeyboardInterrupt:
            pressed += 1
            engine.check()
            continue
        for event in stepped:
            events.setdefault(event.request_id, []).append(event)
    pytest.fail("never idle")


@pytest.mark.parametrize("step", range(6))
@pytest.mark.parametrize("where", ["before the cache is written", "after it", "in the callback", "in the decoder"])
def test_an_interrupt_in_a_step_ends_nothing_and_loses_nothing(where: str, step: int) -> None:
    model, calls = Scripted(digest), [0]

    def decode(ids: Sequence[int]) -> str:
        calls[0] += 1
        if where == "in the decoder" and calls[0] == 3 * step + 1:
            press()
        return Bytes(ids)

    engine = make_engine(model, decode)
    if where == "in the callback":
        engine.on_step = lambda record: press() if record.step == step else None
    elif where.startswith("before"):
        model.before = press_at(step)
    elif where.startswith("after"):
        model.after = press_at(step)
    events, pressed = drain_interrupted(engine)
    assert pressed == 1
    assert_as_alone(outputs(events))
    for name, own in events.items():
        assert "".join(event.text for event in own) == said(PROMPTS[name]).text
        assert len(own) == 6


def test_an_interrupted_generate_leaves_nothing_and_the_next_one_works() -> None:
    for step in range(6):
        model = Scripted(digest)
        llm = make_llm(model, max_num_batched_tokens=6)
        model.after = press_at(step)
        with pytest.raises(KeyboardInterrupt):
            llm.generate(list(PROMPTS.values()), PARAMS)
        assert is_clean(llm)
        assert llm.engine.failure is None
        assert_as_alone(dict(zip(PROMPTS, llm.generate(list(PROMPTS.values()), PARAMS), strict=True)))


def test_an_interrupted_stream_can_be_read_on() -> None:
    for step in range(6):
        model = Scripted(digest)
        llm = make_llm(model)
        model.after = press_at(step)
        stream, events = llm.stream(PROMPTS["a"], PARAMS), list[Event]()
        with suppress(KeyboardInterrupt):
            for event in stream:
                events.append(event)
        assert len(events) == step
        events += stream
        assert same_answer(outputs({"a": events})["a"], said(PROMPTS["a"]))


def test_another_threads_reader_does_not_notice_an_interrupt() -> None:
    """The signal goes to the main thread, which computes; the other goes on where it was."""
    model = Scripted(digest)
    llm = make_llm(model)
    other = llm.stream([7], LONG)
    readings: list[Any] = []
    with ThreadPoolExecutor(1) as pool:

        def start_reader_and_press(step: int) -> None:
            if step == 0:  # nobody else runs yet, so this is the main thread
                readings.append(pool.submit(other.finish))
                press()

        model.after = start_reader_and_press
        with pytest.raises(KeyboardInterrupt):
            llm.generate([PROMPTS["a"]], LONG)
        assert same_answer(readings[0].result(PATIENCE_S), said([7], LONG))
    assert is_clean(llm)


def test_an_interrupt_is_held_back_and_let_go_once() -> None:
    reached = []

    def work() -> None:
        with uninterrupted():
            press()
            press()
            with uninterrupted():
                press()
                reached.append("inside")
            reached.append("outside")
        reached.append("beyond")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == ["inside", "outside"]
    with pytest.raises(Broken) as told, uninterrupted():
        broken()
    assert told.value.__context__ is None


def test_in_a_worker_thread_and_without_a_handler_there_is_nothing_to_hold_back() -> None:
    def work() -> str:
        with uninterrupted():
            return "done"

    assert within(work) == "done"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with uninterrupted():
        press()
    assert signal.signal(signal.SIGINT, signal.default_int_handler) is signal.SIG_IGN


# ---- interrupts at every line


CORE = str(Path(minicb.__file__).parent)
TWO, ONE = SamplingParams(max_tokens=2), SamplingParams(max_tokens=1)


@contextmanager
def pressing_at_line(number: int) -> Iterator[list[str]]:
    """Ctrl-C before the line of the core that is executed as number `number`. Says which one that was."""
    hit: list[str] = []
    count = 0

    def lines(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if event == "line" and frame.f_code.co_name != "__del__":  # whatever is raised there, Python swallows
            count += 1
            if count == number:
                hit.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
                sys.settrace(None)
                press()
        return lines

    def calls(frame: FrameType, *_: object) -> Any:
        return lines if frame.f_code.co_filename.startswith(CORE) else None

    before = sys.gettrace()
    sys.settrace(calls)
    try:
        yield hit
    finally:
        sys.settrace(before)


def two_streams(llm: LLM) -> list[RequestOutput | None]:
    """Begin two answers and read both to their ends; go on after an interrupt as a user would in the next cell."""
    streams: list[Any] = []
    while len(streams) < 2:
        try:
            streams.append(llm.stream([len(streams) + 1, 3], TWO))
        except KeyboardInterrupt:
            continue
    for stream in streams:
        while True:
            try:
                stream.finish()
                break
            except KeyboardInterrupt:
                continue
    return [stream.output for stream in streams]


def one_generate(llm: LLM) -> list[RequestOutput]:
    prompts = [[1, 3], [2, 3]]
    try:
        return llm.generate(prompts, TWO)
    except KeyboardInterrupt:
        return llm.generate(prompts, TWO)


def the_bare_engine(llm: LLM) -> list[RequestOutput]:
    """Without the front of the house: whoever is interrupted looks whether it was done, and does it again if not.
    Only what `step` was about to return is lost on its way, so that the answer is asked for again."""
    engine, prompts = llm.engine, {"1": [1, 3], "2": [2, 3], "gone": [8]}
    ended: dict[str, RequestOutput] = {}

    def interruptibly(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except KeyboardInterrupt:
            engine.check()
        return None

    while not {"1", "2"} <= set(ended):
        for name in {"1", "2", "gone"} - set(ended):
            while name not in engine.requests:
                interruptibly(lambda name=name: engine.add_request(prompts[name], TWO, name))
        while "gone" in engine.requests:
            interruptibly(lambda: engine.abort_request("gone"))
        while engine.requests or engine.outbox:
            events = interruptibly(engine.step) or []
            ended |= {event.request_id: event.output for event in events if event.output}
    interruptibly(engine.reset)
    interruptibly(engine.check)
    return [ended["1"], ended["2"]]


@pytest.mark.skipif(sys.gettrace() is not None, reason="a debugger or a coverage tool watches the lines already")
@pytest.mark.parametrize("work", [two_streams, one_generate, the_bare_engine], ids=["streams", "generate", "engine"])
def test_an_interrupt_at_any_line_of_the_core_loses_nothing(work: Callable[[LLM], list[RequestOutput]]) -> None:
    """Run after run is interrupted once, each at the line after the one before, until a run has no line left."""
    wanted = [said([i, 3], TWO) for i in (1, 2)]
    for number in itertools.count(1):
        llm = make_llm()
        with pressing_at_line(number) as hit:
            try:
                ended = work(llm)
            except KeyboardInterrupt:
                pytest.fail(f"interrupted twice, the second time where nobody expected it: {hit}")
        if not hit:
            break
        for output, right in zip(ended, wanted, strict=True):
            assert output is not None
            assert same_answer(output, right), hit
        llm.generate([[9]], ONE)
        assert is_clean(llm), hit
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, hit
    assert number > 500


# ---- interrupts in a notebook


CELLS = [
    """
    import os, signal
    from minicb import LLM, SamplingParams
    from stand_ins import Scripted, byte_tokenizer, digest
    model = Scripted(digest)
    llm = LLM(model, byte_tokenizer(), kv_cache_memory_bytes=1 << 22)
    params = SamplingParams(max_tokens=6)
    def stop_button(step):
        if step == pressed:
            os.kill(os.getpid(), signal.SIGINT)
    model.before = stop_button
    pressed = 2
    stream, shown = llm.stream([4, 4], SamplingParams(max_tokens=60)), []
    """,
    "llm.generate([1, 2, 3], params)",
    "len(llm.engine.requests)",
    "llm.generate([1, 2, 3], params)[0].token_ids",
    "pressed = model.calls + 2\nfor event in stream: shown.append(event.token_id)",
    "for event in stream: shown.append(event.token_id)\nshown",
    "pressed = model.calls + 2\nawait llm.agenerate([1, 2, 3], params)",
    "(await llm.agenerate([1, 2, 3], params))[0].token_ids",
    "len(llm.engine.requests), len(llm.mail), llm.engine.failure",
]
INTERRUPTED = (1, 4, 6)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows interrupts a kernel in another way")
def test_the_cell_after_an_interrupted_one_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a real kernel, three times: in generate, in reading a stream, in an awaited call."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, Path(__file__).parents[:2])))
    cells = [nbformat.v4.new_code_cell(textwrap.dedent(cell).strip()) for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", allow_errors=True, resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    errors = {i: o["ename"] for i, cell in enumerate(cells) for o in cell.outputs if o["output_type"] == "error"}
    assert {i: errors.pop(i, None) for i in INTERRUPTED[:2]} == dict.fromkeys(INTERRUPTED[:2], "KeyboardInterrupt")
    assert errors.pop(INTERRUPTED[2], None) in ("KeyboardInterrupt", "CancelledError")
    assert errors == {}
    shown = {i: cell.outputs[0]["data"]["text/plain"] for i, cell in enumerate(cells) if i not in (0, *INTERRUPTED)}
    params = SamplingParams(max_tokens=6)
    answer = said([1, 2, 3], params).token_ids
    assert shown == {
        2: "1",  # the stream's
        3: repr(answer),
        5: repr(list(said([4, 4], LONG).token_ids)).replace(", ", ",\n "),
        7: repr(answer),
        8: "(0, 0, None)",
    }


# ---- what a learner has written


def test_a_full_disk_costs_no_earlier_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses and passed exercises are written beside the old file, which is there until the new one is whole."""
    from minicb.course import work

    guesses = importlib.import_module("minicb.course.predict")  # the package has a function of this name too
    monkeypatch.setattr(work, "home", lambda: tmp_path)
    guesses.predict("1.P1", 18)
    before = guesses._read()

    def full(self: Path, text: str, encoding: str) -> None:
        self.write_bytes(text.encode(encoding)[:5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*predictions\.json'"):
        guesses.predict("1.P1", 99)
    assert guesses._read() == before
