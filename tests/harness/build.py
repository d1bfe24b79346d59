"""From a case to its model, and to what the oracle has to know about each request."""

from __future__ import annotations

from typing import Any

import torch

from minicb.sampling import SamplingParams
from minicb.weights import random_model
from tests.harness.case import Case, RequestSpec
from tests.harness.dense import LogitsOf, dense_logits
from tests.harness.oracle import Promise
from tests.harness.scripted import ScriptedModel, history_logits

MAX_POSITIONS = 96


def build_model(case: Case) -> tuple[Any, LogitsOf]:
    """The model of this case, and the oracle's view of it."""
    spec, config = case.model, case.model.config(MAX_POSITIONS)
    if spec.kind == "scripted":
        return ScriptedModel(config, spec.script), lambda ids: history_logits(ids, spec.vocab_size, spec.script)
    model = random_model(config, seed=spec.seed, std=spec.std, dtype=spec.dtype)
    if spec.nan_id is not None:
        with torch.no_grad():
            model.embed.weight[spec.nan_id] = torch.nan
    return model, dense_logits(model)


def make_promise(case: Case, request: RequestSpec, seed: int, logits_of: LogitsOf) -> Promise:
    """What this request may depend on: its own prompt, parameters and seed, and nothing of the others."""
    model = case.model
    close = 0.0 if model.kind == "scripted" else 1e-3 if model.dtype == "float32" else 1e-6
    return Promise(
        request.prompt, SamplingParams(**request.params), seed, frozenset(model.end_ids), case.max_model_len,
        logits_of, model.words, model.bad_id, close,
    )  # fmt: skip
