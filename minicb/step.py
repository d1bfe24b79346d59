"""One step of the model: from a plan to the next token of everybody who is due one. (Chapter 7)

The engine plans before it and commits after it. Here tensors are made, the model runs once for all requests
together, and one token is drawn for each request whose last token was computed.
"""

from __future__ import annotations

from minicb.batch import Plan, pack
from minicb.cache import KVCache, Pool
from minicb.model import Model
from minicb.reference import Attention
from minicb.sampling import Sampled, sample
from minicb.seams import seam


@seam("7.4")
def run_plan(plan: Plan, pool: Pool, model: Model, cache: KVCache, attention: Attention) -> list[Sampled | Exception]:
    """Compute the plan's tokens; returns one result for each request of `plan.sampled`, in that order."""
    batch = pack(plan, pool, model.device)  # ragged tensors
    hidden = model(batch, cache, attention)  # writes new K/V, attends over all of it
    logits = model.logits(hidden[batch.sample_at])  # only the rows somebody will read
    return sample(logits, plan.sampled)  # per-request parameters
