# ruff: noqa: F821, ARG001 - names come from the set-up cell, skeletons are unfinished, a part is broken

# %% [markdown]
# # 09 · Who waits? Tail latency and fairness
#
# **CPU** · no network needed · 45 minutes in a workshop, 60 on your own
#
# Big prompts and tiny ones share your batches. Should the short ones go first, or everybody in turn? On average it is
# easy to look good. This chapter looks at the unlucky ones, gives them a promise, and does the same for customers who
# share an engine.

# %% setup

# %%
start(9)

# %% [markdown]
# ## Before you start: three questions
#
# Answer in your head, then unfold.
#
# 1. B has 18 tokens to read and has waited for 24; C has 3 and has waited for 5. What are their response ratios?
#    (Chapter 07)
# 2. Why did the median of the gaps choose a bad budget? (Chapter 08)
# 3. The budget is 8. Does the order of the *queue* change how long a stream that is already running may stop?
#    (Chapters 07 and 08)

# %% [markdown] folded Answers
# 1. B (24 + 18) / 18 = 2.33, C (5 + 3) / 3 = 2.67. C is next.
# 2. A stall is rare, and a median does not see what is rare.
# 3. No. Whoever runs gets a token in every step, and a step is never larger than the budget. The order decides who
#    *begins*; so this chapter is about the time to the first token.

# %% [markdown]
# ## 9.1 The average is fine
#
# To see rare things you need many requests: a thousand of them, 4.4 a second, as long as those that a code assistant
# gets. The lengths are drawn from the published quantiles of the Azure LLM inference trace 2023 (*code*).
#
# A real model would take a day for it on your processor. So they run through **the engine's own scheduler** and its
# own queue, and only the model is replaced: by a formula that says how long a step would take. It moves the weights
# once and each running request's cache, and does the arithmetic of its tokens; the slower of the two decides.

# %%
from textwrap import fill

from minicb import policy
from minicb.bench.latency import jain, spread
from minicb.course.draw import draw_lines, draw_timeline
from minicb.course.waiting import (
    CLOCK,
    LIMITS,
    aged,
    arrivals,
    draw_passing,
    draw_tails,
    long_one,
    passed_by,
    rush,
    stream,
    table,
    two_clients,
    wait,
)

print(fill(str(CLOCK), 110))
jobs = rush()
lengths = spread([job.prompt for job in jobs])
print(
    f"prompts: median {lengths.p50:,.0f} tokens, p95 {lengths.p95:,.0f}, longest {lengths.max:,.0f}; n = {lengths.n:,}"
)
in_order = wait(jobs, "fcfs")
table({"in order": in_order})

# %% [markdown]
# **p95** is the time that 95 of 100 stay below. Beside every percentile stands n: with a thousand requests the p99
# rests on ten of them, and the maximum on one.
#
# The machine is a little too slow for this rush, so a queue builds up. Half wait for more than eight seconds. That is
# silly, is it not? Most prompts are short, and they queue behind a few long ones. Let the shortest go first.
#
# **Before you run on.** Against *in order*: does the p95 rise or fall? How many seconds does the unluckiest wait now?
# And how many tokens a second does the engine compute, more, fewer or the same?

# %%
predict("9.P1", None)  # "rises" or "falls"
predict("9.P2", None)  # seconds; in order it is 13.5
predict("9.P3", None)  # "more", "fewer" or "the same" (within one per cent)

# %%
shortest = wait(jobs, "shortest_prefill_first")
table({"in order": in_order, "shortest first": shortest})
measured("9.P1", "falls" if shortest.spread.p95 < in_order.spread.p95 else "rises")
measured("9.P2", round(shortest.spread.max, 1))
faster = shortest.tokens_per_s / in_order.tokens_per_s
measured("9.P3", "the same" if abs(faster - 1) < 0.01 else "more" if faster > 1 else "fewer")
draw_tails({"in order": in_order, "shortest first": shortest})

# %% [markdown]
# Read the picture from the left. One request in two waits at least so long, one in five, one in ten, one in a
# thousand. On a dashboard that shows mean, median and p95, shortest first has won everywhere. The right end is not on
# the dashboard: one in fifty waits twice as long as before, and the last one for three minutes.
#
# The last column says why this is not magic. **Order moves waiting from one to another; it creates no capacity.**
# Then who paid?


