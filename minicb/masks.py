"""Who may look at whom: same sequence, and key position <= query position. (Chapter 2)

Four masks, from the plainest to the one rule that covers them all. A mask is a bool tensor with a row
for each query and a column for each key; True = may look. Positions count from 0 within a sequence,
whenever and in whatever company a token was computed.

The masks do not know what a request, a cache or a batch is: they are told numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from minicb.seams import seam


@seam("2.1")
def causal_mask(num_tokens: int) -> Tensor:
    """A whole sequence at once: each token sees itself and everything before it.

    returns: bool [num_tokens, num_tokens], a lower triangle
    """
    return torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril()


@seam("2.2")
def chunk_mask(num_queries: int, num_keys: int) -> Tensor:
    """The newest `num_queries` tokens of a sequence of `num_keys`; the older keys come from the cache.

    returns: bool [num_queries, num_keys], the bottom rows of the causal square. Row 0 is *not* position 0:
    a staircase from the top-left corner (torch's own `is_causal`) would forget the prompt.
    """
    query_pos = torch.arange(num_keys - num_queries, num_keys)
    key_pos = torch.arange(num_keys)
    return key_pos[None, :] <= query_pos[:, None]


@seam("2.3")
def block_mask(lengths: Sequence[int]) -> Tensor:
    """Several whole sequences laid end to end: a causal triangle for each, nothing between them.

    lengths: tokens of each sequence
    returns: bool [sum(lengths), sum(lengths)]
    """
    mask: Tensor = torch.block_diag(*[causal_mask(n) for n in lengths])
    return mask.bool()


@seam("2.4")
def visible(q_pos: Tensor, q_seq: Tensor, k_pos: Tensor, k_seq: Tensor) -> Tensor:
    """The one rule: a query sees a key of the same sequence that does not lie in its future.

    q_pos, q_seq: int [T]   position of each query in its sequence, and which sequence that is
    k_pos, k_seq: int [S]   the same for the keys
    returns: bool [T, S]
    """
    same = q_seq[:, None] == k_seq[None, :]
    past = k_pos[None, :] <= q_pos[:, None]
    return same & past


def within_window(q_pos: Tensor, k_pos: Tensor, window: int) -> Tensor:
    """Sliding-window attention: a query sees only the newest `window` positions, itself included.

    q_pos: int [T]   k_pos: int [S]   returns: bool [T, S]
    """
    return k_pos[None, :] > q_pos[:, None] - window
