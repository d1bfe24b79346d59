"""The door and the life of a request: what can never run is refused in one line, and nobody else notices."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from stand_ins import Scripted, alone, byte_tokenizer, digest, drain, outputs, reciting, same_answer, small_engine

from minicb import cache
from minicb.engine import Engine
from minicb.llm import LLM
from minicb.metrics import StepRecord
from minicb.outputs import Event, RequestOutput
from minicb.request import RefusedError, finish_reason, next_chunk
from minicb.sampling import SamplingParams
from minicb.weights import random_model, tiny_config

pytestmark = pytest.mark.usefixtures("one_thread")

V, ROOM = 300, 16
MODEL = Scripted(digest, vocab=V)
BYSTANDER = ([1, 2, 3, 4, 5], SamplingParams(max_tokens=9))

REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no prompt": ([], {}, r"prompt is empty"),
    "an id below 0": ([1, -1], {}, r"prompt holds -1, .* from 0 to 299"),
    "an id of the size of the vocabulary": ([V], {}, r"prompt holds 300, .* from 0 to 299"),
    "an id that fits no int32": ([2**31], {}, r"prompt holds 2147483648"),
    "a bool": ([True], {}, r"prompt holds True"),
    "a fraction": ([1.5], {}, r"prompt holds 1.5"),
    "a text among the ids": ([1, "a"], {}, r"prompt holds 'a'"),
    "text": ("abc", {}, r"prompt must be a list of token ids, not str"),
    "bytes": (b"abc", {}, r"prompt must be a list of token ids, not bytes"),
    "nothing": (None, {}, r"prompt must be a list of token ids, not NoneType"),
    "a stop id below 0": ([1], {"stop_token_ids": [-1]}, r"stop_token_ids holds -1"),
    "a stop id outside the vocabulary": ([1], {"stop_token_ids": [2, V]}, r"stop_token_ids holds 300, .* 0 to 299"),
    "top_k above the vocabulary": ([1], {"top_k": V + 1}, r"top_k 301 is more than the vocabulary's 300"),
    "logprobs above the vocabulary": ([1], {"logprobs": V + 1}, r"logprobs 301 is more than the vocabulary's 300"),
    "a prompt that fills the room": ([1] * ROOM, {"max_tokens": None}, r"prompt of 16 tokens do not fit.* is 16"),
    "a prompt beyond the room": ([1] * (ROOM + 1), {"max_tokens": 1}, r"prompt of 17 tokens and max_tokens 1 .* is 16"),
    "one token too many": ([1] * 10, {"max_tokens": 7}, r"prompt of 10 tokens and max_tokens 7 do not fit.* is 16"),
    "more min_tokens than room": (
        [1] * 10,
        {"max_tokens": None, "min_tokens": 7},
        r"min_tokens 7 .* prompt of 10.* 16",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_that_can_never_run_is_refused_in_one_line_and_nobody_notices(name: str) -> None:
    prompt, params, message = REFUSED[name]
    records: list[StepRecord] = []
    engine = small_engine(MODEL, max_model_len=ROOM, max_num_batched_tokens=4, on_step=records.append)
    engine.add_request(*BYSTANDER, request_id="bystander")
    events: list[Event] = []
    while engine.has_unfinished_requests:
        with pytest.raises(RefusedError, match=message) as refused:
            engine.add_request(prompt, SamplingParams(**{"max_tokens": 2, **params}))
        assert "\n" not in str(refused.value)
        events += engine.step()
        engine.check()
    (output,) = [event.output for event in events if event.output]
    assert same_answer(output, alone(MODEL, *BYSTANDER, max_model_len=ROOM))
    assert [name for record in records for name in record.arrived] == ["bystander"]


@pytest.mark.parametrize("params", [{}, {"max_tokens": 2}, "greedy", 5, [SamplingParams()]], ids=repr)
def test_params_of_another_kind_are_refused(params: object) -> None:
    engine = small_engine(MODEL)
    with pytest.raises(RefusedError, match="params must be SamplingParams, not"):
        engine.add_request([1], params)
    assert not engine.has_unfinished_requests


@pytest.mark.parametrize("name", ["n", "best_of", "logit_bias", "max_new_tokens"])
def test_a_parameter_that_minicb_does_not_have_is_an_error_and_not_ignored(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        SamplingParams(**{name: 1})


def test_stop_texts_without_a_tokenizer_are_refused() -> None:
    engine = small_engine(MODEL, decode=None)
    with pytest.raises(RefusedError, match=r"stop needs a tokenizer.*stop_token_ids"):
        engine.add_request([1], SamplingParams(stop="x"))


# ---- what lies just inside the borders


@pytest.mark.parametrize("wanted", [1, 2, 3, 15])
def test_exactly_as_many_tokens_come_as_were_asked_for(wanted: int) -> None:
    output = alone(MODEL, [1], SamplingParams(max_tokens=wanted), max_model_len=ROOM)
    assert (len(output.token_ids), output.finish_reason) == (wanted, "length")


@pytest.mark.parametrize("prompt_tokens", [1, 10, ROOM - 1])
@pytest.mark.parametrize("open_ended", [False, True])
def test_prompt_and_answer_may_fill_the_room_to_its_last_token(prompt_tokens: int, open_ended: bool) -> None:
    room = ROOM - prompt_tokens
    output = alone(
        MODEL, [1] * prompt_tokens, SamplingParams(max_tokens=None if open_ended else room), max_model_len=ROOM
    )
    assert (len(output.token_ids), output.finish_reason) == (room, "length")


def test_the_first_and_the_last_id_of_the_vocabulary_are_ids() -> None:
    model = Scripted(reciting(2, [V - 1, 0]), vocab=V)
    params = SamplingParams(max_tokens=2, stop_token_ids=[V - 2], top_k=V, logprobs=V, temperature=1e-9)
    output = alone(model, [0, V - 1], params, decode=None)
    assert output.token_ids == (V - 1, 0)
    assert output.logprobs is not None
    assert all(len(one.top) == V for one in output.logprobs)


# ---- names


def test_a_name_in_use_is_refused_and_free_again_after_the_end() -> None:
    engine = small_engine(MODEL)
    engine.add_request(*BYSTANDER, request_id="a")
    for _ in range(4):
        with pytest.raises(RefusedError, match="request_id 'a' is in use"):
            engine.add_request([9, 9], SamplingParams(max_tokens=2), request_id="a")
        engine.step()
    first = outputs({"a": [event for event in finish(engine) if event.output]})["a"]
    assert same_answer(first, alone(MODEL, *BYSTANDER))
    for end in (finish, lambda engine: engine.abort_request("a")):
        engine.add_request([9, 9], SamplingParams(max_tokens=2), request_id="a")
        end(engine)


def finish(engine: Engine) -> list[Event]:
    return [event for events in drain(engine).values() for event in events]


def test_a_name_that_the_engine_chooses_is_nobodys() -> None:
    engine = small_engine(MODEL)
    for name in ("0", "2", "3"):
        engine.add_request([1], SamplingParams(max_tokens=2), request_id=name)
    assert [engine.add_request([1], SamplingParams(max_tokens=2)) for _ in range(3)] == ["1", "4", "5"]


# ---- through LLM


BAD_PROMPTS: dict[str, tuple[Any, str]] = {
    "empty text": ("", "prompt is empty"),
    "empty ids": ([], "prompt is empty"),
    "an id outside the vocabulary": ([5, V], "prompt holds 300"),
    "a number": (1.5, "prompt must be text, token ids or chat messages, not float"),
    "nothing": (None, "prompt must be text, token ids or chat messages, not NoneType"),
    "bytes": (b"ab", "prompt must be text, token ids or chat messages, not bytes"),
    "a message without content": ([{"role": "user"}], "chat message 0 has no content"),
    "a message without role": ([{"content": "x"}], "chat message 0 has no role"),
    "text among the messages": ([{"role": "user", "content": "x"}, "y"], "chat message 1 has no role"),
    "too long a text": ("x" * 300, "prompt of 300 tokens and max_tokens 3 do not fit"),
}


def make_llm(**options: Any) -> LLM:
    return LLM(MODEL, byte_tokenizer(), kv_cache_memory_bytes=1 << 22, **options)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("name", BAD_PROMPTS)
def test_one_bad_prompt_refuses_the_call_before_anything_runs(name: str, place: int) -> None:
    prompt, message = BAD_PROMPTS[name]
    llm, params = make_llm(), SamplingParams(max_tokens=3)
    stream = llm.stream("a bystander", params)
    shown = [next(stream)]
    prompts = ["good", "too"]
    prompts.insert(place, prompt)
    with pytest.raises(ValueError, match=message) as refused:
        llm.generate(prompts, params)
    assert "\n" not in str(refused.value)
    assert list(llm.engine.requests) == [stream.request_id], "nothing of the call is left"
    assert list(llm.mail) == [stream.request_id]
    shown += stream
    assert same_answer(stream.result(), alone(MODEL, list(b"a bystander"), params))
    assert len(shown) == 3
    assert same_answer(llm.generate("good", params)[0], alone(MODEL, list(b"good"), params))


def test_no_prompts_are_no_answers() -> None:
    assert make_llm().generate([]) == []


def test_prompts_and_params_have_to_match_in_number() -> None:
    with pytest.raises(RefusedError, match="2 prompts but 3 sampling params: give one for all, or one each"):
        make_llm().generate(["a", "b"], [SamplingParams()] * 3)


def test_a_bad_set_of_params_among_good_ones_refuses_the_call() -> None:
    llm = make_llm()
    for bad in (SamplingParams(top_k=V + 1), SamplingParams(max_tokens=10**6), {"top_k": 1}):
        with pytest.raises(RefusedError):
            llm.generate(["a", "b"], [SamplingParams(), bad])
        assert not llm.engine.requests


# ---- the engine's own options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens must be a whole number of at least 1, not 0"),
        ({"max_num_batched_tokens": 8.5}, "max_num_batched_tokens must be a whole number"),
        ({"max_num_seqs": -1}, "max_num_seqs must be a whole number of at least 1, not -1"),
        ({"max_model_len": 0}, "max_model_len must be a whole number of at least 2 and at most 256, not 0"),
        ({"max_model_len": 1}, "max_model_len must be .*, not 1"),
        ({"max_model_len": 257}, "max_model_len must be .* at most 256, not 257"),
        ({"attention": "flash"}, "attention must be 'auto', 'reference' or a back end, not 'flash'"),
        ({"kv_cache_memory_bytes": 0}, "KV cache needs 4,096 bytes .* max_model_len 256 .* 0 are allowed"),
        ({"kv_cache_memory_bytes": 4_095}, "KV cache needs 4,096 bytes .* 8 a token; 4,095 are allowed"),
        ({"kv_cache_memory_bytes": -5}, "-5 are allowed"),
    ],
    ids=str,
)
def test_an_option_that_cannot_be_is_refused_with_its_limits(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Engine(MODEL, **{"kv_cache_memory_bytes": 1 << 20, **options})


# ---- the size of the cache


def slots(**options: Any) -> int:
    return Engine(MODEL, max_model_len=256, **options).pool.num_pages


def test_an_explicit_size_is_kept_to_the_byte_and_never_more_than_the_cap_needs() -> None:
    slot = 256 * 8  # one layer, one head of one float32, a key and a value
    assert slots(kv_cache_memory_bytes=2 * slot) == 1
    assert slots(kv_cache_memory_bytes=10 * slot) == 9
    assert slots(kv_cache_memory_bytes=11 * slot - 1) == 9
    assert slots(kv_cache_memory_bytes=1 << 30, max_num_seqs=5) == 5


@pytest.mark.parametrize(("free", "expected"), [(4 * 2048 * 2, 3), (10**12, 32)])
def test_without_one_half_of_the_free_memory_is_taken(
    free: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=free))
    assert slots() == expected


def test_a_machine_with_next_to_no_memory_is_told_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1000))
    with pytest.raises(ValueError, match=r"needs 4,096 bytes .* 500 are allowed: lower max_model_len, or raise"):
        slots()


@pytest.mark.parametrize(
    ("device", "stubs"),
    [
        ("cpu", {"psutil.virtual_memory": lambda: SimpleNamespace(available=7_000)}),
        ("cuda", {"torch.cuda.mem_get_info": lambda _: (7_000, 9_000)}),
        (
            "mps",
            {"torch.mps.recommended_max_memory": lambda: 9_000, "torch.mps.driver_allocated_memory": lambda: 2_000},
        ),
    ],
)
def test_each_kind_of_device_says_how_much_is_free(
    device: str, stubs: dict[str, Callable[..., object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, stub in stubs.items():
        monkeypatch.setattr(name, stub)
    assert cache.free_memory(torch.device(device)) == 7_000


# ---- the end


def ending_outputs() -> dict[str, RequestOutput]:
    """One request for each way to end, all in one engine; the loop breaks at the end for the last of them."""
    said = {1: b"abc\xf0", 2: b"xySTOPz", 3: b"pq", 4: b"long", 5: b"error", 6: b"undecodable", 7: b"for ever"}

    def answer(history: list[int]) -> int | torch.Tensor:
        text, n = said[history[0]], len(history) - 1
        if history[0] == 3 and n == 2:
            return 256
        if history[0] == 5 and n == 3:
            return torch.full((V,), torch.nan)
        if history[0] == 6 and n == 4:
            return 299
        return text[n] if n < len(text) else ord(".")

    def decode(ids: Any) -> str:
        if 299 in ids:
            raise LookupError("no text for 299")
        return bytes(i for i in ids if i < 256).decode("utf-8", errors="replace")

    engine = small_engine(Scripted(answer, vocab=V, end_ids=[256]), decode)
    limits = {1: 4, 2: 20, 3: 20, 4: 20, 5: 20, 6: 20, 7: 20}
    names = {1: "length", 2: "stop text", 3: "stop id", 4: "abort", 5: "sampler", 6: "decoder", 7: "loop"}
    for number, name in names.items():
        engine.add_request([number], SamplingParams(max_tokens=limits[number], stop="STOP", logprobs=2), name)
    ended: dict[str, RequestOutput] = {}
    for _ in range(8):
        ended |= {event.request_id: event.output for event in engine.step() if event.output}
        if engine.steps == 3:
            aborted = engine.abort_request("abort")
            assert aborted is not None
            assert aborted.output is not None
            ended["abort"] = aborted.output
    engine.model.before = lambda _: 1 / 0
    with pytest.raises(ZeroDivisionError):
        engine.step()
    assert list(engine.lost) == ["loop"]
    return ended | engine.lost


def test_in_every_ending_ids_logprobs_and_usage_have_one_length() -> None:
    ended = ending_outputs()
    tokens = {"length": 4, "stop text": 6, "stop id": 3, "abort": 3, "sampler": 3, "decoder": 5, "loop": 8}
    assert {name: output.metrics.num_output_tokens for name, output in ended.items()} == tokens
    for name, output in ended.items():
        assert output.logprobs is not None
        assert len(output.token_ids) == len(output.logprobs) == tokens[name], name
        assert len(output.metrics.itl_s) == max(0, tokens[name] - 1), name
        assert all(one.top[token] == one.chosen for token, one in zip(output.token_ids, output.logprobs, strict=True))


def test_every_ending_has_its_reason_its_text_and_only_an_error_a_cause() -> None:
    found = {
        name: (o.finish_reason, o.stop_reason, o.text, o.error and o.error.partition(":")[0])
        for name, o in ending_outputs().items()
    }
    assert found == {
        "length": ("length", None, "abc\ufffd", None),
        "stop text": ("stop", "STOP", "xy", None),
        "stop id": ("stop", 256, "pq", None),
        "abort": ("abort", None, "lon", None),
        "sampler": ("error", None, "err", "FloatingPointError"),
        "decoder": ("error", None, "unde", "LookupError"),
        "loop": ("error", None, "for ever", "ZeroDivisionError"),
    }


def test_a_stop_wins_over_the_limit_and_the_limit_over_nothing() -> None:
    assert [finish_reason(n, 3, stopped=s) for n in (2, 3) for s in (False, True)] == [None, "stop", "length", "stop"]


@pytest.mark.parametrize("budget", range(1, 13))
def test_the_chunks_of_a_request_cover_it_once(budget: int) -> None:
    computed = 0
    while computed < 10:
        chunk = next_chunk(10, computed, budget)
        assert 1 <= chunk <= budget
        computed += chunk
    assert computed == 10


def test_the_real_decoder_answers_at_every_border_too() -> None:
    """Nothing of the above depends on the stand-in: a tiny decoder fills its room to the last slot."""
    model = random_model(tiny_config(max_position=ROOM), dtype="float64")
    for length in (1, ROOM - 1):
        full = alone(model, [3] * length, SamplingParams(max_tokens=None), decode=None)
        assert len(full.token_ids) == ROOM - length
        part = alone(model, [3] * length, SamplingParams(max_tokens=1), decode=None)
        assert full.token_ids[:1] == part.token_ids