# %%
def by_size(rows):
    for low, high in ((0, 1_000), (1_000, 4_000), (4_000, 10_000)):
        chosen = [i for i, job in enumerate(jobs) if low < job.prompt <= high]
        print(f"prompts of {low:,} to {high:,} tokens, n = {len(chosen)}")
        for name, waited in rows.items():
            s = spread([waited.first[i] for i in chosen])
            print(f"    {name:<20} mean {s.mean:>5.1f}   p95 {s.p95:>6.1f}   max {s.max:>6.1f} s")


by_size({"in order": in_order, "shortest first": shortest})

# %% [markdown]
# The 170 longest ones paid for everybody. And even of them most were lucky: it is the last few that wait for minutes.
#
# Now look at one person. This is the request that waits longest under *shortest first*: how many that came after it
# have started before it? (In order nobody can, and it waits six seconds.)

# %%
unlucky = shortest.unluckiest
print(f"request {unlucky} came at {jobs[unlucky].at_s:.1f} s with {jobs[unlucky].prompt:,} tokens")
draw_passing({"in order": in_order, "shortest first": shortest}, unlucky, title="The unluckiest request")

# %% [markdown]
# It was not slow, and nothing was wrong with it. It was long, and somebody shorter was always there. It ran when the
# rush was *over*. If the rush had gone on, so had the waiting. This is **starvation**.
#
# ## 9.2 Let waiting count
#
# The remedy is called **aging**. Each second of waiting makes a request smaller, by so many tokens, and the smallest
# is next:
#
#     aged size = size - aging x (now - arrival)
#
# A worked example, with an aging of 2 tokens a second. B has 18 tokens and came at 0 s, C has 3 and came at 10 s:

# %%
print("at   B    C")
for now in (10, 11, 15):
    print(f"{now:<5}{18 - 2 * (now - 0):<5}{3 - 2 * (now - 10)}")

# %% [markdown]
# Both fall, and their *difference* stays what it is: 5. B is smaller, and will be in a minute. So there is no need
# to ask for the time. Multiply out, and leave away what is the same for everybody.

# %% [markdown] heading 9.1
# What is left is the key. It belongs to a request from its arrival on, and never changes. For B above it is 18, for C
# it is 23.

# %% exercise 9.1

# %% check 9.1

# %%
for name, size, arrival in (("B", 18, 0), ("C", 3, 10)):
    print(name, policy.aged_size(size, arrival, 2))

# %% [markdown]
# Two ends of one knob. With an aging of 0 the key is the size: shortest first. With a huge one only the arrival
# counts: first come, first served. Here is the crowd of chapter 07 again, on the tiny engine: one place, B comes with
# 18 tokens, and the others have 3. Time is counted in computed tokens.

# %%
from minicb.course.serving import crowd, order_of, serve

for aging in (0.25, 1.0, 3.0):
    print(f"aging {aging:<5}", *order_of(aged(aging).records))
work, arrive = crowd(shorts=9)
runs = {
    "in order": serve(work, arrive=arrive).records,
    "aged": aged(1.0).records,
    "shortest first": serve(work, arrive=arrive, policy="shortest_prefill_first").records,
}
draw_timeline(runs, order=list(work.requests), title="The same arrivals, and B in the middle")

# %% [markdown]
# And step by step, forward and back (the page opens in any browser, its name is in the last line):

# %%
from minicb.course.player import show_player

show_player({"in order": runs["in order"], "aged": runs["aged"]}, title="In order and aged")

# %% [markdown]
# ### The frontier
#
# Back to the rush, and turn the knob from end to end. The mean and the maximum must move against each other. And the
# p95, that everybody is judged by?
#
# **Before you run on.** At one end it is 5.6 s, at the other 12.5 s. Is there an aging with a p95 *worse than both*?

# %%
predict("9.P4", None)  # "yes" or "no"

# %%
AGINGS = (5, 10, 20, 50, 100, 200, 500, 1_000, 2_000)
swept = {aging: wait(jobs, "sjf_aging", aging) for aging in AGINGS}
orders = {"shortest first": shortest, **{f"aging {aging}": run for aging, run in swept.items()}, "in order": in_order}
table(orders)
ends = max(shortest.spread.p95, in_order.spread.p95)
measured("9.P4", "yes" if max(run.spread.p95 for run in swept.values()) > ends else "no")
draw_lines(
    {
        which: (AGINGS, [getattr(run.spread, which) for run in swept.values()])
        for which in ("mean", "p95", "p99", "max")
    },
    x_label="aging, tokens a second",
    y_label="TTFT, seconds",
    log_x=True,
    log_y=True,
    limit=(in_order.spread.p95, "p95 in order"),
    title="One knob, from shortest first to first come",
    data="shortest first and in order: "
    + "; ".join(
        f"{which} {getattr(shortest.spread, which):.1f} and {getattr(in_order.spread, which):.1f} s"
        for which in ("mean", "p95", "p99", "max")
    ),
)

