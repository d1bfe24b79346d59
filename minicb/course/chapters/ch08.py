"""Exercises of chapter 08: how long people waited, and the budget that follows from it."""

from __future__ import annotations

from collections.abc import Iterator

from minicb.course.chapters import ch08_answers as answers
from minicb.course.measuring import chosen_budget, same_latencies
from minicb.course.spec import Case, Chapter, Dice, Exercise, Twin


def latency_cases(dice: Dice) -> Iterator[Case]:
    """Times in quarters of a second: exact in a float, so that nothing depends on rounding."""
    for tokens in dice.lengths(high=7):
        arrival = now = dice.number(0, 40) / 4
        times = []
        for _ in range(tokens):
            now += dice.number(1, 12) / 4
            times.append(now)
        yield Case((arrival, times), f"{tokens} tokens, arrival at {arrival:g} s")


def budget_cases(dice: Dice) -> Iterator[Case]:
    """Budgets in any order; the gaps mostly grow with them, as measured ones do."""
    for count in dice.lengths(high=6):
        budgets = sorted({8 * dice.number(1, 40) for _ in range(count)}, key=lambda _: dice.number(0, 99))
        gaps = {budget: (budget + 8 * dice.number(0, 15)) / 8 for budget in budgets}
        limit = gaps[budgets[dice.number(0, len(budgets) - 1)]] if gaps and dice.number(0, 2) else dice.number(1, 40)
        if gaps and dice.number(0, 5) == 0:
            limit = min(gaps.values()) / 2  # none keeps it
        yield Case((gaps, limit), f"{len(gaps)} budgets, a limit of {limit:g} s", raises=not gaps)


LATENCIES = Exercise(
    id="8.1",
    kind="C",
    minutes=5,
    importance="every number that a benchmark prints begins here",
    tiny=Case((10.0, [12.0, 13.0, 15.0]), "arrival at 10, tokens at 12, 13 and 15"),
    cases=latency_cases,
    twins=(
        Twin(
            answers.latencies_by_the_clock_on_the_wall,
            "that is when the first token came, not how long it took: count from the arrival.",
        ),
        Twin(
            answers.latencies_with_the_first_wait_as_a_gap,
            "the wait for the first token is no gap between two tokens: n tokens have n - 1 gaps.",
        ),
        Twin(
            answers.latencies_all_from_the_arrival,
            "your gaps all begin at the arrival. A gap lies between a token and the one right before it.",
        ),
        Twin(
            answers.latencies_all_from_the_first_token,
            "your gaps all begin at the first token. A gap lies between a token and the one right before it.",
        ),
        Twin(
            answers.latencies_to_the_last_token,
            "that is the time to the last token (end to end). TTFT ends with the first one.",
        ),
        Twin(answers.latencies_backwards, "your gaps are negative: later minus earlier."),
        Twin(
            answers.latencies_as_one_mean,
            "that is the mean of the gaps (TPOT). A mean hides the one long gap that people notice: return them all.",
        ),
        Twin(
            answers.latencies_as_one_sum,
            "that is the sum of the gaps. Return each: whoever asks for the longest needs them all.",
        ),
        Twin(
            answers.latencies_as_the_longest_gap,
            "that is only the longest gap. Return them all; others want the median, or the sum.",
        ),
        Twin(
            answers.latencies_that_need_a_token,
            "a request can end before its first token (it was aborted): then the answer is (None, ()).",
        ),
        Twin(
            answers.latencies_zero_for_nothing,
            "without a token there is no TTFT, and 0 would be the best of all: None says that there is none.",
        ),
        Twin(
            answers.latencies_none_at_all,
            "without a token two things are still returned: None for the TTFT, and no gaps, ().",
        ),
        Twin(answers.latencies_turned_round, "first the TTFT, then the gaps."),
        Twin(
            answers.latencies_without_the_last_gap,
            "the last gap is missing: n tokens have n - 1 gaps.",
        ),
        Twin(
            answers.latencies_with_the_ttft_backwards,
            "your TTFT is negative: the first token's time minus the arrival's, later minus earlier.",
        ),
        Twin(
            answers.latencies_with_a_gap_before_the_first_token,
            "there is a gap too many: at i = 0 the index i - 1 is -1, which is the *last* token. Begin at 1.",
        ),
        Twin(
            answers.latencies_with_a_gap_after_the_last_token,
            "the last token has no next one: n tokens have n - 1 gaps.",
        ),
        Twin(
            answers.latencies_as_pairs_of_times,
            "these are pairs of times. A gap is their difference, later minus earlier.",
        ),
        Twin(
            answers.latencies_only_the_first,
            "two things are returned: the TTFT, and the gaps between the tokens.",
        ),
    ),
    right=(answers.latencies_by_a_loop, answers.latencies_by_places, answers.latencies_as_a_list),
    question="Four tokens came. How many gaps are there between them, and where does the first of these begin?",
    steps=(
        "No token yet: there is no TTFT and there are no gaps.",
        "TTFT is from the arrival to the first token, however long the request had to queue.",
        "The gaps are between neighbours; itertools.pairwise gives each token with the next one.",
    ),
    why="all gaps and no mean: a stream that stalls for a second has the same mean as one that flows.",
    in_engine=same_latencies,
)

