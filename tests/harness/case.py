"""One workload as plain data: drawn from a seed, changed by the shrinker, written as one line of JSON."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from minicb.model import ModelConfig, RopeConfig
from minicb.policy import POLICIES
from minicb.scheduler import STEP_ORDERS
from tests.harness.scripted import Script, scripted_config
from tests.harness.words import STOPS, Words


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A scripted model, or a tiny real one with large random weights."""

    kind: str = "scripted"  # scripted | tiny
    vocab_size: int = 24
    end_ids: tuple[int, ...] = ()
    bad_id: int | None = None  # no text can be made of it
    peak: float = 0.0  # scripted: how sure it is
    nan_one_in: int = 0  # scripted: how often a history has no finite logits
    nan_id: int | None = None  # tiny: this id's embedding is NaN, so its request fails, alone
    seed: int = 0
    std: float = 0.3
    dtype: str = "float64"
    layers: int = 1
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 4
    bias: bool = False
    qk_norm: bool = False
    tied_head: bool = True
    window: int | None = None  # tokens; every second layer, beginning with the first
    rope: str = "default"

    def config(self, max_positions: int) -> ModelConfig:
        if self.kind == "scripted":
            return scripted_config(self.vocab_size, max_positions, frozenset(self.end_ids))
        hidden = self.heads * self.head_dim
        rope = RopeConfig(100.0, self.rope, 4.0, 1.0, 4.0, 16)
        windows = tuple(self.window if i % 2 == 0 else None for i in range(self.layers)) if self.window else ()
        return ModelConfig(
            vocab_size=self.vocab_size, hidden_size=hidden, intermediate_size=2 * hidden, num_layers=self.layers,
            num_heads=self.heads, num_kv_heads=self.kv_heads, head_dim=self.head_dim, rope=rope,
            max_position_embeddings=max_positions, qkv_bias=self.bias, output_bias=self.bias, mlp_bias=self.bias,
            qk_norm=self.qk_norm, tied_head=self.tied_head, windows=windows, end_ids=frozenset(self.end_ids),
        )  # fmt: skip

    @property
    def words(self) -> Words:
        return Words(frozenset(self.end_ids), self.bad_id)

    @property
    def script(self) -> Script:
        return Script(self.peak, self.nan_one_in)


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """One request, and what is done to it."""

    prompt: tuple[int, ...]
    params: dict[str, Any]  # keywords of SamplingParams
    arrives: int = 0  # before this step
    name: str | None = None  # None: the engine's choice; else it waits until nobody has this name
    abort_step: int | None = None  # abort it in this step, if it has arrived ...
    abort_tokens: int | None = None  # ... or as soon as it has so many tokens
    abort_when: str = "before"  # before | during | callback: the step that `abort_step` names


@dataclass(frozen=True, slots=True)
class Fault:
    """Something breaks that is no request's fault."""

    kind: str  # model: it raises | interrupt: Ctrl-C | callback: `on_step` raises
    step: int
    late: bool = False  # after the model has written its keys and values


@dataclass(frozen=True, slots=True)
class Case:
    """A whole run."""

    seed: int
    model: ModelSpec
    requests: tuple[RequestSpec, ...]
    faults: tuple[Fault, ...] = ()
    engine: str = "continuous"  # continuous | static | dynamic: the last two pad
    attention: str = "auto"
    max_num_batched_tokens: int = 64
    max_num_seqs: int = 8
    max_model_len: int = 32
    slots: int = 8
    deliver: bool = False  # events go to a callback instead of out of `step`
    refusals: bool = False  # also try requests that can never run
    policy: str = "fcfs"
    step_order: str = "stall_free"
    chunked: bool = True
    threshold: int = 0  # tokens of one request in a step, at most; 0: no such limit

    def to_json(self) -> str:
        plain = Case(self.seed, ModelSpec(), ())
        return json.dumps(changed(asdict(self), asdict(plain)) | {"seed": self.seed}, separators=(",", ":"))


