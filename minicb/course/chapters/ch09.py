"""Exercises of chapter 09: who waits, how long at most, and for whom."""

from __future__ import annotations

from collections.abc import Iterator

from minicb import metrics, policy  # noqa: F401 - its seams are the exercises
from minicb.course import waiting
from minicb.course.chapters import ch09_answers as answers
from minicb.course.spec import Case, Chapter, Dice, Exercise, Twin


def aging_cases(dice: Dice) -> Iterator[Case]:
    for size in dice.lengths(low=1, high=300):
        arrival, aging = dice.number(0, 200) / 8, dice.number(0, 40) / 4
        yield Case((size, arrival, aging), f"{size} tokens, {aging:g} tokens a second")


def latest_cases(dice: Dice) -> Iterator[Case]:
    for size in dice.lengths(low=1, high=300):
        other, arrival, aging = dice.number(1, 300), dice.number(0, 200) / 8, dice.number(1, 40) / 4
        yield Case((size, arrival, other, aging), f"sizes {size} and {other}, {aging:g} tokens a second")


def charge_cases(dice: Dice) -> Iterator[Case]:
    for tokens in dice.lengths(high=200):
        counter, price, weight = dice.number(0, 8000) / 8, float(dice.number(1, 3)), dice.number(1, 16) / 4
        yield Case((counter, tokens, price, weight), f"{tokens} tokens, weight {weight:g}")


def lift_cases(dice: Dice) -> Iterator[Case]:
    for waiting_ones in dice.lengths(high=5):
        others = [dice.number(0, 8000) / 8 for _ in range(waiting_ones)]
        counter = dice.number(0, 6000) / 8 if dice.number(0, 3) else 0.0
        yield Case((counter, others), f"{waiting_ones} others wait")


def choice_cases(dice: Dice) -> Iterator[Case]:
    for requests in dice.lengths(low=1, high=8):
        names = ["fcfs", "shortest", "aged", "hrrn"][: dice.number(2, 4)]
        ttft = {name: [dice.number(0, 24) / 2 for _ in range(requests)] for name in names}
        longest = sorted(max(waits) for waits in ttft.values())
        patience = longest[dice.number(0, len(names) - 1)] - dice.number(0, 1) / 4
        limit = ttft[names[0]][0]
        about = f"{len(names)} policies, {requests} requests, limit {limit:g} s, patience {patience:g} s"
        yield Case((ttft, limit, patience), about)


AGED_SIZE = Exercise(
    id="9.1",
    kind="F",
    minutes=5,
    importance="one line between shortest-first and first come, first served",
    tiny=Case((6, 10.0, 2.0), "6 tokens, came at 10 s, 2 tokens a second"),
    cases=aging_cases,
    twins=(
        Twin(
            answers.aging_by_the_clock,
            "there is no `now` here, and none is needed: -aging * now is the same for everybody. Leave it out.",
        ),
        Twin(
            answers.aging_newest_first,
            "the later one comes, the lower its key: it goes before everybody. Multiply the brackets out: minus minus.",
        ),
        Twin(answers.aging_never, "that is the size alone: nobody ages, and a long one may wait for ever."),
        Twin(
            answers.aging_without_the_size,
            "the size has vanished, so the order is that of arrival. Who has fewer tokens must still count.",
        ),
        Twin(answers.aging_without_the_knob, "the knob does nothing: aging_tokens_per_s turns seconds into tokens."),
        Twin(
            answers.aging_divided,
            "tokens per second times seconds are tokens: multiply. Divided, more aging would age less.",
        ),
        Twin(
            answers.aging_the_size,
            "you multiply the size by the aging. It is the seconds that have to be turned into tokens.",
        ),
        Twin(
            answers.aging_both,
            "a factor on the whole key changes no order: your knob does nothing. It belongs to the seconds only.",
        ),
        Twin(
            answers.aging_by_a_factor, "that is a product of all three. The size is a sum: its own, and what it ages."
        ),
        Twin(answers.aging_largest_first, "the lowest key is next, so yours takes the largest first: turn the sign."),
        Twin(
            answers.aging_down_to_nothing,
            "an aged size may be below zero. Cut off there, all who waited long would be equal; and mind the sign.",
        ),
        Twin(answers.aging_rounded, "rounded, requests become equal that are not. Keep the fraction."),
        Twin(
            answers.aging_as_a_pair, "a pair compares sizes first and arrivals only in a tie. Make one number of both."
        ),
    ),
    right=(answers.aging_in_two_lines, answers.aging_from_time_zero),
    question="Of size - aging * (now - arrival), which part is the same for all who wait?",
    steps=(
        "Multiply the brackets out: three terms.",
        "One of them contains now. It is the same for everybody and decides nothing.",
        "Add up the other two, with their signs.",
    ),
    pieces=("size", "+ aging_tokens_per_s", "* arrival_s", "return"),
    why="the order of two never changes while they wait, so a key is computed once and a heap may keep it.",
    in_engine=waiting.aged_order,
)

