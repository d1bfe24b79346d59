"""Exercises of chapter 07: continuous batching. Who joins, who gets how much, who ends, the step, a fairer order."""

from __future__ import annotations

from collections.abc import Iterator

from minicb import policy, scheduler, step  # noqa: F401 - their seams are the exercises
from minicb.course import serving
from minicb.course.chapters import ch07_answers as answers
from minicb.course.chapters.ch07_step import RUN_PLAN
from minicb.course.spec import Case, Chapter, Dice, Exercise, Twin


def join_case(num_running: int, max_num_seqs: int, budget_left: int) -> Case:
    about = f"{num_running} of at most {max_num_seqs} running, budget left {budget_left}"
    return Case((num_running, max_num_seqs, budget_left), about)


def join_cases(dice: Dice) -> Iterator[Case]:
    for running in dice.lengths(high=5):
        yield join_case(running, max(1, running + dice.number(0, 2)), dice.number(0, running + 2))


def plan_cases(dice: Dice) -> Iterator[Case]:
    """Mostly decoding, some in the middle of a prompt; the budget is always enough for a token each."""
    for requests in dice.lengths(high=6):
        wanted = [dice.number(1, 9) if dice.number(0, 1) else 1 for _ in range(requests)]
        budget = max(1, requests + dice.number(0, 9))
        yield Case((wanted, budget), f"uncomputed {wanted}, budget {budget}")


def finish_case(num_output: int, max_output: int, *, stopped: bool) -> Case:
    about = f"{num_output} of at most {max_output} tokens, {'stopped' if stopped else 'not stopped'}"
    return Case((num_output, max_output), about, kwargs={"stopped": stopped})


def finish_cases(dice: Dice) -> Iterator[Case]:
    for left in dice.lengths(high=3):
        written = dice.number(1, 6)
        yield finish_case(written, written + left, stopped=dice.number(0, 2) == 0)


def ratio_cases(dice: Dice) -> Iterator[Case]:
    for size in dice.lengths(low=1, high=30):
        waited = dice.number(0, 90)
        yield Case((waited, size), f"{waited} tokens waited, {size} to compute")


MAY_JOIN = Exercise(
    id="7.1",
    kind="W",
    minutes=4,
    importance="the line that makes batching continuous",
    tiny=join_case(2, 3, 5),
    cases=join_cases,
    twins=(
        Twin(
            answers.join_when_full,
            "all places are taken, and you let one more in. Fewer must run than may: < and not <=.",
        ),
        Twin(answers.join_by_either, "one of the two is enough in yours. A newcomer needs a place and a token: and."),
        Twin(
            answers.join_by_slots_only,
            "with 0 tokens left you let one in, and nothing can be computed for it. At least one must be left.",
        ),
        Twin(answers.join_turned_round, "yours says when a request may not join. True means it may."),
        Twin(
            answers.join_when_nobody_runs,
            "you wait until nobody runs: that serves one at a time. A free place is enough.",
        ),
        Twin(
            answers.join_but_keep_one_free,
            "you keep a place free for ever: 2 of at most 3 running leaves room for one.",
        ),
        Twin(answers.join_but_keep_a_token, "one token left is enough to begin with: a chunk may be as small as that."),
        Twin(
            answers.join_paying_the_running_again,
            "budget_left is what the running ones have left over: they need not be paid again.",
        ),
        Twin(
            answers.join_with_the_bare_number,
            "budget_left is a number, and so is your answer. Ask whether it is more than 0.",
        ),
        Twin(answers.join_as_a_number, "the question is whether one may join, not how many: True or False."),
    ),
    right=(answers.join_unless, answers.join_step_by_step),
    question="Three may run and three do. May a fourth join? And which of < and <= says so?",
    steps=(
        "There must be a free place: fewer run than may.",
        "There must be a token of the budget left, one is enough.",
        "Both must hold.",
    ),
    pieces=("num_running < max_num_seqs", "and", "budget_left > 0", "return"),
    why="it is asked again in every step, so a place that becomes free is filled in the very next one.",
    in_engine=serving.limits_kept,
)

