"""Wrong and right answers to the exercises of chapter 09, written as a learner would.

The wrong ones (*twins*) are the well-known mistakes, named after what they do; `ch09.py` has the advice for
each. Two different right answers an exercise must pass, so that a check judges what a function does and not how.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False
# ruff: noqa: ARG001, F821

from __future__ import annotations

# --- 9.1 aged_size


def aging_by_the_clock(size, arrival_s, aging_tokens_per_s):
    return size - aging_tokens_per_s * (now - arrival_s)


def aging_newest_first(size, arrival_s, aging_tokens_per_s):
    return size - aging_tokens_per_s * arrival_s


def aging_never(size, arrival_s, aging_tokens_per_s):
    return size


def aging_without_the_size(size, arrival_s, aging_tokens_per_s):
    return aging_tokens_per_s * arrival_s


def aging_without_the_knob(size, arrival_s, aging_tokens_per_s):
    return size + arrival_s


def aging_divided(size, arrival_s, aging_tokens_per_s):
    return size + arrival_s / aging_tokens_per_s


def aging_the_size(size, arrival_s, aging_tokens_per_s):
    return aging_tokens_per_s * size + arrival_s


def aging_both(size, arrival_s, aging_tokens_per_s):
    return aging_tokens_per_s * (size + arrival_s)


def aging_by_a_factor(size, arrival_s, aging_tokens_per_s):
    return size * aging_tokens_per_s * arrival_s


def aging_largest_first(size, arrival_s, aging_tokens_per_s):
    return -(size + aging_tokens_per_s * arrival_s)


def aging_down_to_nothing(size, arrival_s, aging_tokens_per_s):
    return max(0, size - aging_tokens_per_s * arrival_s)


def aging_rounded(size, arrival_s, aging_tokens_per_s):
    return float(round(size + aging_tokens_per_s * arrival_s))


def aging_as_a_pair(size, arrival_s, aging_tokens_per_s):
    return size, aging_tokens_per_s * arrival_s


def aging_in_two_lines(size, arrival_s, aging_tokens_per_s):
    late = arrival_s * aging_tokens_per_s
    return late + size


def aging_from_time_zero(size, arrival_s, aging_tokens_per_s):
    now = 0  # the same for everybody, so any will do
    return size - aging_tokens_per_s * (now - arrival_s)


# --- 9.2 latest_overtaker


def latest_multiplied(size, arrival_s, other_size, aging_tokens_per_s):
    return arrival_s + (size - other_size) * aging_tokens_per_s


def latest_as_a_duration(size, arrival_s, other_size, aging_tokens_per_s):
    return (size - other_size) / aging_tokens_per_s


def latest_the_wrong_way_round(size, arrival_s, other_size, aging_tokens_per_s):
    return arrival_s + (other_size - size) / aging_tokens_per_s


def latest_without_the_other(size, arrival_s, other_size, aging_tokens_per_s):
    return arrival_s + size / aging_tokens_per_s


def latest_without_the_size(size, arrival_s, other_size, aging_tokens_per_s):
    return arrival_s + other_size / aging_tokens_per_s


def latest_all_divided(size, arrival_s, other_size, aging_tokens_per_s):
    return (arrival_s + size - other_size) / aging_tokens_per_s


def latest_without_brackets(size, arrival_s, other_size, aging_tokens_per_s):
    return arrival_s + size - other_size / aging_tokens_per_s


def latest_by_the_sum(size, arrival_s, other_size, aging_tokens_per_s):
    return arrival_s + (size + other_size) / aging_tokens_per_s


def latest_not_divided(size, arrival_s, other_size, aging_tokens_per_s):
    return size + aging_tokens_per_s * arrival_s - other_size


def latest_never_before(size, arrival_s, other_size, aging_tokens_per_s):
    return max(arrival_s, arrival_s + (size - other_size) / aging_tokens_per_s)


def latest_in_whole_seconds(size, arrival_s, other_size, aging_tokens_per_s):
    return arrival_s + (size - other_size) // aging_tokens_per_s


def latest_upside_down(size, arrival_s, other_size, aging_tokens_per_s):
    return arrival_s + aging_tokens_per_s / (size - other_size)


def latest_as_a_yes(size, arrival_s, other_size, aging_tokens_per_s):
    return size > other_size


def latest_by_the_keys(size, arrival_s, other_size, aging_tokens_per_s):
    key = size + aging_tokens_per_s * arrival_s
    return (key - other_size) / aging_tokens_per_s


def latest_in_two_lines(size, arrival_s, other_size, aging_tokens_per_s):
    head_start = size / aging_tokens_per_s - other_size / aging_tokens_per_s
    return head_start + arrival_s


# --- 9.3 charge


def charge_times_the_weight(counter, tokens, price, weight):
    return counter + price * tokens * weight


def charge_without_the_weight(counter, tokens, price, weight):
    return counter + price * tokens


def charge_without_the_price(counter, tokens, price, weight):
    return counter + tokens / weight


def charge_without_the_counter(counter, tokens, price, weight):
    return price * tokens / weight


def charge_downwards(counter, tokens, price, weight):
    return counter - price * tokens / weight


def charge_all_divided(counter, tokens, price, weight):
    return (counter + price * tokens) / weight


def charge_price_added(counter, tokens, price, weight):
    return counter + (price + tokens) / weight


def charge_price_divided(counter, tokens, price, weight):
    return counter + tokens / price / weight


def charge_in_whole_tokens(counter, tokens, price, weight):
    return counter + price * tokens // weight


def charge_for_one_token(counter, tokens, price, weight):
    return counter + price / weight


def charge_the_larger(counter, tokens, price, weight):
    return max(counter, price * tokens / weight)


def charge_nothing(counter, tokens, price, weight):
    return counter


def charge_in_two_lines(counter, tokens, price, weight):
    counter += tokens / weight * price
    return counter


def charge_a_token_at_a_time(counter, tokens, price, weight):
    return sum([price / weight] * tokens, float(counter))


# --- 9.4 lift


def lift_nobody(counter, others):
    return counter


def lift_to_the_highest(counter, others):
    return max(counter, max(others, default=counter))


def lift_or_lower(counter, others):
    return min(others, default=counter)


def lift_down(counter, others):
    return min(counter, min(others, default=counter))


def lift_without_a_default(counter, others):
    return max(counter, min(others))


def lift_to_the_average(counter, others):
    return max(counter, sum(others) / len(others)) if others else counter


def lift_by_so_much(counter, others):
    return counter + min(others, default=0.0)


def lift_new_ones_only(counter, others):
    return min(others, default=counter) if counter == 0 else counter


def lift_to_the_first(counter, others):
    return max(counter, others[0]) if others else counter


def lift_to_zero(counter, others):
    return 0.0


def lift_forgetting_it_when_alone(counter, others):
    return max(counter, min(others)) if others else 0.0


def lift_half_way(counter, others):
    return max(counter, (counter + min(others)) / 2) if others else counter


def lift_by_ifs(counter, others):
    if not others:
        return counter
    if min(others) > counter:
        counter = min(others)
    return counter


def lift_by_sorting(counter, others):
    lowest_other = sorted(others)[:1]  # an empty list if there is none
    return max([counter, *lowest_other])


# --- 9.5 choose_policy


def choice_by_the_limit_only(ttft_s, limit_s, patience_s):
    return max(ttft_s, key=lambda name: sum(wait <= limit_s for wait in ttft_s[name]))


def choice_by_the_longest_only(ttft_s, limit_s, patience_s):
    return min(ttft_s, key=lambda name: max(ttft_s[name]))


def choice_by_the_mean(ttft_s, limit_s, patience_s):
    patient = [name for name in ttft_s if max(ttft_s[name]) <= patience_s]
    if not patient:
        return min(ttft_s, key=lambda name: max(ttft_s[name]))
    return min(patient, key=lambda name: sum(ttft_s[name]) / len(ttft_s[name]))


def choice_with_little_patience(ttft_s, limit_s, patience_s):
    patient = [name for name in ttft_s if max(ttft_s[name]) < patience_s]
    if not patient:
        return min(ttft_s, key=lambda name: max(ttft_s[name]))
    return max(patient, key=lambda name: sum(wait <= limit_s for wait in ttft_s[name]))


def choice_below_the_limit(ttft_s, limit_s, patience_s):
    patient = [name for name in ttft_s if max(ttft_s[name]) <= patience_s]
    if not patient:
        return min(ttft_s, key=lambda name: max(ttft_s[name]))
    return max(patient, key=lambda name: sum(wait < limit_s for wait in ttft_s[name]))


def choice_without_a_way_out(ttft_s, limit_s, patience_s):
    patient = [name for name in ttft_s if max(ttft_s[name]) <= patience_s]
    return max(patient, key=lambda name: sum(wait <= limit_s for wait in ttft_s[name]))


def choice_of_nobody(ttft_s, limit_s, patience_s):
    patient = [name for name in ttft_s if max(ttft_s[name]) <= patience_s]
    return max(patient, key=lambda name: sum(wait <= limit_s for wait in ttft_s[name]), default=None)


def choice_of_the_latest(ttft_s, limit_s, patience_s):
    patient = [name for name in ttft_s if max(ttft_s[name]) <= patience_s]
    if not patient:
        return min(ttft_s, key=lambda name: max(ttft_s[name]))
    return max(patient, key=lambda name: sum(wait > limit_s for wait in ttft_s[name]))


def choice_of_the_first_that_will_do(ttft_s, limit_s, patience_s):
    for name, waits in ttft_s.items():
        if max(waits) <= patience_s:
            return name
    return min(ttft_s, key=lambda name: max(ttft_s[name]))


def choice_by_the_limit_at_last(ttft_s, limit_s, patience_s):
    patient = [name for name in ttft_s if max(ttft_s[name]) <= patience_s]
    return max(patient or ttft_s, key=lambda name: sum(wait <= limit_s for wait in ttft_s[name]))


def choice_of_the_last_equal(ttft_s, limit_s, patience_s):
    best, most = None, -1
    for name, waits in ttft_s.items():
        kept = sum(wait <= limit_s for wait in waits)
        if max(waits) <= patience_s and kept >= most:
            best, most = name, kept
    return best or min(ttft_s, key=lambda name: max(ttft_s[name]))


def choice_by_the_average_patience(ttft_s, limit_s, patience_s):
    patient = [name for name in ttft_s if sum(ttft_s[name]) / len(ttft_s[name]) <= patience_s]
    if not patient:
        return min(ttft_s, key=lambda name: max(ttft_s[name]))
    return max(patient, key=lambda name: sum(wait <= limit_s for wait in ttft_s[name]))


def choice_of_all_that_will_do(ttft_s, limit_s, patience_s):
    return [name for name, waits in ttft_s.items() if max(waits) <= patience_s]


def choice_in_one_loop(ttft_s, limit_s, patience_s):
    best, most = None, -1
    for name, waits in ttft_s.items():
        kept = len([wait for wait in waits if wait <= limit_s])
        if max(waits) <= patience_s and kept > most:
            best, most = name, kept
    if best is None:
        best = min(ttft_s, key=lambda name: max(ttft_s[name]))
    return best


def choice_by_sorting(ttft_s, limit_s, patience_s):
    def rank(name):
        longest = max(ttft_s[name])
        if longest > patience_s:
            return (1, longest)
        return (0, -sum(1 for wait in ttft_s[name] if wait <= limit_s))

    in_order = sorted(ttft_s, key=rank)
    return next(iter(in_order))