LATEST_OVERTAKER = Exercise(
    id="9.2",
    kind="F",
    minutes=6,
    importance="what aging promises",
    tiny=Case((20, 3.0, 8, 4.0), "20 tokens came at 3 s; another has 8; 4 tokens a second"),
    cases=latest_cases,
    twins=(
        Twin(answers.latest_multiplied, "tokens divided by tokens per second are seconds: divide."),
        Twin(
            answers.latest_as_a_duration,
            "that is how much later it may come. At which time is that? Count from the other one's arrival.",
        ),
        Twin(
            answers.latest_the_wrong_way_round,
            "the wrong way round: the shorter one may come later. It has its own size less to wait off.",
        ),
        Twin(
            answers.latest_without_the_other,
            "a request of 0 tokens could come as late as that. The overtaker's own size is part of its key.",
        ),
        Twin(answers.latest_without_the_size, "the size of the one that is overtaken is missing."),
        Twin(answers.latest_all_divided, "you divide the arrival as well: only the tokens have to become seconds."),
        Twin(answers.latest_without_brackets, "division comes before subtraction: put brackets round the difference."),
        Twin(answers.latest_by_the_sum, "the difference of the two sizes counts, not their sum."),
        Twin(
            answers.latest_not_divided,
            "those are tokens. Both sides of the equation have to be divided by the aging to get a time.",
        ),
        Twin(
            answers.latest_never_before,
            "a longer one must have come earlier to go first, so the answer may lie before the arrival.",
        ),
        Twin(answers.latest_in_whole_seconds, "// throws the fraction of a second away. Use /."),
        Twin(answers.latest_upside_down, "upside down: the difference of the sizes, divided by the aging."),
        Twin(answers.latest_as_a_yes, "that says whether it is shorter. Asked is a time: until when?"),
    ),
    right=(answers.latest_by_the_keys, answers.latest_in_two_lines),
    question="At which time of arrival would the other one's key be exactly as high as this one's?",
    steps=(
        "Write down both keys by 9.1; the other one's arrival is what you look for.",
        "Whoever has the lower key goes first, so the limit is where they are equal.",
        "Solve it for the other one's arrival.",
    ),
    pieces=("arrival_s", "+ (size", "- other_size)", "/ aging_tokens_per_s", "return"),
    why="nobody who comes after that can pass, whatever the load: starvation has become impossible.",
    in_engine=waiting.bound_is_sharp,
)

CHARGE = Exercise(
    id="9.3",
    kind="F",
    minutes=4,
    importance="what a client has had so far",
    tiny=Case((10.0, 6, 2.0, 3.0), "counter 10, 6 tokens at a price of 2, weight 3"),
    cases=charge_cases,
    twins=(
        Twin(
            answers.charge_times_the_weight,
            "a heavy client would pay more and get less. With weight 2 the same tokens cost half.",
        ),
        Twin(answers.charge_without_the_weight, "the weight is missing: all clients would get the same."),
        Twin(answers.charge_without_the_price, "the price is missing: a written token must cost more than a read one."),
        Twin(
            answers.charge_without_the_counter, "that is the new charge alone. What was served before must not be lost."
        ),
        Twin(answers.charge_downwards, "the counter falls: who has been served would be next again. It goes up."),
        Twin(answers.charge_all_divided, "you divide the old counter as well, again and again. Only the new part."),
        Twin(answers.charge_price_added, "the price is of one token: multiply."),
        Twin(answers.charge_price_divided, "an expensive token would cost less. Multiply by the price."),
        Twin(
            answers.charge_in_whole_tokens, "// throws a fraction away in every step, always the same client's. Use /."
        ),
        Twin(answers.charge_for_one_token, "that is the price of one token. How many were they?"),
        Twin(answers.charge_the_larger, "the larger of the two: add the new charge to what there was."),
        Twin(answers.charge_nothing, "the counter stands still, so nobody is ever charged."),
    ),
    right=(answers.charge_in_two_lines, answers.charge_a_token_at_a_time),
    question="Six tokens at a price of 2: what do they cost, and what if their client has a weight of 3?",
    steps=(
        "What the tokens cost: how many, times the price of one.",
        "For a client with weight 3 it counts a third.",
        "It comes on top of the old counter.",
    ),
    pieces=("counter", "+ price", "* tokens", "/ weight", "return"),
    why="the lowest counter is next, so whoever has had less gets more: no client needs to know of the others.",
    in_engine=waiting.shares_kept,
)

