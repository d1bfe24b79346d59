"""Wrong and right answers to the exercises of chapter 07, but for the step's (`ch07_step.py`), as a learner would
write them."""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False
# ruff: noqa: ARG001

from __future__ import annotations

# --- 7.1 may_join


def join_when_full(num_running, max_num_seqs, budget_left):
    return num_running <= max_num_seqs and budget_left > 0


def join_by_either(num_running, max_num_seqs, budget_left):
    return num_running < max_num_seqs or budget_left > 0


def join_by_slots_only(num_running, max_num_seqs, budget_left):
    return num_running < max_num_seqs


def join_turned_round(num_running, max_num_seqs, budget_left):
    return num_running >= max_num_seqs or budget_left <= 0


def join_when_nobody_runs(num_running, max_num_seqs, budget_left):
    return num_running == 0 and budget_left > 0


def join_but_keep_one_free(num_running, max_num_seqs, budget_left):
    return num_running + 1 < max_num_seqs and budget_left > 0


def join_but_keep_a_token(num_running, max_num_seqs, budget_left):
    return num_running < max_num_seqs and budget_left > 1


def join_paying_the_running_again(num_running, max_num_seqs, budget_left):
    return num_running < max_num_seqs and budget_left > num_running


def join_as_a_number(num_running, max_num_seqs, budget_left):
    return min(max_num_seqs - num_running, budget_left)


def join_with_the_bare_number(num_running, max_num_seqs, budget_left):
    return num_running < max_num_seqs and budget_left


def join_unless(num_running, max_num_seqs, budget_left):
    return not (num_running >= max_num_seqs or budget_left <= 0)


def join_step_by_step(num_running, max_num_seqs, budget_left):
    if num_running >= max_num_seqs:
        return False
    return budget_left >= 1


# --- 7.2 plan_running


def plan_greedily(uncomputed, budget):
    counts = []
    for wanted in uncomputed:
        counts.append(min(wanted, budget))
        budget -= counts[-1]
    return counts


def plan_until_it_is_spent(uncomputed, budget):
    counts = []
    for wanted in uncomputed:
        if budget == 0:
            break
        counts.append(min(wanted, budget))
        budget -= counts[-1]
    return counts


def plan_without_paying(uncomputed, budget):
    return [min(wanted, budget) for wanted in uncomputed]


def plan_all_that_can_be_spared(uncomputed, budget):
    counts = []
    for place in range(len(uncomputed)):
        counts.append(budget - (len(uncomputed) - place - 1))
        budget -= counts[-1]
    return counts


def plan_reserving_all_that_is_wanted_behind(uncomputed, budget):
    counts = []
    for place, wanted in enumerate(uncomputed):
        counts.append(min(wanted, budget - sum(uncomputed[place + 1 :])))
        budget -= counts[-1]
    return counts


def plan_without_a_budget(uncomputed, budget):
    return list(uncomputed)


def plan_one_each(uncomputed, budget):
    return [1] * len(uncomputed)


