"""The engines that live in this environment: minicb in three forms, transformers in two, and the floor.

python -m minicb.bench.workers.own minicb-native
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch
from torch import nn

from minicb.bench.growth import wait
from minicb.bench.workers.protocol import Answers, Job, serve
from minicb.engine import Engine
from minicb.kernels import faster
from minicb.kernels.fused import Packed
from minicb.metrics import StepRecord
from minicb.model import Model
from minicb.sampling import SamplingParams
from minicb.weights import load

Run = tuple[str, Callable[[], Answers]]


def minicb(job: Job, *, native: bool = False, plain: bool = False) -> Run:
    model, _ = load(job.model, job.device, job.dtype)
    if not plain:
        model = faster(model, native=native)
    return version("minicb"), lambda: serve_all(job, model, "reference" if plain else "auto")[0]


def serve_all(job: Job, model: Model, attention: str = "auto") -> tuple[Answers, list[StepRecord]]:
    """Every request at once, to its end. Returns the answers and the steps."""
    steps: list[StepRecord] = []
    engine = Engine(
        model, attention=attention, max_num_seqs=job.options["max_num_seqs"], on_step=steps.append,
        max_num_batched_tokens=job.options["max_num_batched_tokens"], max_model_len=job.options["max_model_len"],
    )  # fmt: skip
    names = [
        engine.add_request(ids, SamplingParams(max_tokens=length, ignore_eos=True))
        for ids, length in zip(job.prompts, job.max_tokens, strict=True)
    ]
    answers: dict[str, list[int]] = {}
    while engine.has_unfinished_requests:
        for event in engine.step():
            if event.output is not None:
                answers[event.request_id] = list(event.output.token_ids)
    return [answers[name] for name in names], steps


def transformers_static(job: Job) -> Run:
    from minicb.bench.peers import Transformers

    peer = Transformers(Path(job.model), torch.device(job.device), getattr(torch, job.dtype), frozenset())
    size = job.options["batch_size"]
    return version("transformers"), lambda: peer.static(job.prompts, job.max_tokens, size).answers


def transformers_cb(job: Job) -> Run:
    from minicb.bench.peers import Transformers

    peer = Transformers(Path(job.model), torch.device(job.device), getattr(torch, job.dtype), frozenset())
    return version("transformers"), lambda: peer.managed(job.prompts, job.max_tokens)


def gemm_floor(job: Job) -> Run:
    """The matrix products of minicb's own steps and nothing else: the limit of an engine that multiplies as it does."""
    model, _ = load(job.model, job.device, job.dtype)
    if model.device.type == "cpu":
        model = faster(model)  # packed weights; elsewhere the plain products are the fast ones
    shapes = [(r.token_slots, sum(entry.sampled for entry in r.entries)) for r in serve_all(job, model)[1]]
    config = model.config
    widths = {"down": config.intermediate_size, "out": config.num_heads * config.head_dim}
    products = [
        (part, widths.get(name.rsplit(".", 1)[-1], config.hidden_size))
        for name, part in model.layers.named_modules()
        if isinstance(part, Packed | nn.Linear)
    ]

    @torch.inference_mode()
    def run() -> Answers:
        for tokens, sampled in shapes:
            rows = {width: torch.ones(tokens, width, dtype=model.dtype, device=model.device) for _, width in products}
            for part, width in products:
                part(rows[width])
            if sampled:
                model.head(rows[config.hidden_size][:sampled])
        wait(model)
        return [[0] * length for length in job.max_tokens]

    return version("torch"), run


ENGINES: dict[str, Callable[[Job], Run]] = {
    "minicb": minicb,
    "minicb-native": lambda job: minicb(job, native=True),
    "minicb-reference": lambda job: minicb(job, plain=True),
    "transformers-static": transformers_static,
    "transformers-cb": transformers_cb,
    "gemm-floor": gemm_floor,
}

if __name__ == "__main__":
    serve(ENGINES[sys.argv[1]])