PLAN_RUNNING = Exercise(
    id="7.2",
    kind="F",
    minutes=10,
    importance="nobody's stream stalls",
    tiny=Case(([1, 3, 9, 1], 8), "uncomputed [1, 3, 9, 1], budget 8"),
    cases=plan_cases,
    twins=(
        Twin(
            answers.plan_greedily,
            "whoever stands in front takes all, and those behind get 0. Hold back one token for each one behind.",
        ),
        Twin(
            answers.plan_until_it_is_spent,
            "your list ends when the budget does; everybody needs a number, and at least 1.",
        ),
        Twin(
            answers.plan_without_paying,
            "everybody is offered the whole budget; take off what was given before you go on.",
        ),
        Twin(
            answers.plan_reserving_without_paying,
            "you think of those behind, but nobody pays: take off what was given before you go on.",
        ),
        Twin(
            answers.plan_greedily_but_one_at_least,
            "the ones behind get their 1 from nothing: the sum passes the budget. Hold it back before you give.",
        ),
        Twin(
            answers.plan_all_that_can_be_spared,
            "you give all that can be spared, wanted or not: nobody takes more than its uncomputed tokens.",
        ),
        Twin(
            answers.plan_reserving_all_that_is_wanted_behind,
            "you hold back all that those behind want. One token each is enough: they get the rest later.",
        ),
        Twin(answers.plan_without_a_budget, "everybody gets what it wants; together they may not pass the budget."),
        Twin(
            answers.plan_one_each,
            "one token each, and the rest of the budget lies idle. Who needs more gets more, in order.",
        ),
        Twin(
            answers.plan_equal_shares,
            "equal shares leave over what the small ones do not need. In order: the first gets all that it needs.",
        ),
        Twin(
            answers.plan_dealt_round,
            "you deal tokens round and round. In order: one prompt is read as fast as possible, then the next.",
        ),
        Twin(
            answers.plan_reserving_one_too_many,
            "you hold back one token too many: one for each that stands behind, none for itself.",
        ),
        Twin(
            answers.plan_reserving_one_too_few,
            "you hold back one token too few: behind place 0 of 3 stand 2, the last one included.",
        ),
        Twin(
            answers.plan_reserving_for_everybody,
            "you always hold back for all the others. Those in front have theirs already: only those behind count.",
        ),
        Twin(answers.plan_from_the_back, "you begin at the back. The first in the list is served first."),
        Twin(answers.plan_shortest_first, "you serve the shortest first. Here the order is that of the list."),
        Twin(
            answers.plan_only_what_fits_whole,
            "what does not fit whole gets 1 token, and the rest lies idle. Give it as much as there is: a chunk.",
        ),
    ),
    right=(answers.plan_one_each_and_then_in_order, answers.plan_by_counting_down),
    question="Budget 8, and [20, 1, 1] wait for tokens in this order. How many may the first one take?",
    steps=(
        "Go through the list in order, and keep the tokens that are left.",
        "Count how many stand behind: one token is theirs, each.",
        "Give what is wanted, but no more than what is left without those.",
        "Take it off, and go on.",
    ),
    why="a step costs what it computes, and everybody waits for it: the budget is the longest wait between two tokens.",
    in_engine=serving.limits_kept,
)