# %% [markdown]
# There is a hill in the p95. Shortest first lets a few bear everything, and a p95 does not see fewer than five in a
# hundred. Aging shares the waiting out: more requests wait long, none of them for minutes. Count those above 10 s:

# %%
for name in ("shortest first", "aging 50", "aging 200", "in order"):
    late = sum(first > 10 for first in orders[name].first)
    print(f"{name:<16}{late:>4} of 1,000 wait longer than 10 s, the longest {orders[name].spread.max:>6.1f} s")

# %% [markdown]
# Whoever tunes by the p95 alone, and starts from the left, sees it getting worse, and stops. The maximum falls all the
# way. This is what it does for the unluckiest one of 9.1:

# %%
draw_passing(
    {"shortest first": shortest, "aging 200": swept[200], "in order": in_order}, unlucky, title="The same request, aged"
)

# %% [markdown]
# **Change one number.** The rush comes with 3.5 requests a second instead of 4.4. Which order would you choose now?

# %%
calm = rush(rate=3.5)
table({
    "in order": wait(calm),
    "shortest first": wait(calm, "shortest_prefill_first"),
    "aging 200": wait(calm, "sjf_aging", 200),
    "highest ratio": wait(calm, "hrrn"),
})  # fmt: skip

# %% [markdown] folded Answer
# Any. With a short queue there is little to choose, and the means lie within a fraction of a second. But look at the
# maximum: the tail shows it first, even here. A policy is chosen for the bad day.

# %% [markdown]
# ### From the bug museum: young for ever
#
# An aged queue as found in the wild, in our own words. The key is as in the formula, with the time in it; the queue is
# a heap, so that the next one is found quickly. Its tests are green:

# %%
from heapq import heappop, heappush


def exhibit(size, arrival, now):
    return size - 2 * (now - arrival)


def yours(size, arrival, now):
    return policy.aged_size(size, arrival, 2)


def first_out(key, people):
    """Who leaves first, of people (arrival, size) who join a heap as they come."""
    heap = []
    for arrival, size in people:
        heappush(heap, (key(size, arrival, now=arrival), arrival, size))
    return heappop(heap)[1:]


def their_test(key):
    assert first_out(key, [(0, 18), (0, 3)]) == (0, 3)  # the shorter one first
    assert key(18, 0, now=20) < key(3, 20, now=20)  # but whoever has waited long enough goes before it


def colour(test, key):
    try:
        test(key)
    except AssertionError:
        return "red"
    return "green"


print("their test, on the exhibit:", colour(their_test, exhibit))
print("their test, on yours:      ", colour(their_test, yours))

# %% [markdown]
# Write the assertion that is red for the exhibit. `first_out` is all you need.


# %% only=blank
def your_test(key):
    """Fail for a queue in which nobody ages."""
    # assert ...


print("your test, on the exhibit:", colour(your_test, exhibit))
print("your test, on yours:      ", colour(your_test, yours))


# %% only=solution
def your_test(key):
    assert first_out(key, [(0, 18), (20, 3)]) == (0, 18)  # by then the long one has waited long enough


print("your test, on the exhibit:", colour(your_test, exhibit))
print("your test, on yours:      ", colour(your_test, yours))

# %% [markdown] folded What was missing?
# Time has to pass *in the queue*. A heap compares keys that were computed when they were put in, and then every
# request had waited for 0 seconds. So nobody ever ages: it is shortest first with a knob that does nothing. Their
# second line asks the key, not the queue. A key without the time in it cannot go stale, which is the point of 9.1.

# %% [markdown]
# ## 9.3 What is promised?
#
# "It worked in a simulation" is no promise. But from your key a promise follows. Somebody who comes later goes before
# you only if its key is lower. At *some* moment it is too late for that, even for the shortest.
#
# **Before you run on.** In the crowd B came at 6 with 18 tokens; aging is 1 token a token. Until when may one with 3
# tokens come and still go first?

# %%
predict("9.P5", None)

# %% [markdown] heading 9.2
# Write down both keys, set them equal, and solve for the other one's arrival. A longer one must have come *earlier*
# than you to go first, so the answer may lie before your arrival. That is right, leave it so.

# %% exercise 9.2

# %% check 9.2

