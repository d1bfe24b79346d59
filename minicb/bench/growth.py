"""How a decode step grows with the batch and with the context, beside what the machine itself can do.

    limits = measure_machine(model)
    grow_batch(model, (1, 2, 4), context=64)

A decode step reads every weight once, whatever the batch, and each request's cache. So tokens/s rise with the batch
until the products or the caches take the time. The limits are measured in the same minute: a read of memory that does
not fit into any cache, and a product of large matrices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from minicb.batch import Chunk, Plan
from minicb.cache import KVCache, SlotPool
from minicb.kernels import best_attention
from minicb.model import Model
from minicb.request import Limits, Request, open_request
from minicb.sampling import SamplingParams
from minicb.step import run_plan

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
CONTEXTS = (64, 256, 1024, 4096)
READ_BYTES = 1 << 29  # larger than the caches of any processor
PRODUCT = 2048  # rows and columns


@dataclass(frozen=True, slots=True)
class Machine:
    """What the machine can do, and what the model asks of it in each step."""

    read_bytes_per_s: float
    flops_per_s: float
    weight_bytes: int  # read in every step: the layers and the head
    weight_flops: int  # of a token: two for each of these weights

    @property
    def alone_s(self) -> float:
        """The shortest time in which all weights can be read: no token comes faster than that, alone."""
        return self.weight_bytes / self.read_bytes_per_s

    def tokens_per_s(self, batch: int) -> float:
        """The roofline: memory limits a small batch, the products a large one."""
        return min(batch / self.alone_s, self.flops_per_s / self.weight_flops)


@dataclass(frozen=True, slots=True)
class Point:
    """One measured decode step: the median, the fastest and the slowest, in seconds."""

    batch: int
    context: int
    step_s: float
    fastest_s: float
    slowest_s: float

    @property
    def tokens_per_s(self) -> float:
        return self.batch / self.step_s


def measure_machine(model: Model) -> Machine:
    """Read speed, of a sum or of a product with one vector, and multiplication speed in the model's type."""
    numbers = torch.ones(READ_BYTES // 4 // PRODUCT, PRODUCT, device=model.device)
    square = torch.ones(PRODUCT, PRODUCT, dtype=model.dtype, device=model.device)
    sum_s, dot_s = best(lambda: float(numbers.sum()), model), best(lambda: float((numbers @ numbers[0])[0]), model)
    product_s = best(lambda: float((square @ square)[0, 0]), model)
    weights = weights_read(model)
    element = model.dtype.itemsize
    return Machine(READ_BYTES / min(sum_s, dot_s), 2 * PRODUCT**3 / product_s, weights * element, 2 * weights)


def weights_read(model: Model) -> int:
    """Weights that one token's step multiplies with: the products of every layer and the head."""
    c = model.config
    qkv = c.hidden_size * (c.num_heads + 2 * c.num_kv_heads) * c.head_dim
    layer = qkv + c.num_heads * c.head_dim * c.hidden_size + 3 * c.hidden_size * c.intermediate_size
    return c.num_layers * layer + c.hidden_size * c.vocab_size


def grow_batch(model: Model, batches: Sequence[int] = BATCHES, context: int = 64) -> list[Point]:
    """Decode steps of more and more requests of one length."""
    return [measure_step(model, batch, context) for batch in batches]


def grow_context(model: Model, contexts: Sequence[int] = CONTEXTS, batch: int = 8) -> list[Point]:
    """Decode steps of requests that are longer and longer."""
    return [measure_step(model, batch, context) for context in contexts]


def measure_step(model: Model, batch: int, context: int, repeats: int = 7) -> Point:
    """Time a step in which `batch` requests, each with `context` tokens, write their next one."""
    pool = SlotPool(batch, context)
    cache = KVCache(model.config, batch + 1, context, model.device, model.dtype)
    cache.k.normal_()  # as after reading a prompt; zeros would never be brought into memory
    cache.v.normal_()
    attention = best_attention(model)
    limits = Limits(model.config.vocab_size, context + 1, frozenset())
    chunks = []
    for i in range(batch):
        request = writing(i, context, limits)
        pool.reserve(request.request_id, context)
        chunks.append(Chunk(request, context - 1, 1, samples=True))
    plan = Plan(tuple(chunks))
    with torch.inference_mode():
        times = timed(lambda: run_plan(plan, pool, model, cache, attention), model, repeats)
    return Point(batch, context, median(times), min(times), max(times))


def writing(number: int, context: int, limits: Limits) -> Request:
    """A request whose tokens are all computed but the last."""
    ids = [(7 * number + i) % limits.vocab_size for i in range(context)]
    request = open_request(str(number), ids, SamplingParams(max_tokens=1), limits, None, 0, 0.0)
    request.num_computed_tokens = context - 1
    return request


def timed(work: Callable[[], object], model: Model, repeats: int) -> list[float]:
    """Seconds of each repeat, after two that warm up."""
    times = []
    for turn in range(repeats + 2):
        wait(model)
        began = time.perf_counter()
        work()
        wait(model)
        if turn >= 2:
            times.append(time.perf_counter() - began)
    return times


def best(work: Callable[[], object], model: Model) -> float:
    return min(timed(work, model, 5))


def wait(model: Model) -> None:
    """A GPU works on its own; time means nothing before it is done."""
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
