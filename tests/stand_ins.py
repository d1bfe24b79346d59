"""Small stand-ins for the parts around an engine, and ways to run one that cannot hang.

Scripted(answer)   a model whose next token is a function of the history, read back through the engine's own
                   positions, slots and tables, so that any fault of the bookkeeping changes the answer
Bytes, Pieces      decoders: an id is a byte, or one of the given pieces of bytes
byte_tokenizer     a tokenizer whose ids are bytes
drain              steps until nobody is left, and fails after a limit
alone              what a request says by itself
within             calls something in a thread and fails if it takes too long
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from minicb.batch import Batch
from minicb.cache import KVCache
from minicb.checkpoint import Tokenizer
from minicb.engine import Engine
from minicb.model import Model, ModelConfig, RopeConfig
from minicb.outputs import Event, RequestOutput
from minicb.sampling import SamplingParams

Answer = Callable[[list[int]], "int | Tensor"]  # history -> the next id, or logits [V]
PATIENCE_S = 20.0  # far more than anything here takes: a hang becomes a failure


class Scripted(Model):
    """A model without a network. `answer` says what follows a history; `before` and `after` are called with the
    number of the step, before and after the step's tokens are in the cache."""

    def __init__(
        self, answer: Answer, *, vocab: int = 300, max_position: int = 256, end_ids: Iterable[int] = ()
    ) -> None:
        super().__init__(
            ModelConfig(
                vocab_size=vocab, hidden_size=1, intermediate_size=1, num_layers=1, num_heads=1, num_kv_heads=1,
                head_dim=1, rope=RopeConfig(theta=1.0), max_position_embeddings=max_position,
                end_ids=frozenset(end_ids),
            )
        )  # fmt: skip
        self.requires_grad_(False)
        self.answer, self.calls = answer, 0
        self.before: Callable[[int], None] = lambda _: None
        self.after: Callable[[int], None] = lambda _: None

    def forward(self, batch: Batch, cache: KVCache, attention: object) -> Tensor:  # noqa: ARG002 - it needs none
        """Hidden states [T, V]: logits already, in the last row of each request."""
        step, self.calls = self.calls, self.calls + 1
        self.before(step)
        rows = batch.tokens.float()[:, None, None]
        cache.write(0, batch.slots, rows, rows)
        hidden = torch.zeros(len(batch.tokens), self.config.vocab_size)
        for i, context in enumerate(batch.kv_len.tolist()):
            places = torch.arange(context)
            slots = batch.page_table[i, places // cache.page_size].long() * cache.page_size + places % cache.page_size
            history = cache.read(0, slots)[0].flatten().long().tolist()
            said = self.answer(history)
            last = int(batch.q_start[i + 1]) - 1
            if isinstance(said, Tensor):
                hidden[last] = said
            else:
                hidden[last, said] = 10.0
        self.after(step)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden


def digest(history: Sequence[int]) -> int:
    """An id below 256 that depends on every id of the history and on its place."""
    value = 7
    for place, i in enumerate(history):
        value = (value * 31 + i * (place + 3) + 11) % 1_000_003
    return value % 256


def reciting(prompt_tokens: int, answer: Sequence[int]) -> Answer:
    """After a prompt of so many tokens, say these ids one after the other, then 0 for ever."""
    return lambda history: (list(answer)[len(history) - prompt_tokens :] or [0])[0]


class Pieces:
    """A byte-level decoder: each id is a piece of bytes; what makes no character shows as U+FFFD."""

    def __init__(self, pieces: Sequence[bytes] | Mapping[int, bytes]) -> None:
        self.pieces = pieces

    def __call__(self, ids: Sequence[int]) -> str:
        return b"".join(self.pieces[i] for i in ids).decode("utf-8", errors="replace")


Bytes = Pieces([bytes([i]) for i in range(256)] + [b""] * 44)  # ids from 256 on are special and have no text


class ByteLibrary:
    """What a tokenizer library offers, with UTF-8 bytes as ids. 256 ends an answer, 257 opens a chat message."""

    eos_token_id, chat_template = 256, "{role}: {content}"

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": list(text.encode("utf-8"))}

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return Bytes(ids)

    def apply_chat_template(self, messages: Sequence[Mapping[str, str]], **_: Any) -> list[int]:
        return [i for message in messages for i in (257, *self.chat_template.format(**message).encode("utf-8"))]


def byte_tokenizer() -> Tokenizer:
    return Tokenizer(ByteLibrary())


def small_engine(model: Model, decode: Any = Bytes, **options: Any) -> Engine:
    return Engine(model, decode, **{"kv_cache_memory_bytes": 1 << 22, "seed": 1, **options})


def drain(engine: Engine, limit: int = 500) -> dict[str, list[Event]]:
    """Step until nobody is left; the events of each request. Audits after every step."""
    events: dict[str, list[Event]] = {}
    for _ in range(limit):
        if not engine.has_unfinished_requests:
            return events
        for event in engine.step():
            events.setdefault(event.request_id, []).append(event)
        engine.check()
    pytest.fail(f"not idle after {limit} steps: {engine.scheduler.waiting} {engine.scheduler.running}")


def outputs(events: Mapping[str, Sequence[Event]]) -> dict[str, RequestOutput]:
    """The output of each request; there is exactly one, in its last event."""
    ended = {}
    for name, own in events.items():
        assert [event.output is not None for event in own] == [False] * (len(own) - 1) + [True], own
        assert own[-1].output is not None
        ended[name] = own[-1].output
    return ended


def alone(model: Model, prompt: Sequence[int], params: SamplingParams | None = None, **options: Any) -> RequestOutput:
    """What this request says when nobody else is there."""
    engine = small_engine(model, **options)
    engine.add_request(prompt, params, request_id="alone")
    return outputs(drain(engine))["alone"]


def same_answer(a: RequestOutput, b: RequestOutput) -> bool:
    """Everything but the name and the times."""
    fields = ("prompt_token_ids", "text", "token_ids", "finish_reason", "stop_reason", "error", "logprobs")
    return all(getattr(a, name) == getattr(b, name) for name in fields)


def within(call: Callable[[], Any], seconds: float = PATIENCE_S) -> Any:
    """call() in a thread: its value or its exception, and a failure if it does not come back."""
    result: list[Any] = []

    def run() -> None:
        try:
            result.append((call(), None))
        except BaseException as error:
            result.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not result:
        pytest.fail(f"still waiting after {seconds} s")
    value, error = result[0]
    if error is not None:
        raise error
    return value


def environment_without(name: str) -> dict[str, str]:
    """For a process of its own: without a setting that the tests run under and that it must not inherit.

    PYTHONWARNDEFAULTENCODING is one: `make test` switches it on for our own code, and libraries would print theirs.
    """
    return {key: value for key, value in os.environ.items() if key != name}