# %%
measured("9.P5", policy.latest_overtaker(18, 6, 3, 1.0))
crowded = aged(1.0)
print("came at:   ", arrivals(crowded))
print("started as:", *order_of(crowded.records))

# %% [markdown]
# G came at 20 and passed B, H at 24 did not. The check has tried it for every one of them, on the engine: exactly
# those pass who are in time.
#
# **The adversary.** Now the worst case. A prompt of 4,000 tokens comes into a queue of short ones, 500 tokens each,
# and from then on 20 more come every second: a few more than the machine can read. Aging is 200 tokens a second. Until
# when may a short one come and pass? And what if the stream never ends?

# %%
print(f"with aging 200: who comes before {policy.latest_overtaker(4_000, 0, 500, 200):.1f} s may pass")
print("the stream lasts   in order   shortest first   aging 200   passed by")
for seconds in (15, 30, 60, 120):
    first, short, old = (wait(stream(seconds), name) for name in ("fcfs", "shortest_prefill_first", "sjf_aging"))
    long = long_one(old)
    waits = f"{first.queued(long):>10.1f} s {short.queued(long):>14.1f} s {old.queued(long):>9.1f} s"
    print(f"{seconds:>14} s {waits} {len(passed_by(old, long)):>11}")

# %% [markdown]
# Under *shortest first* the long one waits as long as the stream lasts: for ever, if it does. Under aging it is the
# same number in the last three rows. It waits a little longer than 17.5 s, because those who came in time still have
# to be read. The bound is on *who may pass*, not on seconds; under overload no order can promise seconds.
#
# ### How others write it
#
# Aging is reinvented all the time. These are formulas from engines and their pull requests, and what follows from
# each.
#
# | where | formula | kind |
# |---|---|---|
# | vLLM #20608 (closed) | priority - 0.1 x wait in s | linear: a fixed bound, like yours |
# | SGLang #30806 (closed) | uncached tokens - a x wait | linear: yours |
# | SGLang #13507 | 0.9 x L/Lmax - 0.1 x T/Tmax | linear, but relative to the queue: no fixed bound |
# | TensorRT-LLM #12428 (closed) | 0.5/(1 + len/32768) + 0.5 x wait/5 s | linear in the wait, sizes squeezed |
# | TensorRT-LLM #13096 (closed) | tokens x max(0, 1 - f x wait) | all are 0 after 1/f: then first come |
# | SGLang #32911 `hrrn` (merged) | (wait + size) / size | ratio: chapter 07's |
# | vLLM #51375, xLLM #2164 | waited 10 s: to the front | cliff |
# | TGI `max_waiting_tokens` | after 20 decode steps, try a prefill | cliff, in steps |
#
# The **ratio** has no fixed bound: a shorter one passes as soon as it has waited *in proportion*. But each ratio grows
# without end, so in a system that keeps up nobody waits for ever, and waits become proportional to sizes. The
# **cliff** looks simplest. It is our experiment that failed:

# %%
from minicb.bench.receipts.r4 import MaxWait
from minicb.bench.simulate import simulate
from minicb.course.waiting import Waited


def with_a_cliff(jobs, limit_s):
    """Shortest first; but whoever has waited for so long is next, the oldest of them first."""
    order = MaxWait(limit_s)

    def tick(step, scheduler):
        order.now = step.start_s + step.seconds

    run = simulate(jobs, CLOCK, policy=order, on_step=tick, **LIMITS)
    return Waited(run.requests, run.end_s, run.steps)


table({"in order": in_order, **{f"{limit} s at most": with_a_cliff(jobs, limit) for limit in (5, 10, 20)}})
print("a little more rush: 4.7 a second")
fuller = rush(rate=4.7)
table({
    "in order": wait(fuller),
    "10 s at most": with_a_cliff(fuller, 10),
    "aging 1000": wait(fuller, "sjf_aging", 1_000),
    "highest ratio": wait(fuller, "hrrn"),
})  # fmt: skip

# %% [markdown]
# **Before you unfold:** "10 s at most" is splendid in the first table. What has become of it in the second? And did
# "5 s at most" keep its name?

# %% [markdown] folded Why did it not help?
# Nobody gets 5 s. In a rush *everybody* has soon waited for 5 s, all are promoted, and among the promoted it is first
# come, first served: the row above, nearly to the digit. 10 s lies just below what everybody waits in order, and there
# it works. A slightly stronger rush, and it has become *in order* as well. Set to 20 s it lets the hill of 9.2
# come back. So the right limit depends on a load that you know only afterwards. The cliff is gentle on calm days, and
# gone on the day it was made for.

