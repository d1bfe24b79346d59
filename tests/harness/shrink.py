"""Makes a failing case small: fewer requests, shorter prompts, fewer features, as long as it still fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace

from tests.harness.case import Case, ModelSpec, RequestSpec

PLAIN_REQUEST = RequestSpec((), {})
PLAIN_MODEL = ModelSpec()


def shrink(case: Case, fails: Callable[[Case], bool], seconds: float = 60.0) -> Case:
    """The smallest failing case that a greedy search finds in this time."""
    until = time.monotonic() + seconds
    while (smaller := next((c for c in simpler(case) if time.monotonic() > until or fails(c)), None)) is not None:
        if time.monotonic() > until:
            break
        case = smaller
    return case


def simpler(case: Case) -> Iterator[Case]:
    """Cases one step simpler, the boldest steps first."""
    many = case.requests
    for size in (len(many) // 2, len(many) // 4, 1):
        if 0 < size < len(many):
            for at in range(0, len(many), size):
                yield replace(case, requests=many[:at] + many[at + size :])
    for at in range(len(case.faults)):
        yield replace(case, faults=case.faults[:at] + case.faults[at + 1 :])
    for flag in ("refusals", "deliver"):
        if getattr(case, flag):
            yield replace(case, **{flag: False})
    for at, request in enumerate(many):
        for smaller in simpler_requests(request):
            yield replace(case, requests=(*many[:at], smaller, *many[at + 1 :]))
    yield from simpler_limits(case)


def simpler_requests(request: RequestSpec) -> Iterator[RequestSpec]:
    for field in ("abort_step", "abort_tokens", "abort_when", "name", "arrives"):
        plain = getattr(PLAIN_REQUEST, field)
        if getattr(request, field) != plain:
            yield replace(request, **{field: plain})
    prompt = request.prompt
    if len(prompt) > 1:
        yield replace(request, prompt=prompt[: len(prompt) // 2])
        yield replace(request, prompt=prompt[:-1])
    if any(prompt):
        yield replace(request, prompt=(0,) * len(prompt))
    for key, value in request.params.items():
        if key != "max_tokens":
            yield replace(request, params={k: v for k, v in request.params.items() if k != key})
        elif value is None or value > 1:
            for fewer in (1, (value or 4) // 2, (value or 4) - 1):
                if max(fewer, request.params.get("min_tokens", 0)) == fewer:
                    yield replace(request, params={**request.params, key: fewer})
        if isinstance(value, list) and len(value) > 1:
            yield from (replace(request, params={**request.params, key: [one]}) for one in value)


def simpler_limits(case: Case) -> Iterator[Case]:
    for field in ("max_num_batched_tokens", "max_num_seqs", "slots", "max_model_len"):
        for value in (1, 2, 4, 8, 16, 32):
            if value < getattr(case, field):
                longest = max((len(r.prompt) + (r.params["max_tokens"] or 1) for r in case.requests), default=2)
                if field != "max_model_len" or value >= longest:
                    yield replace(case, **{field: value})
    for field, plain in (("policy", "fcfs"), ("step_order", "stall_free"), ("chunked", True), ("threshold", 0)):
        if getattr(case, field) != plain:
            yield replace(case, **{field: plain})
    if case.attention != "reference":
        yield replace(case, attention="reference")
    for own in fields(ModelSpec):
        value, plain = getattr(case.model, own.name), getattr(PLAIN_MODEL, own.name)
        if value != plain and own.name not in ("kind", "vocab_size", "heads", "kv_heads", "std", "seed"):
            yield replace(case, model=replace(case.model, **{own.name: plain}))
