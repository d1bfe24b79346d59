"""The smallest engine around the learner's parts: the last section of the file that `export` writes.

`bundle.py` joins this module with everything that it uses from the core, by the core's own text. A name that is
defined here stands in for the core's of the same name, which does more than a first engine needs. Inside minicb
nobody runs this module; tests run the file that is made of it.
"""

# mypy: disable-error-code="arg-type"
# (the stand-ins below are passed to the core's functions, whose types name the originals)

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from minicb.batch import Batch, Plan, next_tokens
from minicb.cache import KVCache, SlotPool, bytes_per_token
from minicb.checkpoint import packaged_model_folder
from minicb.model import Attend, Model, ModelConfig
from minicb.naive import generate_naive
from minicb.outputs import latencies
from minicb.reference import attend_ragged, find_spans, step_mask
from minicb.request import finish_reason
from minicb.sampling import greedy_pick
from minicb.scheduler import may_join, plan_running
from minicb.step import run_plan
from minicb.weights import checkpoint_names

Pool = SlotPool  # the only kind of pool here


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary position embedding."""

    theta: float


def rope_frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """Angle per position for each pair of dimensions: float32 [D/2]. Source: RoFormer (2021), section 3.4.2."""
    return 1.0 / rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)


@dataclass(slots=True, eq=False)
class Request:
    """One prompt on its way to an answer. Times in seconds."""

    request_id: str
    tokens: list[int]  # prompt, then answer
    num_prompt_tokens: int
    max_tokens: int
    end_ids: frozenset[int]
    arrival_s: float
    num_computed_tokens: int = 0
    finish_reason: str | None = None
    token_times_s: list[float] = field(default_factory=list)

    @property
    def answer(self) -> list[int]:
        return self.tokens[self.num_prompt_tokens :]

    def take(self, sampled: Sampled, now: float) -> None:
        """Append the next token; ends the request if that was its last."""
        self.tokens.append(sampled.token_id)
        self.token_times_s.append(now)
        stopped = sampled.token_id in self.end_ids
        self.finish_reason = finish_reason(len(self.answer), self.max_tokens, stopped=stopped)


@dataclass(frozen=True, slots=True)
class Sampled:
    """One row's choice."""

    token_id: int


def sample(logits: Tensor, requests: Sequence[Request]) -> list[Sampled | Exception]:  # noqa: ARG001
    """The likeliest token for each row. logits: [M, V], one row for each request"""
    return [Sampled(token) for token in greedy_pick(logits).tolist()]