# %% [markdown]
# ## 9.4 Whose turn is it?
#
# So far requests were compared. Now two customers share the engine. The *modest* one sends 1.5 requests a second, the
# *greedy* one 3, all of the same size, and together they ask for more than there is. In order of arrival, what part of
# the work is done for the greedy one, in per cent?

# %%
predict("9.P6", None)

# %%
queue = two_clients("fcfs")
last = queue[-1]
measured("9.P6", round(100 * last["greedy"] / sum(last.values())))

# %% [markdown]
# Whoever asks for more gets more; whoever opens a thousand connections gets everything. No order *by request* can
# help, because nothing is wrong with any request.
#
# So keep a **counter** for each client: what it has been served so far. The client with the lowest counter is next.
# This is the *virtual token counter*, VTC (Sheng and others, 2024). A token that was read costs 1, a token that was
# written costs 2 (it takes a place for a whole step), and a client with weight 2 has a right to twice as much.

# %% [markdown] heading 9.3
# Add to the counter what these tokens cost. For a heavier client the same tokens count less.

# %% exercise 9.3

# %% check 9.3

# %%
counters = two_clients("vtc")
for name, service in {"in order": queue, "by counters": counters}.items():
    got = service[-1]
    print(
        f"{name:<12} modest {got['modest']:>7,.0f}  greedy {got['greedy']:>7,.0f}  together {sum(got.values()):>8,.0f}",
        f" fairness {jain(list(got.values())):.3f}",
    )
seconds = list(range(10, len(queue), 10))
gap = {
    name: [abs(service[s]["greedy"] - service[s]["modest"]) / 1_000 for s in seconds]
    for name, service in {"in order": queue, "by counters": counters}.items()
}
draw_lines(
    {name: (seconds, values) for name, values in gap.items()},
    x_label="seconds",
    y_label="difference in service, thousands",
    limit=(2 * policy.WRITE_PRICE * 10_000 / 1_000, "VTC's bound"),
    data="; ".join(f"{name}: at most {max(values):.1f} thousand" for name, values in gap.items()),
    title="One asks twice as much as the other",
)

# %% [markdown]
# *Fairness* is Jain's index, here of the two services: 1 if all are equal, 1/n if one has everything. *Together* is
# the same number in both rows, to the token. In order the difference grows for ever. By counters it stays where it is:
# it can never be more than twice what one full cache costs (40,000 here, a theorem of the paper).
#
# ### Silence is no credit
#
# One hole is left. The greedy client is silent from second 5 to 60. The modest one is served alone, and its counter
# rises. Then the greedy one comes back with an old, low counter. What happens?

# %%
from itertools import pairwise

from minicb.seams import swapped


def as_it_was(counter, others):
    return counter


def standstill(service, client):
    """The longest time without any service for this client, in seconds."""
    longest = now = 0
    for before, after in pairwise(service):
        now = now + 1 if after[client] == before[client] else 0
        longest = max(longest, now)
    return longest


with swapped("9.4", as_it_was):
    banked = two_clients("vtc", pause=(5, 60))
print(f"when the greedy client is back, the modest one gets nothing for {standstill(banked, 'modest')} s in a row")

# %% [markdown]
# It has saved up its silence, and now everybody waits until it is spent. After a night that would be hours. So when a
# client comes back, its counter is lifted.

# %% [markdown] heading 9.4
# Lift the counter to the lowest of those who wait, so that it is neither before all of them nor behind. It must never
# fall, or a moment of silence would wipe out everything. If nobody waits it stays. (`min(numbers, default=...)`)

# %% exercise 9.4

# %% check 9.4

# %%
lifted = two_clients("vtc", pause=(5, 60))
print(f"with the lift the modest one gets nothing for {standstill(lifted, 'modest')} s in a row")
after = list(range(40, len(lifted), 5))
draw_lines(
    {
        "with your lift": (after, [lifted[s]["modest"] / 1_000 for s in after]),
        "without": (after, [banked[s]["modest"] / 1_000 for s in after]),
    },
    x_label="seconds; the other one is back at 60",
    y_label="served so far, thousands",
    title="The modest client, when the greedy one comes back",
)

# %% [markdown]
# ## 9.5 Two more places to wait
#
# **At the head.** Orders say who is next. What if the next one does not *fit*? The cache holds 1,536 tokens, and a
# request that is writing has reserved 1,024 of them. At the head of the queue waits one of 1,024 + 64; behind it eight
# of 64 + 64 tokens, which would fit. That is **head-of-line blocking**. `backfill` says how many may pass a head that
# finds no room:

# %%
from statistics import median

from minicb.bench.arrivals import Job

line = [Job(0.0, 512, 512), Job(0.1, 1_024, 64), *[Job(0.2, 64, 64)] * 8]
for backfill in (0, 2, 8):
    run = wait(line, backfill=backfill, cache_tokens=1_536, max_num_batched_tokens=512, max_num_seqs=32)
    _, head, *small = run.first
    print(
        f"backfill {backfill}: the head {head:.2f} s, the eight: median {median(small):.2f}, max {max(small):.2f} s;",
        f"all done after {run.seconds:.1f} s",
    )

# %% [markdown]
# Here order does create something: with nobody passing, 512 tokens of cache lie empty for seven seconds. The number
# is a bound once more. Without one, a stream of small requests would starve the head, and this time it would not even
# help to be first.
#
# **In the middle.** A stream that runs is not in any queue, and still it can wait: for a step that reads somebody's
# prompt. 32 requests are writing when a prompt of 8,192 tokens comes:

# %%
from minicb.bench.receipts import r3

for name, knobs in r3.SETTINGS.items():
    one = r3.one_long_prompt(knobs)
    print(f"{name:<30} longest stall {1000 * one['stall_s']:>4.0f} ms   the prompt's TTFT {one['ttft_s']:.2f} s")

# %% [markdown]
# The budget of chapter 08, with a machine's seconds on it: from 8,192 to 512 tokens a step the stall becomes fourteen
# times shorter, and the newcomer waits an eighth longer.
#
# ## 9.6 Choose
#
# A **promise** to your users (a *service level objective*, SLO) says which numbers count. One alone is not enough, as
# you have seen. So take two: a **limit** that most shall stay within, and a **patience** that nobody's wait may exceed.
#
# **Before you run on.** The limit is 1 second, the patience 30. Which of the orders in the frontier's table is best?

# %%
predict("9.P7", None)  # a name from the table, as "aging 20"

# %% [markdown] heading 9.5
# You get each policy's waits, and the two numbers. First whoever breaks the patience is out. Of the others take the
# one with the most waits within the limit. With `{"x": [1, 9], "y": [3, 4]}`, a limit of 2 and a patience of 5 the
# answer is `"y"`: x has one within the limit, but somebody waits for 9. If all are out, take the one whose longest wait
# is the shortest.

# %% exercise 9.5

# %% check 9.5

# %% [markdown]
# `recommend` hands your function the waits of these runs:

# %%
from minicb.course.waiting import recommend

measured("9.P7", recommend(orders, limit_s=1, patience_s=30))
print("\nlimit   patience   choice            within the limit   longest")
for limit, patience in ((1, math.inf), (1, 60), (1, 30), (10, math.inf), (10, 30), (10, 15), (10, 5)):
    name = recommend(orders, limit, patience)
    kept = sum(first <= limit for first in orders[name].first)
    print(f"{limit:>3} s {patience:>9} s   {name:<18}{kept:>8} of 1,000 {orders[name].spread.max:>8.1f} s")

# %% [markdown]
# Without a patience *shortest first* wins, whatever the limit. To count kept promises alone is called **goodput**, and
# in a rush goodput is highest where those who are late anyway are given up. Whoever writes the promise decides who
# the unlucky ones are.
#
# A static picture, then the sliders (optional; they need a running notebook). Find an order that keeps "p50 under 1 s,
# max under 30 s" at 4.4 requests a second. Is there one at 4.6?


# %%
def explore(order, rate, aging):
    some = rush(500, rate)
    rows = {"in order": wait(some), "yours": wait(some, order, aging)}
    table(rows)
    draw_tails(rows, title=f"{order}, {rate} requests a second").show()
    victim = rows["yours"].unluckiest
    draw_passing(rows, victim, title=f"The unluckiest: {some[victim].prompt:,} tokens").show()


explore("sjf_aging", rate=4.4, aging=200)

# %% widget
from ipywidgets import interact

_ = interact(
    explore,
    order=["fcfs", "shortest_prefill_first", "sjf_aging", "hrrn"],
    rate=(3.0, 6.0, 0.2),
    aging=[10, 20, 50, 100, 200, 500, 1_000, 2_000],
)