CHOOSE_BUDGET = Exercise(
    id="8.2",
    kind="F",
    minutes=6,
    importance="the one knob of continuous batching, set by a measurement",
    tiny=Case(({8: 1.0, 16: 2.0, 32: 4.0}, 3.0), "gaps of 1, 2 and 4 s with budgets of 8, 16 and 32, a limit of 3 s"),
    cases=budget_cases,
    twins=(
        Twin(
            answers.budget_of_the_shortest_gap,
            "the shortest gap always wants the smallest budget. The limit says what is good enough: take the largest "
            "budget that keeps it.",
        ),
        Twin(answers.budget_the_largest_of_all, "you never look at the limit."),
        Twin(
            answers.budget_the_smallest_that_keeps_it,
            "that is the smallest budget that keeps the limit; the largest one reads prompts in fewer steps.",
        ),
        Twin(answers.budget_strictly_below_the_limit, "a gap as long as the limit keeps it: <=, not <."),
        Twin(
            answers.budget_that_breaks_the_limit,
            "your budgets are those that break the limit: a gap keeps it if it is not longer.",
        ),
        Twin(
            answers.budget_without_a_way_out,
            "when no budget keeps the limit there is nothing to take the max of: then it is the smallest of all.",
        ),
        Twin(
            answers.budget_none_if_none_keeps_it,
            "when no budget keeps the limit an engine must still run with one: the smallest, which misses it least.",
        ),
        Twin(
            answers.budget_the_largest_if_none_keeps_it,
            "when no budget keeps the limit, the largest misses it most: take the smallest.",
        ),
        Twin(
            answers.budget_with_the_longest_gap_that_keeps_it,
            "you compare the gaps of the budgets that keep the limit; compare the budgets. Measured gaps do not always "
            "grow with them.",
        ),
        Twin(answers.budget_as_its_gap, "that is a gap in seconds; wanted is the budget it belongs to, in tokens."),
        Twin(
            answers.budget_up_to_the_first_that_breaks_it,
            "you stop at the first budget that breaks the limit; a larger one may keep it, as measurements are noisy.",
        ),
        Twin(
            answers.budget_the_last_that_was_measured,
            "you take the last one in the order of the dict. Budgets may have been measured in any order.",
        ),
        Twin(
            answers.budget_by_comparing_it_with_the_limit,
            "you compare tokens with seconds: it is the gap that the limit is about.",
        ),
        Twin(
            answers.budget_the_first_that_keeps_it,
            "you return the first budget that keeps the limit; look at all of them and take the largest.",
        ),
        Twin(answers.budget_with_its_gap, "that is a budget with its gap; only the budget is wanted."),
        Twin(
            answers.budget_nothing_for_nothing,
            "nothing was measured, so there is nothing to choose from: raise a ValueError instead of returning None.",
        ),
    ),
    right=(answers.budget_from_the_largest_down, answers.budget_by_a_running_best),
    question="Two budgets keep the limit. Which of them reads a long prompt in fewer steps?",
    steps=(
        "Collect the budgets whose longest gap is at most the limit.",
        "Of these the largest one.",
        "If there are none, the smallest of all that were measured. min() of nothing raises a ValueError by itself.",
    ),
    why="large budgets are free until somebody's stream stalls; so start from what people notice, not from the budget.",
    in_engine=chosen_budget,
)

CHAPTER = Chapter(8, "Measure, tune, graduate", (25, 35), (LATENCIES, CHOOSE_BUDGET))
