"""Prompts in, answers out: whole, streamed, awaited; from one thread or many, from a script or a notebook.

Whoever reads gets all of its own answer and nothing of another's. Every wait in here has an end: what would hang,
fails.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import textwrap
import threading
import warnings
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from stand_ins import PATIENCE_S, Scripted, alone, byte_tokenizer, digest, outputs, reciting, same_answer, within

from minicb.engine import EngineDeadError
from minicb.llm import LLM
from minicb.outputs import Event, RequestOutput
from minicb.sampling import SamplingParams
from minicb.weights import random_model, tiny_config

pytestmark = pytest.mark.usefixtures("one_thread")
SHORT, LONG = SamplingParams(max_tokens=4), SamplingParams(max_tokens=60)
PROMPTS = ["one", "a second one", "3", "the fourth prompt is longer", "five"]


def make_llm(model: Scripted | None = None, **options: Any) -> LLM:
    return LLM(model or Scripted(digest), byte_tokenizer(), kv_cache_memory_bytes=1 << 22, **options)


def said(prompt: str, params: SamplingParams) -> RequestOutput:
    return alone(Scripted(digest), list(prompt.encode()), params)


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    """In an event loop of its own, and not for ever."""
    return within(lambda: asyncio.run(asyncio.wait_for(work(), PATIENCE_S)))


def is_clean(llm: LLM) -> bool:
    """Nobody is left in the engine, nor any mail."""
    llm.engine.check()
    pool = llm.engine.pool
    return not llm.engine.requests and not llm.mail and pool.free_pages == pool.num_pages


# ---- whole answers


def test_a_prompt_may_be_text_ids_or_chat_messages() -> None:
    llm = make_llm()
    ids = list(b"one")
    assert same_answer(llm.generate("one", SHORT)[0], said("one", SHORT))
    assert same_answer(llm.generate(ids, SHORT)[0], said("one", SHORT))
    message = {"role": "user", "content": "one"}
    chat = [257, *b"user: one"]
    for prompt in (message, [message], [[message]]):
        assert llm.generate(prompt, SHORT)[0].prompt_token_ids == tuple(chat)
    both = [257, *b"user: one", 257, *b"assistant: two"]
    conversation = [message, {"role": "assistant", "content": "two"}]
    assert llm.generate(conversation, SHORT)[0].prompt_token_ids == tuple(both)


def test_several_prompts_may_be_of_different_kinds_and_come_back_in_order() -> None:
    prompts = ["one", list(b"one"), [{"role": "user", "content": "x"}], (1, 2, 3)]
    found = [output.prompt_token_ids for output in make_llm().generate(prompts, SHORT)]
    assert found == [tuple(b"one"), tuple(b"one"), (257, *b"user: x"), (1, 2, 3)]


def test_arrays_tensors_and_generators_are_taken_for_what_they_hold() -> None:
    import numpy as np
    import torch

    llm = make_llm()
    for prompts, expected in (
        (torch.tensor([1, 2]), [(1, 2)]),
        (np.array([[1, 2], [3, 4]]), [(1, 2), (3, 4)]),
        ([torch.tensor([1, 2]), "a"], [(1, 2), (97,)]),
        ((text for text in ("a", "b")), [(97,), (98,)]),
    ):
        assert [output.prompt_token_ids for output in llm.generate(prompts, SHORT)] == expected


def test_params_are_one_for_all_or_one_each() -> None:
    llm = make_llm()
    assert [len(o.token_ids) for o in llm.generate(PROMPTS, SHORT)] == [4] * 5
    each = [SamplingParams(max_tokens=n) for n in (5, 1, 3, 2, 4)]
    assert [len(o.token_ids) for o in llm.generate(PROMPTS, each)] == [5, 1, 3, 2, 4]
    assert len(llm.generate("one")[0].token_ids) == SamplingParams().max_tokens


@pytest.mark.parametrize("budget", [3, 64])
def test_answers_come_in_the_order_of_the_prompts_and_as_each_gives_it_alone(budget: int) -> None:
    llm = make_llm(max_num_batched_tokens=budget, max_num_seqs=2)
    each = [SamplingParams(max_tokens=n) for n in (9, 1, 5, 3, 7)]
    for output, prompt, params in zip(llm.generate(PROMPTS, each), PROMPTS, each, strict=True):
        assert same_answer(output, said(prompt, params))
    assert is_clean(llm)


def test_without_a_tokenizer_ids_work_and_text_says_what_is_missing() -> None:
    llm = LLM(random_model(tiny_config()), kv_cache_memory_bytes=1 << 22)
    assert len(llm.generate([1, 2], SHORT)[0].token_ids) == 4
    for prompt in ("text", [{"role": "user", "content": "x"}]):
        with pytest.raises(ValueError, match="no tokenizer: give token ids"):
            llm.generate(prompt, SHORT)


def test_sixteen_marked_requests_keep_their_marks_in_any_order_of_arrival() -> None:
    """Each prompt begins with its mark and each answer repeats it; a single swapped row shows."""
    for seed in range(8):
        rng = random.Random(seed)
        marks = rng.sample(range(100, 200), 16)
        llm = make_llm(Scripted(lambda history: history[0]), max_num_batched_tokens=rng.choice((4, 9, 64)))
        prompts = [[mark, *[1] * rng.randint(0, 9)] for mark in marks]
        each = [SamplingParams(max_tokens=rng.randint(1, 9)) for _ in marks]
        streams = [llm.stream(prompt, params) for prompt, params in zip(prompts, each, strict=True)]
        for place in rng.sample(range(16), 16):
            output = streams[place].finish()
            assert output.token_ids == (marks[place],) * (each[place].max_tokens or 0)
        assert is_clean(llm)


# ---- streams


def test_a_stream_says_what_generate_says_event_by_event() -> None:
    llm = make_llm()
    events = list(llm.stream("one", SHORT))
    assert "".join(event.text for event in events) == llm.generate("one", SHORT)[0].text
    assert same_answer(outputs({"r": events})["r"], said("one", SHORT))
    assert [event.finish_reason for event in events] == [None, None, None, "length"]
    assert is_clean(llm)


def test_a_stream_that_was_read_stays_read() -> None:
    stream = make_llm().stream("one", SHORT)
    output = stream.finish()
    assert list(stream) == []
    assert stream.finish() is output
    stream.close()
    assert stream.result() is output


def test_two_readers_in_turn_get_all_of_their_own_in_order() -> None:
    llm = make_llm()
    a, b = llm.stream("one", LONG), llm.stream("3", LONG)
    shown: dict[str, list[Event]] = {"a": [], "b": []}
    for _ in range(60):
        shown["a"].append(next(a))
        shown["b"].append(next(b))
    assert list(a) == list(b) == []
    ended = outputs(shown)
    assert same_answer(ended["a"], said("one", LONG))
    assert same_answer(ended["b"], said("3", LONG))


def test_a_reader_may_start_late_pause_and_find_everything_there() -> None:
    llm = make_llm()
    a, b = llm.stream("one", LONG), llm.stream("3", LONG)
    first = [next(b) for _ in range(3)]
    assert len(list(a)) == 60  # b produces all the while, for 57 steps
    rest = list(b)
    assert same_answer(outputs({"b": first + rest})["b"], said("3", LONG))


def test_nobody_computes_who_has_mail() -> None:
    llm = make_llm()
    a, b = llm.stream("one", LONG), llm.stream("3", LONG)
    next(a)
    assert llm.engine.steps == 1
    llm.pump(b.request_id)
    next(b)
    assert llm.engine.steps == 1


def test_a_step_that_somebody_else_makes_is_delivered_too() -> None:
    llm = make_llm()
    stream = llm.stream("one", SHORT)
    other = llm.engine.add_request([9], SHORT)
    direct = [event for _ in range(5) for event in llm.engine.step()]
    assert {event.request_id for event in direct} == {other}, "each event goes to one place"
    assert len(list(stream)) == 4


def test_a_reader_that_leaves_early_is_forgotten_and_the_others_go_on() -> None:
    llm = make_llm()
    leaver, stayer = llm.stream("one", LONG), llm.stream("3", LONG)
    for event in leaver:
        if event.token_id is not None:
            break
    leaver.close()
    leaver.close()
    assert list(llm.engine.requests) == list(llm.mail) == [stayer.request_id]
    assert list(leaver) == []
    with pytest.raises(EngineDeadError, match="closed before its end"):
        leaver.finish()
    assert same_answer(stayer.finish(), said("3", LONG))
    assert is_clean(llm)


def test_a_stream_that_nobody_holds_any_more_is_dropped_with_the_next_step() -> None:
    llm = make_llm()
    for event in llm.stream("one", LONG):
        assert event.finish_reason is None
        break
    gc.collect()
    assert len(llm.abandoned) == 1
    assert same_answer(llm.generate("3", SHORT)[0], said("3", SHORT))
    assert is_clean(llm)


def test_a_stream_closed_before_its_first_step_costs_nothing() -> None:
    llm = make_llm()
    llm.stream("one", LONG).close()
    assert is_clean(llm)
    assert llm.engine.steps == 0


def test_a_request_aborted_or_dropped_behind_its_readers_back_ends_the_reader() -> None:
    for end in (lambda engine, name: engine.abort_request(name), lambda engine, _: engine.reset()):
        llm = make_llm()
        stream = llm.stream("one", LONG)
        next(stream)
        end(llm.engine, stream.request_id)
        with pytest.raises(EngineDeadError, match="is not in the engine any more: it was aborted or reset"):
            within(lambda stream=stream: next(stream))


# ---- threads


def test_many_threads_on_one_llm_each_get_their_own() -> None:
    llm = make_llm(max_num_batched_tokens=8, max_num_seqs=4)
    begin = threading.Barrier(8)

    def work(number: int) -> bool:
        begin.wait(PATIENCE_S)
        mine = [f"thread {number} prompt {i}" for i in range(4)]
        params = [SamplingParams(max_tokens=2 + (number + i) % 7) for i in range(4)]
        return all(same_answer(o, said(p, s)) for o, p, s in zip(llm.generate(mine, params), mine, params, strict=True))

    with ThreadPoolExecutor(8) as pool:
        assert within(lambda: list(pool.map(work, range(8)))) == [True] * 8
    assert is_clean(llm)


def test_readers_in_threads_share_nothing_and_lose_nothing() -> None:
    llm = make_llm(Scripted(lambda history: history[0]))
    streams = [llm.stream([mark], LONG) for mark in range(100, 108)]
    with ThreadPoolExecutor(8) as pool:
        shown = within(lambda: list(pool.map(list, streams)))
    for mark, events in zip(range(100, 108), shown, strict=True):
        assert [event.token_id for event in events] == [mark] * 60


def test_closing_a_stream_ends_a_reader_that_waits_in_another_thread() -> None:
    """The reader stands before the lock while another computes; then its stream is gone."""
    model, inside, go = Scripted(digest), threading.Event(), threading.Event()
    llm = make_llm(model)
    worker, waiting = llm.stream("one", SHORT), llm.stream("3", LONG)

    def block(_: int) -> None:
        inside.set()
        assert go.wait(PATIENCE_S)

    model.before = block
    with ThreadPoolExecutor(2) as pool:
        working = pool.submit(worker.finish)
        assert inside.wait(PATIENCE_S)
        reading = pool.submit(list, waiting)
        closing = threading.Thread(target=waiting.close, daemon=True)
        closing.start()
        go.set()
        closing.join(PATIENCE_S)
        assert reading.result(PATIENCE_S) is not None
        assert same_answer(working.result(PATIENCE_S), said("one", SHORT))
    assert is_clean(llm)


def test_a_reader_whose_mailbox_is_gone_when_its_turn_comes_just_ends() -> None:
    """The moment that the race above only may hit: between looking into the mailbox and taking the lock."""
    llm = make_llm()
    stream = llm.stream("one", LONG)
    pump = llm.pump

    def late(name: str) -> None:
        llm.drop(name)
        pump(name)

    llm.pump = late
    assert list(stream) == []
    assert is_clean(llm)


# ---- asyncio


def test_agenerate_says_what_generate_says() -> None:
    llm = make_llm()

    async def work() -> list[RequestOutput]:
        return await llm.agenerate(PROMPTS, SHORT)

    for output, prompt in zip(run(work), PROMPTS, strict=True):
        assert same_answer(output, said(prompt, SHORT))
    assert is_clean(llm)


def test_two_gathers_at_once_and_a_stream_beside_them() -> None:
    llm = make_llm(max_num_batched_tokens=16)

    async def read() -> list[Event]:
        return [event async for event in llm.astream("one", LONG)]

    async def work() -> list[Any]:
        return await asyncio.gather(llm.agenerate(PROMPTS, SHORT), llm.agenerate(PROMPTS[::-1], SHORT), read())

    forward, backward, events = run(work)
    for output, prompt in zip([*forward, *backward], [*PROMPTS, *PROMPTS[::-1]], strict=True):
        assert same_answer(output, said(prompt, SHORT))
    assert same_answer(outputs({"r": events})["r"], said("one", LONG))
    assert is_clean(llm)


def test_a_hundred_awaited_at_once_all_come_back() -> None:
    """More than there are worker threads: nobody may hold one while it waits for another."""
    llm = make_llm(max_num_seqs=8)

    async def work() -> list[list[RequestOutput]]:
        return await asyncio.gather(*[llm.agenerate(f"prompt {i}", SHORT) for i in range(100)])

    for i, (output,) in enumerate(run(work)):
        assert same_answer(output, said(f"prompt {i}", SHORT))


def test_the_event_loop_is_free_while_the_engine_computes() -> None:
    """The step cannot end before another coroutine has run: if it blocked the loop, this would never end."""
    model, go = Scripted(digest), threading.Event()
    llm = make_llm(model)
    model.before = lambda _: None if go.wait(PATIENCE_S) else pytest.fail("the loop was blocked")

    async def other() -> None:
        await asyncio.sleep(0)
        go.set()

    async def work() -> list[Any]:
        return await asyncio.gather(llm.agenerate("one", SHORT), other())

    assert same_answer(run(work)[0][0], said("one", SHORT))


def test_sync_generate_works_inside_a_running_loop_and_leaves_nothing_unawaited() -> None:
    llm = make_llm()

    async def work() -> RequestOutput:
        return llm.generate("one", SHORT)[0]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same_answer(run(work), said("one", SHORT))
        gc.collect()


def test_two_loops_in_two_threads_share_one_llm() -> None:
    llm = make_llm()

    def one(prompt: str) -> RequestOutput:
        return asyncio.run(asyncio.wait_for(llm.agenerate(prompt, LONG), PATIENCE_S))[0]

    with ThreadPoolExecutor(2) as pool:
        for output, prompt in zip(within(lambda: list(pool.map(one, PROMPTS[:2]))), PROMPTS[:2], strict=True):
            assert same_answer(output, said(prompt, LONG))


def test_one_llm_survives_the_end_of_its_loop() -> None:
    llm = make_llm()
    for prompt in PROMPTS[:3]:
        assert same_answer(run(lambda prompt=prompt: llm.agenerate(prompt, SHORT))[0], said(prompt, SHORT))


def test_a_cancelled_task_takes_its_requests_along_and_no_others() -> None:
    model, inside, go = Scripted(digest), threading.Event(), threading.Event()
    llm = make_llm(model)

    def block(step: int) -> None:
        if step == 2:
            inside.set()
            assert go.wait(PATIENCE_S)

    model.before = block

    async def work() -> list[RequestOutput]:
        victim = asyncio.create_task(llm.agenerate(["one", "3"], LONG))
        other = asyncio.create_task(llm.agenerate("five", LONG))
        await asyncio.to_thread(inside.wait, PATIENCE_S)
        victim.cancel()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await victim
        assert len(llm.engine.requests) == 1
        return await other

    assert same_answer(run(work)[0], said("five", LONG))
    assert is_clean(llm)


def test_an_async_reader_that_leaves_early_is_forgotten() -> None:
    llm = make_llm()

    async def work() -> None:
        stream = llm.astream("one", LONG)
        async for _ in stream:
            break
        stream.close()
        assert [event async for event in stream] == []

    run(work)
    assert is_clean(llm)


def test_a_time_out_ends_the_wait_and_the_request() -> None:
    model, go = Scripted(digest), threading.Event()
    llm = make_llm(model)
    model.before = lambda step: go.wait(PATIENCE_S) if step == 1 else None  # the second step takes too long ...
    drop = llm.drop
    llm.drop = lambda name: (go.set(), drop(name))  # ... and ends only once the wait was given up

    async def work() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(llm.agenerate("one", LONG), 0.05)

    run(work)
    assert is_clean(llm)


# ---- in a notebook


CELLS = [
    """
    import asyncio, warnings
    warnings.simplefilter("error")
    from minicb import LLM, SamplingParams
    from stand_ins import Scripted, byte_tokenizer, digest
    llm = LLM(Scripted(digest), byte_tokenizer(), kv_cache_memory_bytes=1 << 22)
    params = SamplingParams(max_tokens=4)
    """,
    """llm.generate("one", params)[0].token_ids""",
    """(await llm.agenerate("one", params))[0].token_ids""",
    """[o[0].token_ids for o in await asyncio.gather(llm.agenerate("one", params), llm.agenerate("3", params))]""",
    """[event.token_id async for event in llm.astream("one", params)]""",
    """[event.token_id for event in llm.stream("one", params)]""",
    """
    task = asyncio.create_task(llm.agenerate("one", params))  # goes on in the background
    llm.generate("3", params)[0].token_ids
    """,
    """(await task)[0].token_ids""",
    """len(llm.engine.requests), len(llm.mail)""",
]


def test_everything_works_in_a_notebook_whose_loop_is_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real kernel. No cell calls asyncio.run, and none needs a patched loop."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, Path(__file__).parents[:2])))
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(textwrap.dedent(cell).strip()) for cell in CELLS]
    )
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    shown = [cell.outputs[0]["data"]["text/plain"] if cell.outputs else None for cell in notebook.cells]
    one, three = said("one", SHORT).token_ids, said("3", SHORT).token_ids
    assert shown[1:3] == [repr(one)] * 2
    assert shown[3] == repr([one, three])
    assert shown[4:6] == [repr(list(one))] * 2
    assert shown[6:8] == [repr(three), repr(one)]
    assert shown[8] == "(0, 0)"


def test_the_same_lines_work_as_a_script() -> None:
    """`generate` needs no loop, and `agenerate` any."""
    llm = make_llm(Scripted(reciting(3, [5, 6, 7, 8])))
    assert llm.generate("one", SHORT)[0].token_ids == run(lambda: llm.agenerate("one", SHORT))[0].token_ids
