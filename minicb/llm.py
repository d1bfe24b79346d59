"""The front of the house: prompts in, answers out; whole, streamed, or awaited.

Nobody owns the engine's loop. Whoever waits for a token and finds none takes the lock and computes one step for
everybody; each request's events go to its own mailbox, so no reader can swallow another's. That works from
plain code, from several threads, and inside a notebook, whose event loop is running already.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from minicb.checkpoint import Message, Tokenizer
from minicb.engine import Engine, EngineDeadError, dead
from minicb.interrupts import uninterrupted
from minicb.kernels import faster
from minicb.model import Model
from minicb.outputs import Event, RequestOutput
from minicb.request import RefusedError
from minicb.sampling import SamplingParams
from minicb.seams import learner_owns
from minicb.weights import load

Prompt = str | Sequence[int] | Sequence[Message]


class LLM:
    """A model with its tokenizer behind an engine.

    model: None for the packaged one, a local folder, a hub name, or a ready `Model` (then give `tokenizer` too,
        or prompts can only be token ids)
    native: compile an extra for CPUs at first use (seconds, kept in the cache; needs a C++ compiler)
    options: those of `Engine`
    A model that is loaded here is made faster, unless a learner's own parts are installed: those run in the plain one.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Model | None = None,
        tokenizer: Tokenizer | None = None,
        *,
        device: str = "auto",
        dtype: str = "auto",
        native: bool = False,
        **options: Any,
    ) -> None:
        if not isinstance(model, Model):
            model, tokenizer = load(model, device, dtype)
            if native or not learner_owns():
                model = faster(model, native=native)
        self.tokenizer = tokenizer
        self.mail: dict[str, deque[Event]] = {}
        deliver = partial(put, self.mail)  # not a method: the engine must not keep this object alive
        self.engine = Engine(model, tokenizer.decode if tokenizer else None, deliver=deliver, **options)
        self.lock = threading.RLock()
        self.abandoned: deque[str] = deque()  # streams that were thrown away unread

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Answer every prompt; returns their outputs in order.

        prompts: text, token ids or chat messages, one or a list of them
        params: one for all, or one each

        Raises `RefusedError` (a ValueError) before anything runs if any of them can never run.
        """
        streams = self.submit(prompts, params)
        try:
            return [stream.finish() for stream in streams]
        finally:  # also after an interrupt: nothing of this call stays in the engine
            close_all(streams)

    async def agenerate(
        self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None = None
    ) -> list[RequestOutput]:
        """`generate` for a running event loop, which stays free while the engine computes."""
        streams = self.submit(prompts, params)
        try:
            return [await stream.afinish() for stream in streams]
        finally:
            close_all(streams)

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Stream:
        """Events of one answer as they happen: iterate with `for`. Leaving early, or `close()`, aborts it."""
        return self.submit([prompt], params)[0]

    astream = stream  # the same object is iterated with `async for`

    def submit(
        self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None
    ) -> list[Stream]:
        """All of them enter the queue, or none."""
        ids = [self.encode(prompt) for prompt in split_prompts(prompts)]
        each = list(params) if isinstance(params, Sequence) else [params] * len(ids)
        if len(each) != len(ids):
            raise RefusedError(f"{len(ids)} prompts but {len(each)} sampling params: give one for all, or one each")
        streams: list[Stream] = []
        with self.lock, uninterrupted():
            try:
                for prompt, own in zip(ids, each, strict=True):
                    name = self.engine.add_request(prompt, own)
                    self.mail[name] = deque()
                    streams.append(Stream(self, name))
            except BaseException:
                close_all(streams)
                raise
        return streams

    def encode(self, prompt: Prompt) -> list[int]:
        """Text, ids or chat messages as ids."""
        prompt = plain(prompt)
        if not isinstance(prompt, Sequence) or isinstance(prompt, bytes):
            raise RefusedError(f"prompt must be text, token ids or chat messages, not {type(prompt).__name__}")
        if not isinstance(prompt, str) and all(isinstance(item, int) for item in prompt):
            return list(prompt)  # type: ignore[arg-type]
        if self.tokenizer is None:
            raise RefusedError("prompt is text, and there is no tokenizer: give token ids")
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else self.tokenizer.chat(prompt)  # type: ignore[arg-type]

    def pump(self, request_id: str) -> None:
        """One step for everybody, unless there is mail for this request by now, or nobody to read it."""
        with self.lock:
            box = self.mail.get(request_id)
            if box is None or box:
                return
            while self.abandoned:
                self.drop(self.abandoned[0])
                self.abandoned.popleft()
            try:
                self.engine.step()
            except Exception:
                if self.engine.failure is None:
                    raise  # the user's own, from `on_step`: nothing has stopped
            if not box and request_id not in self.engine.requests:
                self.engine.must_be_healthy()
                raise EngineDeadError(f"request {request_id!r} is not in the engine any more: it was aborted or reset")

    def drop(self, request_id: str) -> None:
        """Forget a request; end it if it still runs."""
        with self.lock, uninterrupted():
            if self.mail.pop(request_id, None) is not None:
                self.engine.abort_request(request_id)


class Stream:
    """The events of one request, for `for` and for `async for`. The last one carries the `RequestOutput`."""

    def __init__(self, llm: LLM, request_id: str) -> None:
        self.llm, self.request_id = llm, request_id
        self.output: RequestOutput | None = None
        self.open = True

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        while (event := self.next_mail()) is None:
            self.llm.pump(self.request_id)
        return event

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        try:
            while (event := self.next_mail()) is None:
                await asyncio.to_thread(self.llm.pump, self.request_id)
        except StopIteration:
            raise StopAsyncIteration from None
        return event

    def next_mail(self) -> Event | None:
        """The next event if it is there; StopIteration after the last."""
        box = self.llm.mail.get(self.request_id)
        if box is None:
            raise StopIteration  # read to its end, or closed
        if not box:
            return None
        event = box[0]
        if event.output is None:
            box.popleft()
            return event
        self.output = event.output
        self.close()
        if event.cause is not None:
            raise dead(event.cause)
        return event

    def finish(self) -> RequestOutput:
        """Read to the end. Raises EngineDeadError if the engine stops before, or if the stream was closed."""
        for _ in self:
            pass
        return self.result()

    async def afinish(self) -> RequestOutput:
        async for _ in self:
            pass
        return self.result()

    def result(self) -> RequestOutput:
        if self.output is None:
            raise EngineDeadError(f"the stream of request {self.request_id!r} was closed before its end")
        return self.output

    def close(self) -> None:
        """Stop reading; the request is aborted if it has not ended."""
        self.llm.drop(self.request_id)
        self.open = False

    def __del__(self) -> None:
        # The collector may come in the middle of a step, so the request is only marked here.
        if self.open:
            self.llm.abandoned.append(self.request_id)


def put(mail: dict[str, deque[Event]], event: Event) -> bool:
    """Each event to its own mailbox. False if there is none: nobody reads it here."""
    box = mail.get(event.request_id)
    if box is not None:
        box.append(event)
    return box is not None


def close_all(streams: Sequence[Stream]) -> None:
    with uninterrupted():
        for stream in streams:
            stream.close()


def plain(prompt: Any) -> Any:
    """An array or a tensor as a list."""
    return prompt.tolist() if hasattr(prompt, "tolist") else prompt


def split_prompts(prompts: Any) -> list[Prompt]:
    """One prompt or several, as a list. A list of ints is one prompt, and so are a message and a list of messages."""
    given: Any = plain(prompts)
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        return [given]
    several: list[Any] = [[given]] if hasattr(given, "keys") else list(given)
    single = bool(several) and all(isinstance(item, int) or hasattr(item, "keys") for item in several)
    return [several] if single else several