def zeros(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.zeros(shape, device=device, dtype=dtype)


def in_one_copy(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    return [tensor.to(device) for tensor in tensors]


class ReferenceAttention:
    """Request by request, in plain torch."""

    def bind(self, batch: Batch, cache: KVCache) -> Attend:
        """Work out once a step what is the same in every layer; returns the step's attention."""
        spans, mask = find_spans(batch, cache.page_size), step_mask(batch)

        def attend_layer(layer: int, window: int | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # noqa: ARG001
            return attend_ragged(q, k, v, mask, cache.k[layer], cache.v[layer], spans)

        return attend_layer


Attention = ReferenceAttention  # the only back end


class Engine:
    """Continuous batching: in each step whoever is done leaves, and whoever waits may join.

    max_num_batched_tokens: tokens computed in one step, at most   max_num_seqs: requests at a time, at most
    max_model_len: tokens of one request, prompt and answer
    """

    def __init__(self, model: Model, *, max_num_batched_tokens: int, max_num_seqs: int, max_model_len: int) -> None:
        self.model, self.budget = model, max_num_batched_tokens
        self.max_num_seqs = min(max_num_seqs, max_num_batched_tokens)  # everybody who runs gets a token a step
        self.pool = SlotPool(self.max_num_seqs, max_model_len)
        self.cache = KVCache(model.config, self.max_num_seqs + 1, max_model_len, model.device, model.dtype)
        self.attention = ReferenceAttention()
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.steps = 0

    def generate(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[Request]:
        """Answer all prompts of token ids, greedily; returns their requests in order."""
        now, ends = time.perf_counter(), self.model.config.end_ids
        requests = [Request(str(i), list(ids), len(ids), max_tokens, ends, now) for i, ids in enumerate(prompts)]
        self.waiting.extend(requests)
        while self.waiting or self.running:
            self.step()
        return requests

    @torch.inference_mode()
    def step(self) -> None:
        plan = self.schedule()  # who runs, how many tokens each
        sampled = run_plan(plan, self.pool, self.model, self.cache, self.attention)  # the model, once for all
        self.commit(plan, sampled, time.perf_counter())  # advance, finish, free
        self.steps += 1

    def schedule(self) -> Plan:
        """Running requests first, so that nobody's stream stalls behind a prompt; then waiting ones, in order."""
        counts = plan_running([len(r.tokens) - r.num_computed_tokens for r in self.running], self.budget)
        chunks = [next_tokens(request, count) for request, count in zip(self.running, counts, strict=True)]
        budget = self.budget - sum(counts)
        while self.waiting and may_join(len(self.running), self.max_num_seqs, budget):
            request = self.waiting.popleft()
            self.pool.reserve(request.request_id, len(request.tokens) + request.max_tokens)
            self.running.append(request)
            chunks.append(next_tokens(request, budget))
            budget -= chunks[-1].num_new
        return Plan(tuple(chunks))

    def commit(self, plan: Plan, sampled: Sequence[Sampled], now: float) -> None:
        """Take the step's results; whoever is done leaves and its place is free."""
        for chunk in plan:
            chunk.request.num_computed_tokens = chunk.end
        for request, token in zip(plan.sampled, sampled, strict=True):
            request.take(token, now)
            if request.finish_reason:
                self.pool.release(request.request_id)
        self.running = [request for request in self.running if not request.finish_reason]


def read_model(folder: Path) -> Model:
    """A Llama, Qwen2 or Qwen3 checkpoint, in float32."""
    raw = json.loads((folder / "config.json").read_bytes())
    rope = raw.get("rope_parameters") or {"rope_theta": raw["rope_theta"], **(raw.get("rope_scaling") or {})}
    kind, heads, ends = raw["model_type"], raw["num_attention_heads"], raw.get("eos_token_id") or []
    if kind not in ("llama", "qwen2", "qwen3") or rope.get("rope_type", "default") != "default":
        raise SystemExit(f"{folder}: model_type {kind} with rope {rope} is not supported")
    config = ModelConfig(
        vocab_size=raw["vocab_size"],
        hidden_size=raw["hidden_size"],
        intermediate_size=raw["intermediate_size"],
        num_layers=raw["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=raw.get("num_key_value_heads", heads),
        head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
        rope=RopeConfig(float(rope["rope_theta"])),
        max_position_embeddings=raw["max_position_embeddings"],
        norm_eps=raw["rms_norm_eps"],
        qkv_bias=kind == "qwen2",
        qk_norm=kind == "qwen3",
        tied_head=raw.get("tie_word_embeddings", False),
        end_ids=frozenset([ends] if isinstance(ends, int) else ends),
    )
    tensors = {name: t.float() for file in folder.glob("*.safetensors") for name, t in load_file(file).items()}
    with torch.device("meta"):  # no memory for parameters that are replaced at once
        model = Model(config)
    state = {ours: torch.cat([tensors[name] for name in theirs]) for ours, theirs in checkpoint_names(config)}
    if config.tied_head:
        state["head.weight"] = state["embed.weight"]
    model.load_state_dict(state, assign=True)
    return model.requires_grad_(False)


def alone(model: Model, request: Request) -> bool:
    """Does the request get the same tokens when everything is computed anew for each of them?"""
    longest = len(request.tokens)
    engine = Engine(model, max_num_batched_tokens=longest, max_num_seqs=1, max_model_len=longest)

    def next_token(text: list[int]) -> int:
        return engine.generate([text], 1)[0].answer[0]

    prompt = request.tokens[: request.num_prompt_tokens]
    return generate_naive(next_token, prompt, len(request.answer)) == request.answer


def main() -> None:
    parser = argparse.ArgumentParser(description="Answer several prompts by continuous batching.")
    parser.add_argument("prompts", nargs="+")
    parser.add_argument("--model", type=Path, default=packaged_model_folder(), help="folder of a checkpoint")
    parser.add_argument("--max-tokens", type=int, default=16, help="tokens of an answer, at most (default: 16)")
    parser.add_argument("--budget", type=int, default=64, help="tokens a step, at most (default: 64)")
    parser.add_argument("--max-num-seqs", type=int, default=8, help="requests at a time, at most (default: 8)")
    parser.add_argument("--check", action="store_true", help="also compute each answer alone, without a cache")
    args = parser.parse_args()

    model, tokenizer = read_model(args.model), Tokenizer.from_file(str(args.model / "tokenizer.json"))
    prompts = [tokenizer.encode(prompt).ids for prompt in args.prompts]
    longest = max(map(len, prompts)) + args.max_tokens
    engine = Engine(model, max_num_batched_tokens=args.budget, max_num_seqs=args.max_num_seqs, max_model_len=longest)
    requests = engine.generate(prompts, args.max_tokens)
    for prompt, request in zip(args.prompts, requests, strict=True):
        ttft_s, gaps_s = latencies(request.arrival_s, request.token_times_s)
        print(f"{prompt!r} -> {tokenizer.decode(request.answer)!r}")
        print(f"    ids {request.answer}, the first after {ttft_s:.2f} s, longest gap {max(gaps_s, default=0):.2f} s")
    c = model.config
    token = bytes_per_token(c.num_layers, c.num_kv_heads, c.head_dim, model.dtype.itemsize)
    print(f"{len(requests)} prompts in {engine.steps} steps; the cache takes {token:,} bytes a token")
    if args.check:
        print(f"the same alone and without a cache: {all(alone(model, request) for request in requests)}")


if __name__ == "__main__":
    main()
