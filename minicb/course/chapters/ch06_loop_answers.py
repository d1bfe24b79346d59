"""Wrong and right answers to exercise 6.4 of chapter 06, written as a learner would.

The wrong ones (*twins*) are the well-known mistakes, named after what they do; `ch06.py` has the advice for
each. Two different right answers an exercise must pass, so that a check judges what a function does and not how.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False
# ruff: noqa: ARG001, RET503

from __future__ import annotations

import torch

# --- 6.4 attend_ragged


def loop_that_ends_after_the_first(q, k, v, mask, k_cache, v_cache, spans):
    from minicb.cache import attend_with_cache

    out = torch.zeros_like(q)
    for span in spans:
        own, seen = span.rows, mask[span.rows, span.columns]
        out[own] = attend_with_cache(q[own], k[own], v[own], seen, k_cache, v_cache, span.slots)
        return out


def loop_that_keeps_the_last(q, k, v, mask, k_cache, v_cache, spans):
    from minicb.cache import attend_with_cache

    for span in spans:
        own, seen = span.rows, mask[span.rows, span.columns]
        out = attend_with_cache(q[own], k[own], v[own], seen, k_cache, v_cache, span.slots)
    return out


def loop_into_a_list(q, k, v, mask, k_cache, v_cache, spans):
    from minicb.cache import attend_with_cache

    out = []
    for span in spans:
        own, seen = span.rows, mask[span.rows, span.columns]
        out.append(attend_with_cache(q[own], k[own], v[own], seen, k_cache, v_cache, span.slots))
    return out


def loop_stacking_the_parts(q, k, v, mask, k_cache, v_cache, spans):
    from minicb.cache import attend_with_cache

    out = []
    for span in spans:
        own, seen = span.rows, mask[span.rows, span.columns]
        out.append(attend_with_cache(q[own], k[own], v[own], seen, k_cache, v_cache, span.slots))
    return torch.stack(out)


def loop_with_every_column(q, k, v, mask, k_cache, v_cache, spans):
    from minicb.cache import attend_with_cache

    out = torch.empty_like(q)
    for span in spans:
        own = span.rows
        out[own] = attend_with_cache(q[own], k[own], v[own], mask[own], k_cache, v_cache, span.slots)
    return out


def loop_with_columns_from_the_first(q, k, v, mask, k_cache, v_cache, spans):
    from minicb.cache import attend_with_cache

    out = torch.empty_like(q)
    for span in spans:
        own = span.rows
        seen = mask[own, : len(span.slots)]
        out[own] = attend_with_cache(q[own], k[own], v[own], seen, k_cache, v_cache, span.slots)
    return out


def loop_with_rows_and_columns_swapped(q, k, v, mask, k_cache, v_cache, spans):
    from minicb.cache import attend_with_cache

    out = torch.empty_like(q)
    for span in spans:
        own, seen = span.rows, mask[span.columns, span.rows]
        out[own] = attend_with_cache(q[own], k[own], v[own], seen, k_cache, v_cache, span.slots)
    return out


def loop_with_everything_visible(q, k, v, mask, k_cache, v_cache, spans):
    from minicb.cache import attend_with_cache

    out = torch.empty_like(q)
    for span in spans:
        own = span.rows
        seen = torch.ones(len(q[own]), len(span.slots), dtype=torch.bool)
        out[own] = attend_with_cache(q[own], k[own], v[own], seen, k_cache, v_cache, span.slots)
    return out


def loop_with_all_the_queries(q, k, v, mask, k_cache, v_cache, spans):
    from minicb.cache import attend_with_cache

    out = torch.empty_like(q)
    for span in spans:
        own, seen = span.rows, mask[span.rows, span.columns]
        out[own] = attend_with_cache(q, k, v, seen, k_cache, v_cache, span.slots)
    return out


def loop_with_all_the_new_keys(q, k, v, mask, k_cache, v_cache, spans):
    from minicb.cache import attend_with_cache

    out = torch.empty_like(q)
    for span in spans:
        own, seen = span.rows, mask[span.rows, span.columns]
        out[own] = attend_with_cache(q[own], k, v, seen, k_cache, v_cache, span.slots)
    return out


def loop_with_k_and_v_cut_by_columns(q, k, v, mask, k_cache, v_cache, spans):
    from minicb.cache import attend_with_cache

    out = torch.empty_like(q)
    for span in spans:
        own, seen = span.rows, mask[span.rows, span.columns]
        out[own] = attend_with_cache(q[own], k[span.columns], v[span.columns], seen, k_cache, v_cache, span.slots)
    return out


def loop_cutting_the_cache(q, k, v, mask, k_cache, v_cache, spans):
    from minicb.cache import attend_with_cache

    out = torch.empty_like(q)
    for span in spans:
        own, seen = span.rows, mask[span.rows, span.columns]
        out[own] = attend_with_cache(q[own], k[own], v[own], seen, k_cache[span.slots], v_cache[span.slots], span.slots)
    return out


def loop_adding_parts_up(q, k, v, mask, k_cache, v_cache, spans):
    from minicb.cache import attend_with_cache

    out = torch.zeros_like(q)
    for span in spans:
        own, seen = span.rows, mask[span.rows, span.columns]
        out += attend_with_cache(q[own], k[own], v[own], seen, k_cache, v_cache, span.slots)
    return out


def loop_that_never_writes(q, k, v, mask, k_cache, v_cache, spans):
    from minicb.attention import attend

    out = torch.empty_like(q)
    for span in spans:
        own, seen = span.rows, mask[span.rows, span.columns]
        out[own] = attend(q[own], k_cache[span.slots], v_cache[span.slots], seen)
    return out


def loop_without_the_cache(q, k, v, mask, k_cache, v_cache, spans):
    from minicb.attention import attend

    out = torch.empty_like(q)
    for span in spans:
        own, seen = span.rows, mask[span.rows, span.columns]
        out[own] = attend(q[own], k[own], v[own], seen)
    return out


def loop_adding_on_top(q, k, v, mask, k_cache, v_cache, spans):
    from minicb.cache import attend_with_cache

    for span in spans:
        own, seen = span.rows, mask[span.rows, span.columns]
        q[own] = attend_with_cache(q[own], k[own], v[own], seen, k_cache, v_cache, span.slots)
    return q


def loop_joined_at_the_end(q, k, v, mask, k_cache, v_cache, spans):
    from minicb.cache import attend_with_cache

    parts = []
    for span in spans:
        own, seen = span.rows, mask[span.rows, span.columns]
        parts.append(attend_with_cache(q[own], k[own], v[own], seen, k_cache, v_cache, span.slots))
    return torch.cat(parts)


def loop_writing_everything_first(q, k, v, mask, k_cache, v_cache, spans):
    from minicb.attention import attend

    for span in spans:
        new = span.slots[len(span.slots) - len(q[span.rows]) :]
        k_cache[new], v_cache[new] = k[span.rows], v[span.rows]
    out = torch.zeros_like(q)
    for span in spans:
        seen = mask[span.rows, span.columns]
        out[span.rows] = attend(q[span.rows], k_cache[span.slots], v_cache[span.slots], seen)
    return out


def all_at_once_under_one_mask(q, k, v, mask, k_cache, v_cache, spans):
    """Right in every value, and what this chapter sets out to avoid: only the count of cells gives it away."""
    from minicb.attention import attend

    for span in spans:
        new = span.slots[len(span.slots) - len(q[span.rows]) :]
        k_cache[new], v_cache[new] = k[span.rows], v[span.rows]
    slots = torch.cat([span.slots for span in spans])
    return attend(q, k_cache[slots], v_cache[slots], mask)
