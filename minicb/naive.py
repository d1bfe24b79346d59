"""One token at a time, and nothing is kept: the baseline without a cache. (Chapter 3)

It knows neither model nor engine: whoever calls it says how the next token is found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minicb.seams import seam


@seam("3.1")
def generate_naive(next_token: Callable[[list[int]], int], prompt: Sequence[int], max_tokens: int) -> list[int]:
    """Write an answer token by token; for each, the whole text so far is read again.

    next_token: reads all the ids that it is given and returns the id that comes next
    returns: the `max_tokens` ids of the answer, without the prompt
    """
    text = list(prompt)
    for _ in range(max_tokens):
        text.append(next_token(text))
    return text[len(prompt) :]