FINISH_REASON = Exercise(
    id="7.3",
    kind="C",
    minutes=4,
    importance="who leaves, and when",
    tiny=finish_case(3, 3, stopped=False),
    cases=finish_cases,
    twins=(
        Twin(answers.ends_one_late, "at its limit yours goes on: with 3 of at most 3 written there is no fourth."),
        Twin(answers.ends_one_early, "one token too few: the newest token is counted already."),
        Twin(
            answers.ends_by_length_first,
            "an answer that stops with its very last token has ended by itself: stop wins over length.",
        ),
        Twin(answers.ends_only_by_length, "an answer may end before its limit: look at stopped too."),
        Twin(answers.ends_when_both, "either is enough to end an answer; you ask for both."),
        Twin(
            answers.ends_below_the_limit,
            "your comparison is turned round: it is at its limit when num_output has reached max_output.",
        ),
        Twin(
            answers.ends_always_with_stop,
            "an answer that was cut off at its limit did not stop by itself: its reason is length.",
        ),
        Twin(answers.ends_always, "yours ends every answer at once. None means: it goes on."),
        Twin(answers.ends_turned_round, "stopped is turned round: when it is True the reason is stop."),
        Twin(
            answers.ends_as_true_or_false,
            "True and False say that it ends, not why. The caller wants the word, or None.",
        ),
        Twin(answers.ends_with_an_empty_text, "an empty text is a reason as well. None means that there is none."),
        Twin(answers.ends_with_the_word_none, "that is the text 'None'. Without quotes it means that there is none."),
        Twin(answers.ends_as_running, "a request that goes on has no reason to end: None."),
    ),
    right=(answers.ends_by_ifs, answers.ends_goes_on_first),
    question="The newest token is the end id, and it is also the last one that fits. Which word is true of the answer?",
    steps=(
        "Has it stopped by itself? That comes first.",
        "Has it as many tokens as it may have?",
        "If neither: None.",
    ),
    why="whoever ends leaves within the same step: place and tokens are free for the next plan.",
    in_engine=serving.ends_right,
)

RESPONSE_RATIO = Exercise(
    id="7.5",
    kind="F",
    minutes=5,
    importance="a fairer order among those who wait",
    tiny=Case((6, 3), "6 tokens waited, 3 to compute"),
    cases=ratio_cases,
    twins=(
        Twin(
            answers.ratio_of_waiting_alone,
            "that is 0 for a newcomer. Count its own tokens as well: a ratio of 1 means that it did not wait.",
        ),
        Twin(answers.ratio_without_dividing, "that is a sum, and the long ones win. As a multiple of its own size."),
        Twin(
            answers.ratio_as_the_wait,
            "whoever waited longest is next: that is first come, first served. Where does its size come in?",
        ),
        Twin(answers.ratio_upside_down, "upside down: whoever waits longer must get a higher number."),
        Twin(answers.ratio_without_brackets, "division comes before addition: put brackets round the sum."),
        Twin(
            answers.ratio_as_shortest_first,
            "the shortest is always next, however long another has waited: waiting must count.",
        ),
        Twin(answers.ratio_in_whole_numbers, "// throws the fraction away, and many requests become equal. Use /."),
        Twin(answers.ratio_by_the_wait, "you divide by the wait; it is a multiple of the request's own size."),
        Twin(answers.ratio_as_a_product, "that is a product. A multiple of its own size: divide."),
        Twin(answers.ratio_as_a_share, "that is the share of waiting in the whole. Divide by its own size instead."),
        Twin(answers.ratio_rounded, "rounded, many requests become equal, and the order is lost. Keep the fraction."),
    ),
    right=(answers.ratio_as_one_and_the_rest, answers.ratio_in_two_lines),
    question="A request of 4 tokens had to wait for 8. How many times as long as alone has it taken?",
    steps=(
        "Alone it would take its own size.",
        "Here it takes the waiting and its own size.",
        "How many times the first is that?",
    ),
    pieces=("(waited_tokens", "+ size)", "/ size", "return"),
    why="of two that have waited equally long the shorter is next; and every ratio grows, so nobody waits for ever.",
    in_engine=serving.fair_order,
)

CHAPTER = Chapter(
    7,
    "Continuous batching",
    (60, 70),
    (MAY_JOIN, PLAN_RUNNING, FINISH_REASON, RUN_PLAN, RESPONSE_RATIO),
)
