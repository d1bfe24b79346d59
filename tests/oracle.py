"""The oracle: what transformers says about a request that runs alone. Every parity test asks it.

hf_model(kind, seed, std, dtype, **config)  a tiny random transformers model: "llama", "mistral", "qwen2" or "qwen3"
ours(hf)                                    the same weights as a minicb `Model`
alone(hf, ids, n)                           the greedy continuation of one prompt by `generate`, with its logits
all_logits(hf, ids)                         logits at every position of one prompt
assert_same(tokens, expected, margins)      token for token; only where two tokens tie may they part
Steps(model, prompts, attention)            requests that advance by hand, a chunk each, every logit in the open
logits_of(model, ids, attention)            logits at every position of one prompt, in one step
random_ids(rng, n, vocab)                   a prompt
one_thread()                                a `with` block: so small a model only waits for a second thread
real_checkpoint()                           the folder of the packaged model; the test fails if it is missing

The weights are LARGE (std 0.2 to 0.5): with the usual 0.02 all logits are nearly equal, and a wrong mask or position
moves them less than any tolerance. transformers computes attention in its plainest way ("eager"). A cache made here is
full of NaN, so that whoever reads a slot that was never written is found out.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from minicb.batch import Plan, next_tokens, pack
from minicb.cache import KVCache, SlotPool
from minicb.checkpoint import adapt_config, find_checkpoint
from minicb.model import Model
from minicb.reference import Attention, ReferenceAttention
from minicb.request import Limits, open_request
from minicb.sampling import SamplingParams
from minicb.weights import build
from tests.harness.threads import one_thread as one_thread

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

TIE = 1e-3  # the two best logits closer than this: rounding decides, and either token is right
SMALL: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 72,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "attn_implementation": "eager",
}


def hf_model(
    kind: str, seed: int = 0, std: float = 0.3, dtype: torch.dtype = torch.float32, **config: Any
) -> Any:  # fmt: skip
    """A tiny random transformers model. `config` changes or adds fields of `SMALL`.

    Norm weights are 1 + noise; everything else, biases included, is noise of this std.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**SMALL, **config}), dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * std
            parameter.copy_(noise + 1 if "norm" in name else noise)
    return model.eval()


def ours(hf: Any) -> Model:
    """The same weights in minicb."""
    config = adapt_config(hf.config)
    return build(config, hf.state_dict(), torch.device("cpu"), hf.dtype)


@dataclass(frozen=True, slots=True)
class Alone:
    """One request's greedy answer, and what stood behind each of its tokens."""

    tokens: list[int]
    logits: Tensor  # [n, V]

    @property
    def margins(self) -> list[float]:
        """How far the best token was ahead of the second best, for each token of the answer."""
        best = self.logits.topk(2, dim=-1).values
        return [float(margin) for margin in best[:, 0] - best[:, 1]]


def alone(hf: Any, ids: Sequence[int], n: int, *, use_cache: bool = True) -> Alone:
    """Up to n greedy tokens after `ids` by `transformers.generate`; fewer if the model ends its answer."""
    prompt = torch.tensor([list(ids)])
    result = hf.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=n,
        do_sample=False,
        use_cache=use_cache,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return Alone(result.sequences[0, len(ids) :].tolist(), torch.cat(result.logits))


@torch.inference_mode()
def all_logits(hf: Any, ids: Sequence[int]) -> Tensor:
    """[len(ids), V]"""
    logits: Tensor = hf(torch.tensor([list(ids)]), use_cache=False).logits[0]
    return logits


def assert_same(tokens: Sequence[int], expected: Sequence[int], margins: Sequence[float]) -> None:
    """Fail unless the answers are equal, or part at a tie, after which they may well go different ways.

    margins: of each expected token over the second best
    """
    tokens, expected = list(tokens), list(expected)
    if tokens == expected:
        return
    pairs = enumerate(zip(tokens, expected, strict=False))
    first = next((i for i, (a, b) in pairs if a != b), min(len(tokens), len(expected)))
    if first == len(tokens) or first == len(expected):
        pytest.fail(f"{len(tokens)} tokens instead of {len(expected)}: {tokens} against {expected}")
    if margins[first] >= TIE:
        pytest.fail(
            f"token {first} is {tokens[first]} instead of {expected[first]}, which was ahead by "
            f"{margins[first]:.2g}: {tokens} against {expected}"
        )


class Steps:
    """Requests that advance by hand through the real request, pool, packing, cache and model."""

    def __init__(self, model: Model, prompts: Mapping[str, Sequence[int]], attention: Attention | None = None) -> None:
        self.model, self.attention = model, attention or ReferenceAttention()
        longest = max(map(len, prompts.values())) + 1
        self.pool = SlotPool(len(prompts), longest)
        self.cache = KVCache(model.config, len(prompts) + 1, longest, model.device, model.dtype)
        poison(self.cache)
        limits = Limits(model.config.vocab_size, longest, frozenset())
        self.requests = {
            name: open_request(name, ids, SamplingParams(max_tokens=1), limits, None, seed=0, now=0.0)
            for name, ids in prompts.items()
        }
        for name in prompts:
            self.pool.reserve(name, longest)

    @torch.inference_mode()
    def __call__(self, **counts: int) -> dict[str, Tensor]:
        """One step of so many new tokens each, in this order. Returns the logits of all of them: name -> [n, V]."""
        chunks = [next_tokens(self.requests[name], n) for name, n in counts.items()]
        batch = pack(Plan(tuple(chunks)), self.pool, self.model.device)
        logits = self.model.logits(self.model(batch, self.cache, self.attention))
        for chunk in chunks:
            chunk.request.num_computed_tokens = chunk.end
        parts = logits.split([chunk.num_new for chunk in chunks])
        return dict(zip(counts, parts, strict=True))


def poison(cache: KVCache) -> None:
    """Nobody may read what nobody has written."""
    cache.k.fill_(float("nan"))
    cache.v.fill_(float("nan"))


def logits_of(model: Model, ids: Sequence[int], attention: Attention | None = None) -> Tensor:
    """Logits at every position of one prompt, computed in one step: [len(ids), V]."""
    return Steps(model, {"a": ids}, attention)(a=len(ids))["a"]


def random_ids(rng: random.Random, n: int, vocab: int = 64) -> list[int]:
    return [rng.randrange(vocab) for _ in range(n)]


def real_checkpoint() -> Path:
    """The packaged model's folder. A test that needs it fails without it: nothing passes by being skipped."""
    try:
        return find_checkpoint(None)
    except ValueError as error:
        pytest.fail(str(error), pytrace=False)