# %% [markdown] folded What did you find?
# At 4.4 an aging of 200. At 4.6 none of these: 200 has a max of 31.5 s, and with 500 the median is 4.8 s. The window
# closes as the load grows, and no order opens it again. What would help is a faster machine, or a door: to turn
# somebody away at once is kinder than to let all wait.

# %% [markdown]
# ### The same on real traffic
#
# A generator is an imitation. Here is the trace itself: Azure LLM inference trace 2023, *conv* (CC-BY-4.0, Microsoft),
# its first 4,000 requests 1.2 times as fast, on the same clock. The file's sha1 is
# `17035a0521470bd3370d2fe9d9dbf9e221aee793`; the results are kept in `figures/receipts.json`. TTFT in seconds:
#
# | order | mean | p50 | p95 | p99 | max | tokens/s written |
# |---|---|---|---|---|---|---|
# | in order | 13.2 | 11.7 | 35.0 | 38.4 | 39.8 | 1,396 |
# | shortest first | 5.1 | 0.4 | **8.2** | 165.9 | **545.9** | 1,392 |
# | aging 50 | 6.3 | 0.5 | 46.5 | 71.9 | 131.7 | 1,397 |
# | aging 200 | 10.5 | 7.9 | 30.1 | 41.8 | 59.5 | 1,397 |
# | highest ratio | 8.7 | 6.3 | 28.8 | 59.9 | 88.6 | 1,397 |
# | shortest, 10 s at most | 12.4 | 11.6 | 34.3 | 37.7 | 39.1 | 1,397 |
#
# The p95 falls to a quarter while the unluckiest waits fourteen times as long; the hill and the cliff are there too.
# (`minicb receipts R4 --trace FILE` measures it again.)
#
# ## It changes when, never what
#
# **Safety.** Six requests, on a model this time; arrivals, limits, orders, agings, clients and backfill at random.

# %%
import random

from minicb.course.serving import SIX, alone
from minicb.course.table import Workload
from minicb.policy import POLICIES
from minicb.sampling import SamplingParams

dice, same, plans = random.Random(9), 0, set()
for _ in range(36):
    params = {
        name: SamplingParams(max_tokens=length, ignore_eos=True, client=dice.choice("xyz"), priority=dice.randrange(3))
        for name, (_, length) in SIX.requests.items()
    }
    run = serve(
        Workload("", SIX.requests, rows=dice.randint(1, 4), budget=dice.randint(4, 24)),
        arrive={name: dice.randrange(12) for name in SIX.requests},
        params=params,
        policy=dice.choice(list(POLICIES)),
        aging_tokens_per_s=dice.choice([0.1, 1.0, 10.0]),
        backfill=dice.randrange(3),
    )
    plans.add(tuple((entry.request_id, entry.num_new) for step in run.records for entry in step.entries))
    same += run.answers == alone()
print(f"{len(plans)} different schedules, {same} of 36 give every request the tokens that it gets alone")

# %% [markdown]
# **Motive.** What does an order save? Three of them on the requests of the growing table:

# %%
from minicb.course.table import grow_table


def ordered(name):
    return lambda workload: serve(workload, policy=name)


grow_table("continuous", ("shortest first", ordered("shortest_prefill_first")), ("highest ratio", ordered("hrrn")))

# %% [markdown]
# The same tokens computed, the same share useful. With sixteen requests the order also decides how well the last steps
# are filled (51 steps or 43); in the rush of a thousand that made two in a thousand. Who waits is the difference, and
# this table has no column for it.
#
# ## On the real model
#
# One place, one long prompt, four short ones that keep coming, your aging. A line is a step, a column a prompt; `...`
# waits.

# %%
from minicb.course.live import live

PROMPTS = {
    "A": "Once upon a time there was a",
    "B": "The sun is a star, the moon is a satellite, the earth is a planet, and a comet is",
    "C": "One, two, three,",
    "D": "The opposite of hot is",
    "E": "The capital of Italy is",
    "F": "Grass is",
}
LENGTHS = {"A": 5, "B": 6, "C": 3, "D": 2, "E": 2, "F": 3}
COME = {"B": 1, "C": 1, "D": 3, "E": 4, "F": 5}


def serve_words(policy, aging=8.0, quiet=True):
    return live(
        PROMPTS, places=1, budget=32, max_tokens=LENGTHS, arrive=COME, policy=policy, aging_tokens_per_s=aging,
        quiet=quiet,
    )  # fmt: skip


aged_words = serve_words("sjf_aging", quiet=False)
receipt()