def plan_equal_shares(uncomputed, budget):
    return [max(1, min(wanted, budget // len(uncomputed))) for wanted in uncomputed]


def plan_dealt_round(uncomputed, budget):
    counts = [0] * len(uncomputed)
    while budget and counts != list(uncomputed):
        for i, wanted in enumerate(uncomputed):
            if budget and counts[i] < wanted:
                counts[i] += 1
                budget -= 1
    return counts


def plan_reserving_one_too_many(uncomputed, budget):
    counts = []
    for place, wanted in enumerate(uncomputed):
        counts.append(max(1, min(wanted, budget - (len(uncomputed) - place))))
        budget -= counts[-1]
    return counts


def plan_reserving_one_too_few(uncomputed, budget):
    counts = []
    for place, wanted in enumerate(uncomputed):
        behind = len(uncomputed) - place - 2
        counts.append(min(wanted, budget - max(0, behind)))
        budget -= counts[-1]
    return counts


def plan_reserving_for_everybody(uncomputed, budget):
    counts = []
    for wanted in uncomputed:
        counts.append(max(1, min(wanted, budget - (len(uncomputed) - 1))))
        budget -= counts[-1]
    return counts


def plan_from_the_back(uncomputed, budget):
    counts = []
    for place, wanted in enumerate(reversed(uncomputed)):
        counts.append(min(wanted, budget - (len(uncomputed) - place - 1)))
        budget -= counts[-1]
    return counts[::-1]


def plan_shortest_first(uncomputed, budget):
    counts = [0] * len(uncomputed)
    order = sorted(range(len(uncomputed)), key=lambda i: uncomputed[i])
    for place, i in enumerate(order):
        counts[i] = min(uncomputed[i], budget - (len(order) - place - 1))
        budget -= counts[i]
    return counts


def plan_only_what_fits_whole(uncomputed, budget):
    counts = []
    for place, wanted in enumerate(uncomputed):
        behind = len(uncomputed) - place - 1
        counts.append(wanted if wanted <= budget - behind else 1)
        budget -= counts[-1]
    return counts


def plan_reserving_without_paying(uncomputed, budget):
    counts = []
    for place, wanted in enumerate(uncomputed):
        behind = len(uncomputed) - place - 1
        counts.append(min(wanted, budget - behind))
    return counts


def plan_greedily_but_one_at_least(uncomputed, budget):
    counts = []
    for wanted in uncomputed:
        counts.append(max(1, min(wanted, budget)))
        budget -= counts[-1]
    return counts


def plan_one_each_and_then_in_order(uncomputed, budget):
    counts = [1] * len(uncomputed)
    spare = budget - len(counts)
    for i, wanted in enumerate(uncomputed):
        more = min(wanted - 1, spare)
        counts[i] += more
        spare -= more
    return counts


def plan_by_counting_down(uncomputed, budget):
    counts, behind = [], len(uncomputed)
    for wanted in uncomputed:
        behind -= 1
        taken = min(budget - behind, wanted)
        counts += [taken]
        budget = budget - taken
    return counts


# --- 7.3 finish_reason


def ends_one_late(num_output, max_output, *, stopped):
    if stopped:
        return "stop"
    return "length" if num_output > max_output else None


def ends_one_early(num_output, max_output, *, stopped):
    if stopped:
        return "stop"
    return "length" if num_output + 1 >= max_output else None


def ends_by_length_first(num_output, max_output, *, stopped):
    if num_output >= max_output:
        return "length"
    return "stop" if stopped else None


def ends_only_by_length(num_output, max_output, *, stopped):
    return "length" if num_output >= max_output else None


def ends_when_both(num_output, max_output, *, stopped):
    if stopped and num_output >= max_output:
        return "stop"
    return None


def ends_always(num_output, max_output, *, stopped):
    return "stop" if stopped else "length"


def ends_turned_round(num_output, max_output, *, stopped):
    if not stopped:
        return "stop"
    return "length" if num_output >= max_output else None


def ends_below_the_limit(num_output, max_output, *, stopped):
    if stopped:
        return "stop"
    return "length" if num_output < max_output else None


def ends_always_with_stop(num_output, max_output, *, stopped):
    if stopped or num_output >= max_output:
        return "stop"
    return None


def ends_as_true_or_false(num_output, max_output, *, stopped):
    return stopped or num_output >= max_output


def ends_with_an_empty_text(num_output, max_output, *, stopped):
    if stopped:
        return "stop"
    return "length" if num_output >= max_output else ""


def ends_with_the_word_none(num_output, max_output, *, stopped):
    if stopped:
        return "stop"
    return "length" if num_output >= max_output else "None"


def ends_as_running(num_output, max_output, *, stopped):
    if stopped:
        return "stop"
    return "length" if num_output >= max_output else "running"


def ends_by_ifs(num_output, max_output, *, stopped):
    if stopped:
        reason = "stop"
    elif num_output == max_output:
        reason = "length"
    else:
        reason = None
    return reason


def ends_goes_on_first(num_output, max_output, *, stopped):
    if num_output < max_output and not stopped:
        return None
    return "stop" if stopped else "length"


# --- 7.5 response_ratio


def ratio_of_waiting_alone(waited_tokens, size):
    return waited_tokens / size


def ratio_without_dividing(waited_tokens, size):
    return float(waited_tokens + size)


def ratio_as_the_wait(waited_tokens, size):
    return float(waited_tokens)


def ratio_upside_down(waited_tokens, size):
    return size / (waited_tokens + size)


def ratio_without_brackets(waited_tokens, size):
    return waited_tokens + size / size


def ratio_as_shortest_first(waited_tokens, size):
    return 1 / size


def ratio_in_whole_numbers(waited_tokens, size):
    return (waited_tokens + size) // size


def ratio_by_the_wait(waited_tokens, size):
    return (waited_tokens + size) / waited_tokens


def ratio_as_a_product(waited_tokens, size):
    return float((waited_tokens + size) * size)


def ratio_as_a_share(waited_tokens, size):
    return waited_tokens / (waited_tokens + size)


def ratio_rounded(waited_tokens, size):
    return float(round((waited_tokens + size) / size))


def ratio_as_one_and_the_rest(waited_tokens, size):
    return 1 + waited_tokens / size


def ratio_in_two_lines(waited_tokens, size):
    time_in_all = waited_tokens + size
    return float(time_in_all) / float(size)
