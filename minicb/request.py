"""The life of a request: its tokens, and how many of them are computed. (Chapter 4)

There are no phases. A request holds tokens (prompt and answer in one list) and `num_computed_tokens`. Reading a
long prompt in pieces, writing the answer token by token, starting again after losing the cache: all of it is
"run the next n uncomputed tokens". When the last token has been computed, the next one can be sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from minicb.sampling import Logprobs, Sampled, SamplingParams
from minicb.seams import seam
from minicb.stopping import Decode, StopChecker


class RefusedError(ValueError):
    """This request can never run. The message names the field and the limit; nobody else is affected."""


class Status(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@seam("4.1")
def next_chunk(num_tokens: int, num_computed: int, budget: int) -> int:
    """How many tokens to compute now: all that are left, but no more than the budget.

    num_tokens: tokens that the request holds   num_computed: those whose keys and values are in the cache
    """
    return min(num_tokens - num_computed, budget)


@seam("4.2")
def next_span(num_tokens: int, num_computed: int, budget: int) -> tuple[int, int, bool]:
    """Which tokens to compute now, and whether the request's next token can be sampled afterwards.

    returns: the first position, the position after the last one, and True if that reaches the request's end
    """
    end = num_computed + next_chunk(num_tokens, num_computed, budget)
    return num_computed, end, end == num_tokens


@seam("3.5")
def positions_of(num_computed: int, num_new: int) -> list[int]:
    """Where the new tokens stand in their own request: they continue where the computed ones end.

    num_computed: tokens whose keys and values are in the cache   num_new: tokens to compute now
    """
    return list(range(num_computed, num_computed + num_new))


@seam("7.3")
def finish_reason(num_output: int, max_output: int, *, stopped: bool) -> str | None:
    """Why a request ends after its newest token, or None if it goes on.

    num_output: tokens of the answer so far   max_output: the most it may have
    stopped: the newest token is an end id or completed a stop text, which wins over the limit
    """
    if stopped:
        return "stop"
    return "length" if num_output >= max_output else None


@dataclass(slots=True, eq=False)
class Request:
    """One prompt on its way to an answer. Times are seconds of the engine's clock."""

    request_id: str
    tokens: list[int]  # prompt, then answer; only ever appended to
    num_prompt_tokens: int
    params: SamplingParams
    seed: int  # the random stream's, drawn at the door if the user gave none
    ending_ids: frozenset[int]  # every id that ends this answer: the model's, unless ignore_eos, and the user's
    checker: StopChecker
    max_total_tokens: int  # prompt and answer together may not be longer
    arrival_s: float
    number: int = 0  # in the order in which they came to the scheduler
    came_at: int = 0  # tokens that the engine had computed by then, where the policy counts them
    times_passed: int = 0  # so many went before it while it was next and found no room
    status: Status = Status.WAITING
    num_computed_tokens: int = 0
    finish_reason: str | None = None
    stop_reason: str | int | None = None  # which stop text or id ended it
    error: str | None = None
    logprobs: list[Logprobs] = field(default_factory=list)
    first_scheduled_s: float | None = None
    token_times_s: list[float] = field(default_factory=list)
    finished_s: float | None = None

    @property
    def finished(self) -> bool:
        return self.status is Status.FINISHED

    @property
    def num_output_tokens(self) -> int:
        return len(self.tokens) - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> list[int]:
        return self.tokens[self.num_prompt_tokens :]

    @property
    def num_uncomputed_tokens(self) -> int:
        return len(self.tokens) - self.num_computed_tokens

    def take(self, sampled: Sampled, now: float) -> str:
        """Append the next token; ends the request if that was its last. Returns the text that may be shown now.

        An answer that cannot be decoded ends alone, with the cause; its neighbours never notice.
        """
        try:
            return self.append(sampled, now)
        except Exception as error:
            self.fail(error, now)
            return self.last_words()

    def append(self, sampled: Sampled, now: float) -> str:
        """`take` without its net."""
        token = sampled.token_id
        self.tokens.append(token)
        self.token_times_s.append(now)
        if sampled.logprobs is not None:
            self.logprobs.append(sampled.logprobs)
        ended = token in self.ending_ids
        if ended:
            self.stop_reason = token  # the text of an end id is not part of the answer
        else:
            armed = self.num_output_tokens >= self.params.min_tokens
            self.stop_reason = self.checker.push(token, armed=armed)
        max_output = self.max_total_tokens - self.num_prompt_tokens
        stopped = self.stop_reason is not None
        reason = finish_reason(self.num_output_tokens, max_output, stopped=stopped)
        if reason is None:
            return self.checker.release()
        self.finish(reason, now)
        return self.checker.finish(stopped=stopped and not ended)

    def finish(self, reason: str, now: float) -> None:
        """End once; whoever comes second changes nothing."""
        if self.status is not Status.FINISHED:
            self.finish_reason, self.finished_s = reason, now
            self.status = Status.FINISHED

    def last_words(self) -> str:
        """For an end that was not expected: the text that was held back, as far as it can be made at all."""
        try:
            return self.checker.finish(stopped=False)
        except Exception:  # the error that ended this request is already its cause
            return self.checker.finish(stopped=True)

    def fail(self, error: Exception, now: float) -> None:
        """End this request alone, with the cause; an answer whose last text could not be made has failed too."""
        self.error, self.stop_reason = f"{type(error).__name__}: {error}", None
        self.finish_reason, self.finished_s, self.status = "error", now, Status.FINISHED


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request has to fit into."""

    vocab_size: int
    max_model_len: int  # prompt and answer together, in tokens
    end_ids: frozenset[int]


def open_request(
    request_id: str,
    prompt: Sequence[int],
    params: SamplingParams,
    limits: Limits,
    decode: Decode | None,
    seed: int,
    now: float,
) -> Request:
    """A request that is sure to fit. Raises `RefusedError`, naming the field and the limit, for one that is not."""
    refuse_misfits(prompt, params, limits, decode)
    return Request(
        request_id=request_id,
        tokens=list(prompt),
        num_prompt_tokens=len(prompt),
        params=params,
        seed=params.seed if params.seed is not None else seed,
        ending_ids=(frozenset() if params.ignore_eos else limits.end_ids) | frozenset(params.stop_token_ids),
        checker=StopChecker(decode or (lambda _: ""), params.stop, params.include_stop_str_in_output),
        max_total_tokens=len(prompt) + params.max_tokens if params.max_tokens else limits.max_model_len,
        arrival_s=now,
    )


def refuse_misfits(prompt: Sequence[int], params: SamplingParams, limits: Limits, decode: Decode | None) -> None:
    """Raise `RefusedError` for anything that could not be served to its end."""
    room, vocab = limits.max_model_len, limits.vocab_size
    if not isinstance(params, SamplingParams):
        raise RefusedError(f"params must be SamplingParams, not {type(params).__name__}")
    if not isinstance(prompt, Sequence) or isinstance(prompt, (str, bytes)):
        raise RefusedError(f"prompt must be a list of token ids, not {type(prompt).__name__}")
    if not prompt:
        raise RefusedError("prompt is empty: give at least one token")
    for name, ids in (("prompt", prompt), ("stop_token_ids", params.stop_token_ids)):
        for i in ids:
            if isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < vocab:
                raise RefusedError(
                    f"{name} holds {i!r}, which is no token id: ids are whole numbers from 0 to {vocab - 1}"
                )
    if params.top_k > vocab:
        raise RefusedError(f"top_k {params.top_k} is more than the vocabulary's {vocab} tokens")
    if params.logprobs is not None and params.logprobs > vocab:
        raise RefusedError(f"logprobs {params.logprobs} is more than the vocabulary's {vocab} tokens")
    if params.stop and decode is None:
        raise RefusedError("stop needs a tokenizer, and this engine has none: use stop_token_ids")
    most = room - len(prompt)
    if most < (params.max_tokens or 1):
        asked = f" and max_tokens {params.max_tokens}" if params.max_tokens else ""
        raise RefusedError(f"prompt of {len(prompt)} tokens{asked} do not fit: max_model_len is {room} tokens in all")
    if params.min_tokens > most:
        raise RefusedError(
            f"min_tokens {params.min_tokens} do not fit beside a prompt of {len(prompt)}: the limit is {room}"
        )