# %%
for name in ("fcfs", "shortest_prefill_first", "sjf_aging", "hrrn", "vtc"):
    words = serve_words(name)
    began = next(step.step for step in words.records for entry in step.entries if entry.request_id == "B")
    same_tokens = words.ids == aged_words.ids
    print(f"{name:<24}", *order_of(words.records), f"  B begins in step {began:>2}   same tokens: {same_tokens}")

# %% [markdown]
# ### Now break it on purpose
#
# A slip of the sign: minus where the brackets make it plus. `run_anyway` puts it in for once.


# %%
@exercise("9.1")
def aged_size(size, arrival_s, aging_tokens_per_s):
    return size - aging_tokens_per_s * arrival_s


with run_anyway("9.1"):
    broken = serve_words("sjf_aging")
print("started as:", *order_of(broken.records))
print("same tokens:", broken.ids == aged_words.ids)

# %% [markdown] folded Reading the ruins
# Whoever comes last is first, and the longer you wait the worse it gets. Every answer is right to the last token, the
# throughput is the same, all tests of the model are green. A wrong order cannot be seen in anything but who waits: it
# needs tests of its own, such as the check of 9.2. (If you want to `check("9.1")` again, run your own cell first.)

# %% [markdown]
# ## The evidence, in five lines
#
# - **Why faster:** it is not. The same tokens a second under every order, within two in a thousand; only head-of-line
#   blocking wastes something.
# - **Where it wins:** sizes that differ by a factor of ten, and a queue. With an aging of 200 the median falls from 8.4
#   to 0.7 s. The unluckiest waits 29.5 s: twice as long as in order, and not 181.7 s.
# - **Where it loses:** without a queue there is nothing to order. And every gain of the short ones is paid by the long
#   ones: at an aging of 50 the p95 is nearly twice that of first come.
# - **How it could mislead:** p95 and goodput both praise starvation. A clock of formulas, one rush of four minutes,
#   one seed; a cliff of 5 s that nobody was served within (the failed experiment).
# - **The command:** `minicb receipts R4 R5 R7` in a terminal, with `--trace FILE` for a trace of your own.
#
# ## Exam questions
#
# 1. **Explain.** "We sort by length, and the p95 has halved at the same throughput." Which two numbers do you ask for,
#    and what do you expect?
# 2. **Trace.** Aging 2 tokens a second, one place. P has 30 tokens and came at 0, Q 10 at 5, R 4 at 12, S 1 at 16. All
#    wait. In which order do they run? Until when could one of 1 token come and go before P?
# 3. **Build.** Two classes: *paid* and *free*. The paid ones go first, but no free one may be passed by anybody paid
#    who comes more than 20 s later. Write the key.
# 4. **Design.** Answers of unknown length: a request of 10 tokens to read may write 4,000. What should its size be in
#    the key, what in the counter of its client, and when is it charged?

# %% [markdown] folded Answers
# 1. The maximum (with n), and the waits by size. The longest prompts wait for as long as the rush lasts.
# 2. Keys: P 30, Q 20, R 28, S 33. So Q, R, P, S. Until 14.5 s: (30 - 1) / 2.
# 3. Aging by classes: `arrival_s + (20 if free else 0)`. It is your key divided by the aging: a class is a head start
#    in seconds, and the bound can be read from it.
# 4. The key can only use what is known: tokens to read (or a guess, and then a wrong guess must be bounded as well).
#    The counter need not guess: charge the prompt when it starts and each written token when it is written, as VTC
#    does. That is why VTC is fair although nobody knows how long an answer will be.

# %% [markdown]
# ## Your part in the engine

# %%
progress()

# %% [markdown]
# **Read on:** [Orca](https://www.usenix.org/conference/osdi22/presentation/yu) serves first come, first served, and
# says why · [Sarathi-Serve](https://arxiv.org/abs/2403.02310) on stalls · [Fairness in Serving Large Language
# Models](https://arxiv.org/abs/2401.00588), where VTC and its bound come from (OSDI 2024) · *highest response ratio
# next* is Brinch Hansen's, see [Wikipedia](https://en.wikipedia.org/wiki/Highest_response_ratio_next) ·
# [Splitwise](https://arxiv.org/abs/2311.18677) (ISCA 2024) published the
# [trace](https://github.com/Azure/AzurePublicDataset).
#
# **What comes next:** your engine is fair, and every request still pays for its longest possible answer in cache.
# Handing out small pages, sharing what two prompts have in common, and taking a place away again: those are the ideas
# that the large engines add. Open `notebooks/bridge.md` to see where.
