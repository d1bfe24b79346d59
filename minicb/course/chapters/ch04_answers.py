"""Wrong and right answers to exercises 4.1 and 4.2, written as a learner would.

The wrong ones (*twins*) are the well-known mistakes, named after what they do; `ch04.py` has the advice for
each. Two different right answers an exercise must pass, so that a check judges what a function does and not how.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False
# ruff: noqa: ARG001

from __future__ import annotations

import math

# --- 4.1 next_chunk


def next_chunk_without_budget(num_tokens, num_computed, budget):
    return num_tokens - num_computed


def next_chunk_always_full(num_tokens, num_computed, budget):
    return budget


def next_chunk_of_the_whole_text(num_tokens, num_computed, budget):
    return min(num_tokens, budget)


def next_chunk_of_the_larger(num_tokens, num_computed, budget):
    return max(num_tokens - num_computed, budget)


def next_chunk_up_to_its_end(num_tokens, num_computed, budget):
    return min(num_computed + budget, num_tokens)


def next_chunk_of_computed_ones(num_tokens, num_computed, budget):
    return min(num_computed, budget)


def next_chunk_turned_round(num_tokens, num_computed, budget):
    return min(num_computed - num_tokens, budget)


def next_chunk_never_empty(num_tokens, num_computed, budget):
    return max(1, min(num_tokens - num_computed, budget))


def next_chunk_of_the_rest_of_a_division(num_tokens, num_computed, budget):
    return (num_tokens - num_computed) % budget


def next_chunk_in_even_shares(num_tokens, num_computed, budget):
    left = num_tokens - num_computed
    if left == 0 or budget == 0:
        return 0
    return math.ceil(left / math.ceil(left / budget))


def next_chunk_all_or_nothing(num_tokens, num_computed, budget):
    left = num_tokens - num_computed
    return left if left <= budget else 0


def next_chunk_from_a_budget_for_the_request(num_tokens, num_computed, budget):
    return max(0, min(num_tokens, budget) - num_computed)


def next_chunk_left_for_later(num_tokens, num_computed, budget):
    return num_tokens - num_computed - budget


def next_chunk_with_the_examples_budget(num_tokens, num_computed, budget):
    return min(num_tokens - num_computed, 3)


def next_chunk_and_all_the_others(num_tokens, num_computed, budget):
    sizes = []
    while num_computed < num_tokens and budget > 0:
        sizes.append(min(num_tokens - num_computed, budget))
        num_computed += sizes[-1]
    return sizes


def next_chunk_by_if(num_tokens, num_computed, budget):
    left = num_tokens - num_computed
    if left > budget:
        return budget
    return left


def next_chunk_by_slicing(num_tokens, num_computed, budget):
    positions = list(range(num_tokens))
    return len(positions[num_computed:][:budget])


# --- 4.2 next_span


def span_that_always_samples(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return num_computed, end, True


def span_that_never_samples(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return num_computed, end, False


def span_sampled_where_the_chunk_is_short(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return num_computed, end, end - num_computed < budget


def span_sampled_where_the_chunk_is_full(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return num_computed, end, end - num_computed == budget


def span_sampled_at_the_last_position(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return num_computed, end, end == num_tokens - 1


def span_sampled_at_the_first_chunk(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return num_computed, end, num_computed == 0


def span_sampled_until_the_end(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return num_computed, end, end < num_tokens


def span_with_a_count_for_an_end(num_tokens, num_computed, budget):
    count = min(num_tokens - num_computed, budget)
    return num_computed, count, num_computed + count == num_tokens


def span_compared_with_the_count(num_tokens, num_computed, budget):
    count = min(num_tokens - num_computed, budget)
    return num_computed, num_computed + count, count == num_tokens


def span_up_to_the_last_one(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return num_computed, end - 1, end == num_tokens


def span_with_one_too_many(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return num_computed, end + 1, end == num_tokens


def span_counted_from_the_end(num_tokens, num_computed, budget):
    end = num_tokens + min(num_tokens - num_computed, budget)
    return num_computed, end, end == num_tokens


def span_from_the_front(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return 0, end, end == num_tokens


def span_one_further(num_tokens, num_computed, budget):
    start = num_computed + 1
    end = min(start + budget, num_tokens)
    return start, end, end == num_tokens


def span_without_budget(num_tokens, num_computed, budget):
    return num_computed, num_tokens, True


def span_past_the_end(num_tokens, num_computed, budget):
    end = num_computed + budget
    return num_computed, end, end >= num_tokens


def span_by_min(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return num_computed, end, not end < num_tokens


def span_by_what_is_left(num_tokens, num_computed, budget):
    left = num_tokens - num_computed
    if left <= budget:
        return num_computed, num_tokens, True
    return num_computed, num_computed + budget, False