def changed(own: dict[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    """Only the fields that differ from the default, so that a small case is a short line."""
    return {
        key: changed(value, plain[key]) if key == "model" else value
        for key, value in own.items()
        if value != plain[key]
    }


def from_json(text: str) -> Case:
    fields = json.loads(text)
    fields["model"] = ModelSpec(**{k: tuple(v) if k == "end_ids" else v for k, v in fields.get("model", {}).items()})
    fields["requests"] = tuple(RequestSpec(**{**r, "prompt": tuple(r["prompt"])}) for r in fields.get("requests", ()))
    fields["faults"] = tuple(Fault(**f) for f in fields.get("faults", ()))
    return Case(**fields)


def draw_case(seed: int) -> Case:
    """The workload of this seed."""
    rng = random.Random(seed)
    engine = "continuous" if rng.random() < 0.88 else rng.choice(("static", "dynamic", "dynamic"))
    model = draw_tiny(rng) if engine != "continuous" or rng.random() < 0.45 else draw_scripted(rng)
    case = Case(
        seed=seed, model=model, requests=(), engine=engine,
        attention=rng.choice(("auto", "reference")),
        max_num_batched_tokens=rng.choice((1, 2, 3, rng.randint(4, 12), rng.randint(8, 64), 64)),
        max_num_seqs=rng.randint(1, 8),
        max_model_len=rng.choice((2, rng.randint(3, 12), rng.randint(8, 40), rng.randint(30, 90))),
        slots=rng.randint(1, 8),
        deliver=rng.random() < 0.3,
        refusals=rng.random() < 0.3,
    )  # fmt: skip
    count = rng.choice((1, 2, rng.randint(2, 8), rng.randint(4, 16), rng.randint(8, 32)))
    horizon = rng.choice((0, 4, 30))
    case = replace(case, requests=tuple(draw_request(rng, case, horizon) for _ in range(count)))
    if engine != "continuous":  # the padded baseline has no door, no aborts and no faults
        plain = {"arrives": 0, "name": None, "abort_step": None, "abort_tokens": None}
        return replace(case, refusals=False, requests=tuple(replace(r, **plain) for r in case.requests))
    return draw_knobs(replace(case, faults=draw_faults(rng)))


def draw_knobs(case: Case) -> Case:
    """In every third case another order of the queue or of the step, and clients and priorities for it."""
    rng = random.Random(f"knobs {case.seed}")
    if rng.random() < 0.65:
        return case
    chunked = rng.random() < 0.7
    own = [{"priority": rng.randint(-1, 2), "client": rng.choice(("", "a", "b"))} for _ in case.requests]
    return replace(
        case, policy=rng.choice(list(POLICIES)), step_order=rng.choice(STEP_ORDERS), chunked=chunked,
        threshold=rng.choice((0, 0, 1, 5)) if chunked else 0,
        requests=tuple(replace(r, params=r.params | o) for r, o in zip(case.requests, own, strict=True)),
    )  # fmt: skip


def draw_faults(rng: random.Random) -> tuple[Fault, ...]:
    count = rng.choice((0, 0, 1, 2, 3))
    kinds = ("model", "interrupt", "callback")
    return tuple(
        Fault(rng.choice(kinds), rng.randint(0, rng.choice((4, 25))), late=rng.random() < 0.5) for _ in range(count)
    )


def draw_vocab(rng: random.Random) -> dict[str, Any]:
    size = rng.choice((rng.randint(5, 10), 24, 64))
    ends = tuple(sorted(rng.sample(range(size), rng.choice((0, 1, 2)))))
    return {"vocab_size": size, "end_ids": ends, "bad_id": rng.choice((None, None, None, size - 1))}


def draw_scripted(rng: random.Random) -> ModelSpec:
    return ModelSpec(peak=rng.choice((0.0, 2.0, 10.0)), nan_one_in=rng.choice((0, 0, 0, 30)), **draw_vocab(rng))


def draw_tiny(rng: random.Random) -> ModelSpec:
    vocab = draw_vocab(rng)
    heads, kv_heads = rng.choice(((2, 1), (4, 2), (6, 2), (3, 3), (4, 1), (6, 3)))
    window = rng.choice((None, None, 1, rng.randint(2, 9), rng.randint(2, 9)))
    nan = window is None and rng.random() < 0.2
    return ModelSpec(
        kind="tiny", seed=rng.getrandbits(16), std=rng.uniform(0.2, 0.5), dtype=rng.choice(("float32", "float64")),
        layers=rng.choice((1, 2)), heads=heads, kv_heads=kv_heads, head_dim=rng.choice((4, 6, 8)),
        bias=rng.random() < 0.3, qk_norm=rng.random() < 0.3, tied_head=not nan and rng.random() < 0.7,
        window=window, rope=rng.choice(("default", "linear", "llama3")),
        nan_id=vocab["vocab_size"] - 2 if nan else None, **vocab,
    )  # fmt: skip


def draw_request(rng: random.Random, case: Case, horizon: int) -> RequestSpec:
    vocab, room = case.model.vocab_size, case.max_model_len
    length = rng.choice((1, rng.randint(1, room - 1), rng.randint(1, max(1, room // 2))))
    alphabet = rng.choice((range(vocab), range(min(3, vocab))))
    aborts = rng.choice(("", "", "", "step", "tokens"))
    arrives = rng.randint(0, horizon)
    return RequestSpec(
        prompt=tuple(rng.choice(alphabet) for _ in range(length)),
        params=draw_params(rng, case.model, room - length),
        arrives=arrives,
        name=rng.choice((None, None, f"r{rng.randint(0, 3)}")),
        abort_step=arrives + rng.choice((0, 1, 2, rng.randint(0, 30))) if aborts == "step" else None,
        abort_tokens=rng.randint(1, min(8, room - length)) if aborts == "tokens" else None,
        abort_when=rng.choice(("before", "during", "callback")),
    )


def draw_params(rng: random.Random, model: ModelSpec, room: int) -> dict[str, Any]:
    """Keywords of SamplingParams; each feature is there in a part of the requests only."""
    vocab = model.vocab_size
    most = rng.choice((None, 1, rng.randint(1, room), room))
    params: dict[str, Any] = {"max_tokens": most}

    def sometimes(name: str, chance: float, value: Callable[[], Any]) -> None:
        if rng.random() < chance:
            params[name] = value()

    sometimes("temperature", 0.5, lambda: rng.choice((1e-6, 0.3, 0.7, 1.0, 2.0)))
    sometimes("top_k", 0.2, lambda: rng.choice((1, 2, 3, vocab)))
    sometimes("top_p", 0.2, lambda: rng.choice((1e-9, 0.3, 0.9)))
    sometimes("min_p", 0.15, lambda: rng.choice((0.05, 0.5, 1.0)))
    sometimes("seed", 0.6, lambda: rng.choice((0, 42, rng.getrandbits(40), -5)))
    sometimes("repetition_penalty", 0.15, lambda: rng.choice((0.8, 1.1, 2.0)))
    sometimes("presence_penalty", 0.15, lambda: rng.choice((-1.0, 0.5, 2.0)))
    sometimes("frequency_penalty", 0.15, lambda: rng.choice((-0.5, 0.5, 1.5)))
    sometimes("min_tokens", 0.3, lambda: rng.randint(0, min(6, most or room)))
    sometimes("stop", 0.4, lambda: rng.sample(STOPS, rng.randint(1, 3)))
    sometimes("include_stop_str_in_output", 0.2, lambda: True)
    sometimes("stop_token_ids", 0.2, lambda: rng.sample(range(vocab), rng.randint(1, 2)))
    sometimes("ignore_eos", 0.2, lambda: True)
    sometimes("logprobs", 0.4, lambda: rng.choice((0, 1, 3, vocab)))
    return params
