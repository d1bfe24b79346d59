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
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from minicb.checkpoint import Message, Tokenizer
from minicb.engine import Engine, EngineDeadError, Event
from minicb.model import Model
from minicb.outputs import RequestOutput
from minicb.request import RefusedError
from minicb.sampling import SamplingParams
from minicb.weights import load

Prompt = str | Sequence[int] | Sequence[Message]


class LLM:
    """A model with its tokenizer behind an engine.

    model: None for the packaged one, a local folder, a hub name, or a ready `Model` (then give `tokenizer` too,
        or prompts can only be token ids)
    options: those of `Engine`
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Model | None = None,
        tokenizer: Tokenizer | None = None,
        *,
        device: str = "auto",
        dtype: str = "auto",
        **options: Any,
    ) -> None:
        if not isinstance(model, Model):
            model, tokenizer = load(model, device, dtype)
        self.tokenizer = tokenizer
        self.engine = Engine(model, tokenizer.decode if tokenizer else None, **options)
        self.lock = threading.RLock()
        self.mail: dict[str, deque[Event]] = {}
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
            for stream in streams:
                stream.close()

    async def agenerate(
        self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None = None
    ) -> list[RequestOutput]:
        """`generate` for a running event loop, which stays free while the engine computes."""
        streams = self.submit(prompts, params)
        try:
            return [await stream.afinish() for stream in streams]
        finally:
            for stream in streams:
                stream.close()

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Stream:
        """Events of one answer as they happen: iterate with `for`. Leaving early, or `close()`, aborts it."""
        return self.submit([prompt], params)[0]

    astream = stream  # the same object is iterated with `async for`

    def submit(
        self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None
    ) -> list[Stream]:
        """All of them enter the queue, or none."""
        ids = [self.encode(prompt) for prompt in split_prompts(prompts)]
        each = list(params) if isinstance(params, Sequence) else [params or SamplingParams()] * len(ids)
        if len(each) != len(ids):
            raise RefusedError(f"{len(ids)} prompts but {len(each)} sampling params: give one for all, or one each")
        streams: list[Stream] = []
        with self.lock:
            try:
                for prompt, own in zip(ids, each, strict=True):
                    name = self.engine.add_request(prompt, own)
                    self.mail[name] = deque()
                    streams.append(Stream(self, name))
            except BaseException:
                for stream in streams:
                    stream.close()
                raise
        return streams

    def encode(self, prompt: Prompt) -> list[int]:
        """Text, ids or chat messages as ids."""
        if not isinstance(prompt, str) and all(isinstance(item, int) for item in prompt):
            return list(prompt)  # type: ignore[arg-type]
        if self.tokenizer is None:
            raise RefusedError("prompt is text, and there is no tokenizer: give token ids")
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else self.tokenizer.chat(prompt)  # type: ignore[arg-type]

    def pump(self, request_id: str) -> None:
        """One step for everybody, unless there is mail for this request by now."""
        with self.lock:
            box = self.mail[request_id]
            if box:
                return
            while self.abandoned:
                self.drop(self.abandoned.popleft())
            try:
                events = self.engine.step()
            except Exception as error:
                self.deliver(self.engine.collect())
                raise EngineDeadError(f"the engine stopped ({type(error).__name__}: {error})") from error
            self.deliver(events)
            if not box and request_id not in self.engine.requests:
                raise EngineDeadError(f"request {request_id!r} is not in the engine any more: it was aborted or reset")

    def deliver(self, events: Sequence[Event]) -> None:
        """Each event to its own mailbox; those of a reader who has left are dropped."""
        for event in events:
            if event.request_id in self.mail:
                self.mail[event.request_id].append(event)

    def drop(self, request_id: str) -> None:
        """Forget a request; end it if it still runs."""
        with self.lock:
            if self.mail.pop(request_id, None) is not None and self.engine.failure is None:
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
        if not self.open:
            raise StopIteration
        box = self.llm.mail[self.request_id]
        if not box:
            return None
        event = box.popleft()
        if event.output is not None:
            self.output = event.output
            self.close()
            if event.output.finish_reason == "error" and self.llm.engine.failure is not None:
                self.llm.engine.must_be_healthy()  # raises with the cause
        return event

    def finish(self) -> RequestOutput:
        """Read to the end."""
        for _ in self:
            pass
        assert self.output is not None
        return self.output

    async def afinish(self) -> RequestOutput:
        async for _ in self:
            pass
        assert self.output is not None
        return self.output

    def close(self) -> None:
        """Stop reading; the request is aborted if it has not ended."""
        if self.open:
            self.open = False
            self.llm.drop(self.request_id)

    def __del__(self) -> None:
        # The collector may come in the middle of a step, so the request is only marked here.
        if self.open:
            self.llm.abandoned.append(self.request_id)


def split_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or a list of prompts, as a list. A list of ints is one prompt, and so is a list of messages."""
    if isinstance(prompts, str):
        return [prompts]
    single = bool(prompts) and all(isinstance(item, int) or hasattr(item, "keys") for item in prompts)
    return [prompts] if single else list(prompts)  # type: ignore[list-item, arg-type]