LIFT = Exercise(
    id="9.4",
    kind="F",
    minutes=6,
    importance="silence earns no credit",
    tiny=Case((2.0, [9.0, 5.0]), "counter 2; 9 and 5 wait"),
    cases=lift_cases,
    twins=(
        Twin(
            answers.lift_nobody,
            "whoever was silent for an hour comes back with a low counter, and all others wait an hour for it.",
        ),
        Twin(
            answers.lift_to_the_highest,
            "lifted to the highest it would be last of all: a penalty for silence. To the lowest of the others.",
        ),
        Twin(
            answers.lift_or_lower,
            "a counter must never fall: whoever has had much could go silent for a moment and start anew.",
        ),
        Twin(answers.lift_down, "yours only goes down; a lift goes up."),
        Twin(answers.lift_without_a_default, "what if nobody else waits? Then the counter stays what it was."),
        Twin(
            answers.lift_to_the_average,
            "the average is above the lowest: somebody who waits would be served before it.",
        ),
        Twin(answers.lift_by_so_much, "up TO the lowest of the others, not BY it."),
        Twin(
            answers.lift_new_ones_only,
            "only newcomers are lifted in yours. Whoever comes back after a pause has credit as well.",
        ),
        Twin(answers.lift_to_the_first, "the others are in no order; the lowest of them counts, not the first."),
        Twin(answers.lift_to_zero, "that wipes the counter out: everybody would stop for a moment to be served first."),
        Twin(
            answers.lift_forgetting_it_when_alone,
            "when nobody waits the counter is lost. It stays: others may come a moment later.",
        ),
        Twin(
            answers.lift_half_way, "half of the credit is still credit: after a long silence it is as bad as all of it."
        ),
    ),
    right=(answers.lift_by_ifs, answers.lift_by_sorting),
    question="The others have 9 and 5. With which counter are you neither before all of them nor behind one?",
    steps=(
        "Of the others only the lowest matters: it is next.",
        "Up to it, but never down.",
        "If there is nobody else, nothing changes: min has a default.",
    ),
    pieces=("max(counter,", "min(others,", "default=counter))", "return"),
    why="without it a client could save up an hour of silence and then block all others for as long.",
    in_engine=waiting.no_credit,
)

CHOOSE_POLICY = Exercise(
    id="9.5",
    kind="F",
    minutes=8,
    importance="a promise for the many, and one for the last",
    tiny=Case(({"fcfs": [5, 5, 6], "shortest": [1, 1, 9], "aged": [1, 5, 7]}, 4, 8), "limit 4 s, patience 8 s"),
    cases=choice_cases,
    twins=(
        Twin(
            answers.choice_by_the_limit_only,
            "the most within the limit, whatever becomes of the last one. Leave out whoever breaks the patience first.",
        ),
        Twin(
            answers.choice_by_the_longest_only,
            "the shortest longest wait counts only if nobody keeps the patience. Among those who do, count the limit.",
        ),
        Twin(answers.choice_by_the_mean, "asked is not the mean: count the requests whose wait is within the limit."),
        Twin(answers.choice_with_little_patience, "a wait of exactly the patience is not longer than it: <=."),
        Twin(answers.choice_below_the_limit, "a wait of exactly the limit is within it: <=."),
        Twin(
            answers.choice_without_a_way_out,
            "what if no policy keeps the patience? One has to be chosen all the same: the shortest longest wait.",
        ),
        Twin(
            answers.choice_of_nobody,
            "None is no policy, and an engine needs one: if nobody keeps the patience, the shortest longest wait.",
        ),
        Twin(answers.choice_of_the_latest, "you count those who wait longer than the limit: the wrong way round."),
        Twin(
            answers.choice_of_the_first_that_will_do,
            "the first that keeps the patience need not be the best of those who do. Count the limit in each.",
        ),
        Twin(
            answers.choice_by_the_limit_at_last,
            "when nobody keeps the patience, the limit no longer counts: take the shortest longest wait.",
        ),
        Twin(
            answers.choice_of_the_last_equal, "of equals the one that was named first, yours takes the last: > not >=."
        ),
        Twin(
            answers.choice_by_the_average_patience,
            "patience is about the longest wait, not about the average: nobody may wait longer.",
        ),
        Twin(answers.choice_of_all_that_will_do, "those are all that keep the patience. Choose one of them: its name."),
    ),
    right=(answers.choice_in_one_loop, answers.choice_by_sorting),
    question="Which of the policies are out at once, because somebody waits too long?",
    steps=(
        "Keep the policies whose longest wait is within the patience.",
        "If none is left: the one with the shortest longest wait.",
        "Else count for each that is left how many waits are within the limit; of equals max takes the first.",
    ),
    why="two numbers, one for the many and one for the last: with the first alone somebody is always given up.",
    in_engine=waiting.kept_promises,
)

CHAPTER = Chapter(
    9, "Who waits? Tail latency and fairness", (45, 60), (AGED_SIZE, LATEST_OVERTAKER, CHARGE, LIFT, CHOOSE_POLICY)
)
