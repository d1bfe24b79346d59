"""Wrong and right answers to the exercises of chapter 08, written as a learner would.

The wrong ones (*twins*) are the well-known mistakes, named after what they do; `ch08.py` has the advice for
each. Two different right answers an exercise must pass, so that a check judges what a function does and not how.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False
# ruff: noqa: ARG001, PERF401, RUF007

from __future__ import annotations

# --- 8.1 latencies


def latencies_by_the_clock_on_the_wall(arrival_s, token_times_s):
    if not token_times_s:
        return None, ()
    return token_times_s[0], tuple(b - a for a, b in zip(token_times_s, token_times_s[1:], strict=False))


def latencies_with_the_first_wait_as_a_gap(arrival_s, token_times_s):
    if not token_times_s:
        return None, ()
    times = [arrival_s, *token_times_s]
    gaps = tuple(b - a for a, b in zip(times, times[1:], strict=False))
    return gaps[0], gaps


def latencies_all_from_the_arrival(arrival_s, token_times_s):
    if not token_times_s:
        return None, ()
    return token_times_s[0] - arrival_s, tuple(t - arrival_s for t in token_times_s[1:])


def latencies_all_from_the_first_token(arrival_s, token_times_s):
    if not token_times_s:
        return None, ()
    return token_times_s[0] - arrival_s, tuple(t - token_times_s[0] for t in token_times_s[1:])


def latencies_to_the_last_token(arrival_s, token_times_s):
    if not token_times_s:
        return None, ()
    return token_times_s[-1] - arrival_s, tuple(b - a for a, b in zip(token_times_s, token_times_s[1:], strict=False))


def latencies_backwards(arrival_s, token_times_s):
    if not token_times_s:
        return None, ()
    return token_times_s[0] - arrival_s, tuple(a - b for a, b in zip(token_times_s, token_times_s[1:], strict=False))


def latencies_as_one_mean(arrival_s, token_times_s):
    if not token_times_s:
        return None, ()
    gaps = len(token_times_s) - 1
    return token_times_s[0] - arrival_s, (token_times_s[-1] - token_times_s[0]) / gaps if gaps else 0.0


def latencies_as_one_sum(arrival_s, token_times_s):
    if not token_times_s:
        return None, ()
    return token_times_s[0] - arrival_s, token_times_s[-1] - token_times_s[0]


def latencies_as_the_longest_gap(arrival_s, token_times_s):
    if not token_times_s:
        return None, ()
    gaps = [b - a for a, b in zip(token_times_s, token_times_s[1:], strict=False)]
    return token_times_s[0] - arrival_s, max(gaps, default=0.0)


def latencies_that_need_a_token(arrival_s, token_times_s):
    ttft = token_times_s[0] - arrival_s
    return ttft, tuple(b - a for a, b in zip(token_times_s, token_times_s[1:], strict=False))


def latencies_zero_for_nothing(arrival_s, token_times_s):
    if not token_times_s:
        return 0.0, ()
    return token_times_s[0] - arrival_s, tuple(b - a for a, b in zip(token_times_s, token_times_s[1:], strict=False))


def latencies_none_at_all(arrival_s, token_times_s):
    if not token_times_s:
        return None
    return token_times_s[0] - arrival_s, tuple(b - a for a, b in zip(token_times_s, token_times_s[1:], strict=False))


def latencies_turned_round(arrival_s, token_times_s):
    if not token_times_s:
        return (), None
    return tuple(b - a for a, b in zip(token_times_s, token_times_s[1:], strict=False)), token_times_s[0] - arrival_s


def latencies_without_the_last_gap(arrival_s, token_times_s):
    if not token_times_s:
        return None, ()
    gaps = []
    for i in range(1, len(token_times_s) - 1):
        gaps.append(token_times_s[i] - token_times_s[i - 1])
    return token_times_s[0] - arrival_s, tuple(gaps)


def latencies_only_the_first(arrival_s, token_times_s):
    if not token_times_s:
        return None
    return token_times_s[0] - arrival_s


def latencies_with_the_ttft_backwards(arrival_s, token_times_s):
    if not token_times_s:
        return None, ()
    return arrival_s - token_times_s[0], tuple(b - a for a, b in zip(token_times_s, token_times_s[1:], strict=False))


def latencies_with_a_gap_before_the_first_token(arrival_s, token_times_s):
    if not token_times_s:
        return None, ()
    gaps = tuple(token_times_s[i] - token_times_s[i - 1] for i in range(len(token_times_s)))
    return token_times_s[0] - arrival_s, gaps


def latencies_with_a_gap_after_the_last_token(arrival_s, token_times_s):
    if not token_times_s:
        return None, ()
    gaps = tuple(token_times_s[i + 1] - token_times_s[i] for i in range(len(token_times_s)))
    return token_times_s[0] - arrival_s, gaps


def latencies_as_pairs_of_times(arrival_s, token_times_s):
    if not token_times_s:
        return None, ()
    return token_times_s[0] - arrival_s, tuple(zip(token_times_s, token_times_s[1:], strict=False))


def latencies_by_a_loop(arrival_s, token_times_s):
    ttft, gaps, before = None, [], None
    for now in token_times_s:
        if before is None:
            ttft = now - arrival_s
        else:
            gaps.append(now - before)
        before = now
    return ttft, tuple(gaps)


def latencies_as_a_list(arrival_s, token_times_s):
    gaps = [token_times_s[i] - token_times_s[i - 1] for i in range(1, len(token_times_s))]
    return (token_times_s[0] - arrival_s if token_times_s else None), gaps


def latencies_by_places(arrival_s, token_times_s):
    times = [arrival_s, *token_times_s]
    waits = tuple(times[i] - times[i - 1] for i in range(1, len(times)))
    return (waits[0] if waits else None), waits[1:]


# --- 8.2 choose_budget


def budget_of_the_shortest_gap(longest_gap_s, limit_s):
    return min(longest_gap_s, key=longest_gap_s.get)


def budget_the_largest_of_all(longest_gap_s, limit_s):
    return max(longest_gap_s)


def budget_the_smallest_that_keeps_it(longest_gap_s, limit_s):
    kept = [budget for budget, gap in longest_gap_s.items() if gap <= limit_s]
    return min(kept, default=min(longest_gap_s))


def budget_strictly_below_the_limit(longest_gap_s, limit_s):
    kept = [budget for budget, gap in longest_gap_s.items() if gap < limit_s]
    return max(kept, default=min(longest_gap_s))


def budget_that_breaks_the_limit(longest_gap_s, limit_s):
    kept = [budget for budget, gap in longest_gap_s.items() if gap >= limit_s]
    return max(kept, default=min(longest_gap_s))


def budget_without_a_way_out(longest_gap_s, limit_s):
    if not longest_gap_s:
        raise ValueError("measure at least one budget")
    return max([budget for budget, gap in longest_gap_s.items() if gap <= limit_s])


def budget_none_if_none_keeps_it(longest_gap_s, limit_s):
    if not longest_gap_s:
        raise ValueError("measure at least one budget")
    kept = [budget for budget, gap in longest_gap_s.items() if gap <= limit_s]
    return max(kept, default=None)


def budget_the_largest_if_none_keeps_it(longest_gap_s, limit_s):
    kept = [budget for budget, gap in longest_gap_s.items() if gap <= limit_s]
    return max(kept, default=max(longest_gap_s))


def budget_with_the_longest_gap_that_keeps_it(longest_gap_s, limit_s):
    kept = {budget: gap for budget, gap in longest_gap_s.items() if gap <= limit_s}
    return max(kept, key=kept.get) if kept else min(longest_gap_s)


def budget_as_its_gap(longest_gap_s, limit_s):
    kept = [gap for gap in longest_gap_s.values() if gap <= limit_s]
    return max(kept, default=min(longest_gap_s.values()))


def budget_up_to_the_first_that_breaks_it(longest_gap_s, limit_s):
    chosen = min(longest_gap_s)
    for budget in sorted(longest_gap_s):
        if longest_gap_s[budget] > limit_s:
            break
        chosen = budget
    return chosen


def budget_the_last_that_was_measured(longest_gap_s, limit_s):
    chosen = min(longest_gap_s)
    for budget, gap in longest_gap_s.items():
        if gap <= limit_s:
            chosen = budget
    return chosen


def budget_by_comparing_it_with_the_limit(longest_gap_s, limit_s):
    kept = [budget for budget in longest_gap_s if budget <= limit_s]
    return max(kept, default=min(longest_gap_s))


def budget_nothing_for_nothing(longest_gap_s, limit_s):
    if not longest_gap_s:
        return None
    kept = [budget for budget, gap in longest_gap_s.items() if gap <= limit_s]
    return max(kept, default=min(longest_gap_s))


def budget_the_first_that_keeps_it(longest_gap_s, limit_s):
    for budget, gap in longest_gap_s.items():
        if gap <= limit_s:
            return budget
    return min(longest_gap_s)


def budget_with_its_gap(longest_gap_s, limit_s):
    kept = [(budget, gap) for budget, gap in longest_gap_s.items() if gap <= limit_s]
    return max(kept) if kept else min(longest_gap_s.items())


def budget_from_the_largest_down(longest_gap_s, limit_s):
    if not longest_gap_s:
        raise ValueError("no budget was measured")
    for budget in sorted(longest_gap_s, reverse=True):
        if longest_gap_s[budget] <= limit_s:
            return budget
    return min(longest_gap_s)


def budget_by_a_running_best(longest_gap_s, limit_s):
    best = min(longest_gap_s)
    for budget, gap in longest_gap_s.items():
        if gap <= limit_s and budget > best:
            best = budget
    return best
