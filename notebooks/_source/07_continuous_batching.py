# ruff: noqa: F401, F821, ARG001 - names come from the set-up cell, skeletons are unfinished

# %% [markdown]
# # 07 · Continuous batching
#
# **CPU** · no network needed · 60 minutes in a workshop, 70 on your own
#
# So far a batch was made, run, and thrown away. From here on it never ends. In every single step whoever is done
# leaves, and whoever waits may join. You write the decisions: who joins, who gets how much, who ends, and the step
# itself. Then your engine serves a real model to several people at once.

# %% setup

# %%
start(7)

# %% [markdown]
# ## Before you start: three questions
#
# Answer in your head, then unfold.
#
# 1. A prompt of 20 tokens is read in chunks of at most 8. How many steps until its first token, and what does a
#    neighbour gain by that? (Chapter 04)
# 2. Four answers of 5, 5, 5 and 50 tokens run as one padded batch. Why is most of it computed for nothing?
#    (Chapter 05)
# 3. A ragged row holds one token of A, one of B, and the last four of C's prompt. Which of its six rows get sampled?
#    (Chapter 06)

# %% [markdown] folded Answers
# 1. Three: 8, 8 and 4. A neighbour waits for 8 tokens at a time, not for 20.
# 2. The batch lasts as long as its longest answer. Three rows are dragged along for 45 steps each: 135 of 200 places.
# 3. Rows 0, 1 and 5: the last one of each request, as all three are complete.

# %% [markdown]
# ## 7.1 Nobody waits for the slowest
#
# Four requests and an engine with three **places**: at most three requests run at the same time. They write 2, 6, 2
# and 4 tokens. **Static** batching takes the first three as a group, and the fourth when the group is done.
#
# A request's first token comes out of the step that reads its prompt. So an answer of 2 tokens takes 2 steps.
#
# **Before you run anything.** How many steps until all four are done?

# %%
predict("7.P1", None)  # your number instead of None

# %%
from minicb import policy, scheduler  # the engine's parts; yours, once they have passed
from minicb.course.draw import draw_bars, draw_batch, draw_cache, draw_lines, draw_mask, draw_timeline
from minicb.course.serving import workload
from minicb.course.table import grow_table, records

four = workload(reads=[3, 3, 3, 3], writes=[2, 6, 2, 4], rows=3, budget=16)
static = records("padded", four)
measured("7.P1", len(static))
draw_timeline(static, title="Static batching")

# %% [markdown]
# The picture has a row for each request and a column for each step. A full cell reads a prompt, a light one writes a
# token. Hatched cells are computed for nobody. The grey line is D, who waits six steps for B, although two of the
# three places have been empty since step 2.
#
# So look again after *every* step: who has finished leaves, and who waits takes the place. Nothing else changes.
#
# **Before you run on.** How many steps now?

# %%
predict("7.P2", None)

# %%
continuous = records("continuous", four)
measured("7.P2", len(continuous))
draw_timeline({"static": static, "continuous": continuous}, title="The same four requests")

# %% [markdown]
# Ten steps have become six: as many as the longest answer alone. This is **continuous batching**. Its inventors called
# it *iteration-level scheduling*, because the decision is made anew in each iteration of the model (Orca, 2022).
#
# Could every engine do it? A padded one can, more or less: that was *dynamic* batching, and a newcomer's prompt made
# everybody's row as long as its own. A ragged row does not mind who is in it. That is why chapter 06 came first.
#
# ### Who may join?
#
# Two limits decide. There are only so many places. And a step has a **budget**, the most tokens that it may compute.
# The running requests take theirs first; `budget_left` is what they have left over. A newcomer needs a place *and* at
# least one token.
#
# **Worked example**, the first half. Three places, two running:

# %%
num_running, max_num_seqs = 2, 3
print("a place is free:", num_running < max_num_seqs)

# %% [markdown] heading 7.1
# Add the second half: is a token of the budget left?


# %% exercise 7.1
def may_join(num_running, max_num_seqs, budget_left):
    """May one more waiting request start in this step, as far as the two limits of the step go?

    num_running: requests that run already, those that joined in this step included
    budget_left: tokens of the step's budget that nobody has taken yet
    """
    return num_running < max_num_seqs and ...


# %% check 7.1

# %% [markdown]
# That line is asked in each step, once for everybody who might join. It *is* the difference between the two pictures.
# Believe it by changing it. Suppose that a newcomer may join only when nobody runs:

# %%
from minicb.course.serving import audit, serve
from minicb.course.table import SIXTEEN


def only_when_empty(num_running, max_num_seqs, budget_left):
    return num_running == 0


print("the course's sixteen requests, 4 places")
print("your may_join:  ", len(serve(SIXTEEN).records), "steps")
print("only when empty:", len(serve(SIXTEEN, parts={"7.1": only_when_empty}).records), "steps")

# %% [markdown]
# ## 7.2 How much does each one get?
#
# A step may compute 8 tokens. A, B and C are in the middle of their answers, so each of them needs one. D has just
# come, with a prompt of 20.
#
# **Before you run anything.** How many tokens of D's prompt are computed in this step? And how many steps does it take
# until the prompt is read?

# %%
predict("7.P3", None)
predict("7.P4", None)

# %% [markdown]
# Those who run come first, so nobody's answer stands still because somebody else brings a long prompt. Mostly each of
# them needs a single token. But one may still be in the middle of its own prompt, and want more than there is. Then
# the ones behind it must not go away empty-handed.
#
# An example: `uncomputed` is `[1, 20, 1]`, and the budget is 8. The first one gets 1, which leaves 7. The second wants
# all 20, but there is still one behind it: it gets 6. The last one gets 1.

# %% [markdown] heading 7.2
# Write it for any list. Go through it in order; for each request work out how much it may have, note it, take it off
# the budget. There are never more requests than tokens in the budget. `enumerate(uncomputed)` counts places while you
# go.

# %% exercise 7.2

# %% check 7.2

# %% [markdown]
# **Change one number.** `[1, 20, 1]` and 8 made `[1, 6, 1]`. What comes out for a budget of 3? And for 30, where there
# is more than anybody wants?

# %%
for budget in (8, 3, 30):
    print(f"budget {budget:>2}: {scheduler.plan_running([1, 20, 1], budget)}")

# %% [markdown]
# Now ask the engine. `serve` lets requests arrive when they like. Here come the course's three, and D when they are
# decoding. `watch` keeps what went into your function and what came out.

# %%
from minicb.course.inside import watch
from minicb.course.table import THREE, Workload, prompt

prompts = {name: ids for name, (ids, _) in THREE.requests.items()} | {"D": prompt(3, 20)}
with_d = Workload("", {name: (ids, 9) for name, ids in prompts.items()}, rows=4, budget=8)
with watch("7.2") as calls:
    run = serve(with_d, arrive={"D": 3})

print("step  the running ones need     they get       newcomers")
for call, step in zip(calls[:8], run.records, strict=False):
    new = {entry.request_id: entry.num_new for entry in step.entries}
    joined = list(new.values())[len(call.result) :]
    print(f"{step.step:>4}  {call.args[0]!s:<26}{call.result!s:<15}{joined or ''}")
pieces = [e.num_new for step in run.records for e in step.entries if e.request_id == "D" and e.num_computed < 20]
measured("7.P3", pieces[0])
measured("7.P4", len(pieces))

# %% [markdown]
# Steps 3 to 6: D reads 5 tokens in each, and A, B and C get a token each in every one of them. Here is the whole run:

# %%
draw_timeline(run.records, order="ABCD", title="A long prompt among three that decode")

# %% [markdown]
# **Was a token ever held back?** No. Look at the table again: whoever wants more than one token joined last and stands
# last, so nobody is behind it. Why write it, then? Because it is a promise for *any* list. Turn the budget down while
# the engine runs, from 8 to 3 in every other step, and let several prompts be read side by side, 4 tokens of each at
# most. Now one that wants 4 stands in the middle:

# %%
with watch("7.2") as calls:
    serve(
        workload(reads=[3, 14, 3], writes=[6, 3, 6], rows=3, budget=8), budgets=[8, 3], long_prefill_token_threshold=4
    )
for call in calls[1:5]:
    print(f"they need {call.args[0]}, budget {call.args[1]}: they get {call.result}")

# %% [markdown]
# With a budget of 3 the greedy way would have given `[1, 2, 0]`, and the last stream would have stood still.
#
# ### What such a step looks like inside
#
# This is the picture that the whole course was heading for. We stop the engine at the step in which D joins, and look
# at the **plan** (who, and how many tokens), at the ragged row that is made of it, and at its mask.

# %%
from minicb.batch import Batch, Plan, pack
from minicb.course.tiny import model as tiny_model
from minicb.engine import Engine
from minicb.reference import step_mask
from minicb.sampling import SamplingParams, sample


def new_engine(**options):
    return Engine(tiny_model(), attention="reference", max_model_len=32, kv_cache_memory_bytes=1 << 20, **options)


def add(engine, name, ids, length):
    engine.add_request(ids, SamplingParams(max_tokens=length, ignore_eos=True), request_id=name)


steps = []
engine = new_engine(max_num_seqs=4, max_num_batched_tokens=8, on_step=steps.append)
for name, length in {"A": 9, "B": 16, "C": 16}.items():
    add(engine, name, prompts[name], length)
for _ in range(3):
    engine.step()
add(engine, "D", prompts["D"], 9)

plan = engine.scheduler.schedule(0.0)
for chunk in plan:
    print(chunk.request.request_id, f"computes {chunk.num_new} from position {chunk.start}, sampled: {chunk.samples}")
batch = pack(plan, engine.pool, engine.model.device)
roles = ["generated"] * 3 + ["prompt"] * 5
draw_batch(batch, "ABCD", roles=roles, title="The continuous batch: three write, one reads")

# %%
owners = [chunk.request.request_id for chunk in plan for _ in range(chunk.num_new)]
keys = [(chunk, place) for chunk in plan for place in range(chunk.end)]
draw_mask(
    step_mask(batch),
    row_owners=owners,
    col_owners=[chunk.request.request_id for chunk, _ in keys],
    col_roles=["cached" if place < chunk.start else "new" for chunk, place in keys],
    title="Its mask: three rows of decoding and a prompt's first chunk",
)

# %% [markdown]
# There are no phases in it. Nothing in the batch says "prefill" or "decode": a chunk of 5 tokens that begins at
# position 0 has a triangle, a chunk of 1 that begins at position 10 has a row. D's last row is not sampled, as most of
# its prompt is still missing.
#
# ## 7.3 Who is done?
#
# After each token the engine asks whether the answer ends here. There are two good reasons:
#
# - `"stop"`: the model wrote its end token, or a text at which the user wants it to stop;
# - `"length"`: the answer has as many tokens as it may have.
#
# Whoever called the engine wants to know which. An answer that was cut off is worth less than one that came to its
# end, even if both have 100 tokens.

# %% [markdown] heading 7.3
# Fill in the blanks. If both are true the answer has come to its end by itself. `None` means: it goes on.


# %% exercise 7.3
def finish_reason(num_output, max_output, *, stopped):
    """Why a request ends after its newest token, or None if it goes on.

    num_output: tokens of the answer so far   max_output: the most it may have
    stopped: the newest token is an end id or completed a stop text, which wins over the limit
    """
    if ...:
        return "stop"
    return "length" if ... else None


# %% check 7.3

# %% [markdown]
# Whoever ends gives back its place and its room in the cache *within the same step*. The next plan finds them free.
#
# ## 7.4 The step
#
# A plan is there, in plain Python: requests and numbers. Now it has to be computed. It takes four lines, and you have
# met each of them: pack (chapter 06), the model, the rows that somebody reads (chapter 06), a token for each of them
# (chapter 00).

# %% [markdown] heading 7.4
# Here are the lines in the wrong order, and one too many. Each needs what another one makes.
#
#     logits = model.logits(hidden[batch.sample_at])
#     logits = model.logits(hidden)
#     return sample(logits, plan.sampled)
#     hidden = model(batch, cache, attention)
#     batch = pack(plan, pool, model.device)
#
# `pack` and `sample` were imported further up.

# %% exercise 7.4

# %% check 7.4

# %% [markdown]
# The check counted how often the model ran: once, for all requests together. A run for each request would have given
# the same tokens, and read all the weights again for each.
#
# Now finish the step at which we stopped. `commit` takes the results: it appends the tokens, ends who is done, frees
# places.

# %%
from minicb.step import run_plan

with torch.inference_mode():
    results = run_plan(plan, engine.pool, engine.model, engine.cache, engine.attention)
print("due a token:", [request.request_id for request in plan.sampled])
print("they get:   ", [result.token_id for result in results])
engine.commit(plan, results, 0.0)

# %% [markdown]
# And this is the loop, whole. Not a sketch of it: the source of the engine that has just run.

# %%
import inspect

print(inspect.getsource(Engine.step))

# %% [markdown]
# Plan, run, commit. What stands around it is for bad days: a fault of the model ends every request with its cause, and
# Ctrl-C waits until nothing is half done.
#
# ### Where do all their keys live?
#
# One cache holds everybody's keys and values. This engine gives each request one **page** of it, as long as the
# longest request may be. Here it is after that step. The full cells were written in it:


# %%
def show_cache(engine, step, title):
    """The pages after a step, with what the step wrote. Page 0 is the dummy, nobody's."""
    size, count = engine.pool.page_size, engine.pool.num_pages
    wrote = {entry.request_id: (entry.num_computed, entry.num_new) for entry in step.entries}
    pages = [(None, 0, 0)] * (count + 1)
    for name, own in engine.pool.owners().items():
        pages[own[0]] = (name, *wrote[name])
    data = f"{count} pages of {size} tokens: {step.cache_tokens} of {step.cache_capacity} in use"
    draw_cache(pages, size, dummy=0, unit="page", title=title, data=data).show()


show_cache(engine, steps[-1], "Four requests, four pages")

# %% [markdown]
# E comes, and has to wait: four run already. When A has written its last token, E is there in the very next step:

# %%
add(engine, "E", prompt(4, 6), 3)
while "E" not in engine.pool.owners():
    engine.step()
print("ended in the step before:", [name for name, _ in steps[-2].finished])
show_cache(engine, steps[-1], "E has the page that was A's")

# %% [markdown]
# Nothing was moved, and nobody's keys were computed again. E simply writes over what A left behind. That is safe only
# because E's `kv_len` (chapter 06) says how many of the page's keys are E's: attention never looks at the rest.
#
# Look at the white cells, too. They are reserved, and most of them will never be used. Cutting the cache into small
# pages that are handed out as needed is the idea of *PagedAttention*.
#
# ### Two budgets
#
# So there is a third limit, and it is not asked in your `may_join`: is there a page? Here is a cache with room for two
# requests only, in an engine that would let four run and compute 64 tokens a step:

# %%
from minicb.cache import bytes_per_token

config = tiny_model().config
token = bytes_per_token(config.num_layers, config.num_kv_heads, config.head_dim, 8)
narrow = serve(
    Workload("", THREE.requests, rows=4, budget=64), max_model_len=16, kv_cache_memory_bytes=3 * 16 * token
)  # two pages and the dummy
print(f"the fullest step computes {max(step.token_slots for step in narrow.records)} of 64 tokens,", end=" ")
print(f"and runs {max(len(step.entries) for step in narrow.records)} of 4")
draw_timeline(narrow.records, order="ABC", title="C waits for a page")

# %% [markdown]
# **Before you unfold:** C waits, and the token budget is nearly untouched. Would a larger budget help?

# %% [markdown] folded Answer
# No. There are two budgets, tokens and cache, and the scarcer one decides. Tokens are paid for once, in the step that
# computes them. Cache is paid for by the whole life of a request. On large models it is the cache that runs out first:
# 46,080 bytes a token for SmolLM2 (chapter 03), and half a megabyte, in half precision, for a model of 7 billion
# parameters without shared KV heads.

# %% [markdown]
# ## The bug museum: the running ones forget
#
# The pattern is an old one. When somebody joins, the batch is built anew, and everybody in it is read again, *from
# their prompts*. In our own words:


# %%
from minicb.batch import Chunk


def exhibit(plan, pool, model, cache, attention):
    if any(chunk.start == 0 for chunk in plan):  # somebody joins: build the batch anew
        plan = Plan(tuple(Chunk(c.request, 0, c.request.num_prompt_tokens, samples=True) for c in plan))
    batch = pack(plan, pool, model.device)
    hidden = model(batch, cache, attention)
    logits = model.logits(hidden[batch.sample_at])
    return sample(logits, plan.sampled)


def answers(part, rows):
    """What the three requests say with this part as the step, so many at a time."""
    return serve(Workload("", THREE.requests, rows=rows, budget=64), parts={"7.4": part}).answers


ALONE = answers(run_plan, rows=1)


def their_test(part):
    together = answers(part, rows=3)
    assert together == ALONE  # three requests in one batch: the same tokens as alone


def colour(test, part):
    try:
        test(part)
    except AssertionError:
        return "red"
    return "green"


print("their test, on the exhibit: ", colour(their_test, exhibit))
print("their test, on your run_plan:", colour(their_test, run_plan))

# %% [markdown]
# Both green. Why can their test not see it? Write the assertion that they forgot: red for the exhibit, green for
# yours.


# %% only=blank
def your_test(part):
    """Fail for a step after which a running request has forgotten what it said."""
    # assert ...


print("your test, on the exhibit: ", colour(your_test, exhibit))
print("your test, on your run_plan:", colour(your_test, run_plan))


# %% only=solution
def your_test(part):
    assert answers(part, rows=2) == ALONE  # two places: C joins while B is in the middle of its answer


print("your test, on the exhibit: ", colour(your_test, exhibit))
print("your test, on your run_plan:", colour(your_test, run_plan))

# %%
for name, ids in answers(exhibit, rows=2).items():
    print(name, "says", *ids, "" if ids == ALONE[name] else f"  and alone: {' '.join(map(str, ALONE[name]))}")

# %% [markdown] folded What was missing?
# In their test all three arrive at once, so everybody joins before anybody has said a word: a batch that never
# changes. With two places C joins when A is done, and B is in the middle of its answer. The last token of B is its
# *first* one again, 21: B was asked to go on from its prompt, as if it had not said anything. Continuous batching has
# to be tested while it is continuous: with more requests than places.

# %% [markdown]
# ## The picture of this course
#
# One workload, three schedules. Six requests, three places; the continuous engine has a budget of 8.
#
# **Before you run on.** Dynamic batching needs 10 steps. Does the continuous engine need more, fewer, or as many?

# %%
predict("7.P5", None)  # "more", "fewer" or "as many"

# %%
from minicb.course.playground import run_schedules
from minicb.course.serving import SIX

runs = run_schedules(SIX)
dynamic_steps, continuous_steps = len(runs["dynamic"]), len(runs["continuous"])
difference = continuous_steps - dynamic_steps
measured("7.P5", "more" if difference > 0 else "fewer" if difference < 0 else "as many")
draw_timeline(runs, order="ABCDEF", title="One workload, three schedules")

# %% [markdown]
# Read it slowly; everything is in it.
#
# - *Static*: D, E and F wait for B. 40 of 96 tokens are padding.
# - *Dynamic*: places are filled at once. But when D's prompt of 12 tokens joins, A and B are padded to 12 as well, and
#   both wait for all of it. 39 of 95 tokens are padding.
# - *Continuous*: no hatched cell is left. Prompts are cut (7 and 5, 2 and 1) so that no step computes more than 8
#   tokens. It takes *more steps*, because the steps are small.
#
# The columns are equally wide, but steps are not equally large. By what was computed:

# %%
computed = {name: sum(step.token_slots for step in steps) for name, steps in runs.items()}
useful = {name: sum(step.useful_slots for step in steps) for name, steps in runs.items()}
draw_bars(
    computed,
    {name: computed[name] - useful[name] for name in runs},
    unit="tokens",
    title="Tokens computed for the same six answers",
)

# %% [markdown]
# ## It changes when, never what
#
# **Safety.** The six requests arrive at random moments, in engines with random limits. Thirty times.

# %%
import random

from minicb.course.serving import alone

dice, same, plans = random.Random(7), 0, set()
for _ in range(30):
    limits = {"rows": dice.randint(1, 6), "budget": dice.randint(1, 24)}
    arrive = {name: dice.randrange(12) for name in SIX.requests}
    run = serve(Workload("", SIX.requests, **limits), arrive=arrive)
    audit(run, min(limits.values()), limits["budget"])  # every step keeps the limits, nobody stalls
    plans.add(tuple((entry.request_id, entry.num_new) for step in run.records for entry in step.entries))
    same += run.answers == alone()
print(f"{len(plans)} different schedules, {same} of 30 give every request the tokens that it gets alone")

# %% [markdown]
# **Motive.** The table of this course, complete:

# %%
grow_table("naive", "cached", "chunked", "padded", "padded, dynamic", "ragged", "continuous")

# %% [markdown]
# Column by column, on the sixteen requests.
#
# - *Tokens identical?* Seven yeses. Everything else is a matter of when.
# - *Steps*: 156 one at a time, 83 in groups, 48 and 51 when places are filled at once. A step reads all the weights,
#   so this column is the price of *memory traffic*. Here the padded dynamic rows are ahead by three.
# - *Tokens computed*: 2,181, then 309 as soon as there is a cache. Padding brings back twice as much. This column is
#   the price of *computing*.
# - *Useful share*: 100 % wherever no one pads and no one forgets.
# - *Longest gap*: 104 for the dynamic rows, 16 for the continuous engine. That 16 is its budget is no coincidence.
#
# No row wins every column. Continuous batching is the only one that is good in *all* of them, when there are more
# requests than places. On the three requests above it is not: all three fit at once, nobody has to wait, and the budget
# of 8 only cuts their prompts. 8 steps instead of 6.
#
# One thing the table does not show: how long a request waits for its *first* token. A wait is what was computed, for
# whomever, before it came.

# %%
from minicb.course.playground import HEAD, count_row

print(HEAD)
for name, method in {
    "padded": "padded",
    "dynamic": "padded, dynamic",
    "ragged": "ragged",
    "continuous": "continuous",
}.items():
    print(count_row(name, records(method, SIXTEEN)))

# %% [markdown]
# The ragged groups looked better in the *longest gap*: 4 against 16. They have it because nobody may join while they
# write. Whoever is not in the group pays for it, with 158 tokens of waiting on average against 140, and with 83 steps.
#
# ### The budget is a promise
#
# Whoever is writing gets a token in every step. So between two of its tokens the engine computes one step, and a step
# is never larger than the budget. What happens if you turn that knob?
#
# **Before you run on.** The budget is 4 instead of 16. What is the longest gap now, in tokens?

# %%
predict("7.P6", None)

# %%
from dataclasses import replace

from minicb.course.table import longest_gap

budgets = [4, 8, 16, 32, 64, 128]
swept = {budget: records("continuous", replace(SIXTEEN, budget=budget)) for budget in budgets}
for budget, steps in swept.items():
    print(f"budget {budget:>3}:  {len(steps)} steps, longest gap {longest_gap(steps)} tokens")
measured("7.P6", longest_gap(swept[4]))
gaps = [longest_gap(steps) for steps in swept.values()]
dynamic = longest_gap(records("padded, dynamic", SIXTEEN))
draw_lines(
    {"continuous": (budgets, gaps), "dynamic rows": (budgets, [dynamic] * len(budgets))},
    x_label="budget, tokens a step",
    y_label="longest gap, in tokens computed",
    log_x=True,
    data=f"continuous: {gaps[0]} to {gaps[-1]}; dynamic rows, which have no budget: {dynamic}",
    title="The budget bounds everybody's waiting",
)

# %% [markdown]
# **Change one number.** From which budget on does nothing change any more, and why? And what does the smallest one
# cost?

# %% [markdown] folded Answer
# At 64 all prompts fit into their steps whole, and 128 plans the same steps. The budget has stopped being a limit; the
# places are the only one left. At 4 every step is full of those who write, and prompts are read a token or two at a
# time: 85 steps instead of 51, so the weights are read 85 times. A small budget buys even streams with memory
# traffic. Chapter 08 chooses one by measuring.

# %% [markdown]
# **The alternative: prompts first.** Many engines began like this: as soon as somebody waits, a step reads prompts and
# nothing else, and the streams stand still. The engine can do it (`step_order`). What is gained, what is lost?

# %%
print(HEAD)
print(count_row("prompts first", serve(SIXTEEN, step_order="prefill_first").records))
print(count_row("stall-free", serve(SIXTEEN).records))

# %% [markdown]
# First tokens come a little sooner (138 against 140 on average), and somebody's stream stands still for 37 tokens
# instead of 16. Reading whole prompts in steps of their own has a good side as well: such a step is one kind of work,
# and there are kernels for it. Some services even read prompts on other machines than those that write. On one machine
# most engines mix by now: such steps are called *stall-free* (Sarathi-Serve, 2024), and yours are.
#
# **An experiment that failed.** Two prompts wait, and the budget is enough for one of them at a time. Would it not be
# fairer to read both side by side, half of the budget each? We thought that it would lower the average wait. It is
# one line, in the part of chapter 04:


# %%
def half_of_it(num_tokens, num_computed, budget):
    return min(num_tokens - num_computed, (budget + 1) // 2)


print(HEAD)
print(count_row("one by one", serve(SIXTEEN).records))
print(count_row("side by side", serve(SIXTEEN, parts={"4.1": half_of_it}).records))

# %% [markdown] folded Why did it not help?
# The average wait went *up*, and so did the steps. A half-read prompt is worth nothing to anybody: its first token
# comes only when all of it is read. Two prompts side by side are both done late; one after the other, the first is
# done early and the second no later. The longest gap is smaller only because steps are not filled.

# %% [markdown]
# ### Where the time of a request goes
#
# Three moments matter to the one who waits: when it came, when it first ran, when each token came. From them follow
#
# - **queue**: from its arrival to its first step,
# - **TTFT**, time to first token: from its arrival to its first token,
# - the **gaps** between its tokens,
# - **end to end**: from its arrival to its last token.
#
# They are not independent. Let the engine's clock count tokens instead of seconds, so that there is nothing to round,
# and check two identities exactly, for sixteen requests that come one by one:

# %%
arrive = {name: number for number, name in enumerate(SIXTEEN.requests)}  # one more in every step
run = serve(SIXTEEN, arrive=arrive)
computed = [step.token_slots for step in run.records]
began, spoke = {}, {}  # the step in which a request first ran, and the one that gave its first token
for step in run.records:
    for entry in step.entries:
        began.setdefault(entry.request_id, step.step)
        if entry.sampled:
            spoke.setdefault(entry.request_id, step.step)

exact = 0
print("      queue  prefill    TTFT   gaps added up   end to end")
for name, out in sorted(run.outputs.items()):
    m, prefill = out.metrics, sum(computed[began[name] : spoke[name] + 1])
    exact += m.ttft_s == m.queue_s + prefill and m.e2e_s == m.ttft_s + sum(m.itl_s)
    if name in "AFKP":
        print(f"{name:>4}{m.queue_s:>7}{prefill:>9}{m.ttft_s:>8}{sum(m.itl_s):>16}{m.e2e_s:>13}")
print(f"TTFT = queue + prefill, and end to end = TTFT + gaps: exactly so for {exact} of {len(run.outputs)}")

# %% [markdown]
# Continuous batching shortens the queue, and the budget the gaps. Reading one's own prompt is the part that neither of
# them shortens.
#
# ## 7.5 A fairer order
#
# So far the waiting ones were taken in order of arrival. That is fair in one sense, and cruel in another. Look at a
# single place: A runs. B comes with a prompt of 18 tokens, and from then on somebody comes every other step with a
# prompt of 3.

# %%
from minicb.course.serving import crowd, order_of

work, arrive = crowd(shorts=9)
in_order = serve(work, arrive=arrive)
shortest = serve(work, arrive=arrive, policy="shortest_prefill_first")
print("in order of arrival:", *order_of(in_order.records))
print("shortest first:     ", *order_of(shortest.records))

# %% [markdown]
# In order of arrival nine short requests wait for B's long prompt. Shortest first lets all nine pass, and B waits. If
# they kept coming, B would wait for ever: that is called **starvation**.
#
# An old idea from operating systems lies between the two. Compare what a request has been through with what it would
# take if it were alone:
#
#     response ratio = (what it has waited + its own size) / its own size
#
# Size is the tokens that it has to compute before it can write. Waiting is counted in tokens too: what the engine has
# computed, for whomever, since the request came. So the order is the same on every machine. Whoever has the highest
# ratio is next.
#
# **Before you run on.** B has 18 tokens and has waited for 24. C has 3 tokens and has waited for 5. Who is next?

# %%
predict("7.P7", None)  # "B" or "C"

# %% [markdown] heading 7.5
# One line. A request that did not wait at all has the ratio 1.

# %% exercise 7.5

# %% check 7.5

# %%
ratios = {"B": policy.response_ratio(24, 18), "C": policy.response_ratio(5, 3)}
print({name: round(ratio, 2) for name, ratio in ratios.items()})
measured("7.P7", max(ratios, key=ratios.get))
by_ratio = serve(work, arrive=arrive, policy="hrrn")
print("highest ratio first:", *order_of(by_ratio.records))
draw_timeline(
    {
        "in order of arrival": in_order.records,
        "shortest first": shortest.records,
        "highest response ratio next": by_ratio.records,
    },
    order=list(work.requests),
    title="The same arrivals in three orders",
)

# %% [markdown]
# B gets its turn in the middle. The policy is called *highest response ratio next*, HRRN. What happens if twice as
# many short ones come? And who pays? `stretch` is the ratio with which a request was started, the worst of all and the
# mean:

# %%
ORDERS = {
    "in order of arrival": "fcfs",
    "shortest first": "shortest_prefill_first",
    "highest response ratio next": "hrrn",
}
for shorts in (9, 18):
    work, arrive = crowd(shorts)
    print(f"{shorts:>2} short ones{'stretch: worst  mean':>50}")
    for title, name in ORDERS.items():
        outputs = serve(work, arrive=arrive, policy=name).outputs
        waits = {who: out.metrics.queue_s for who, out in outputs.items()}
        sizes = {who: len(out.prompt_token_ids) for who, out in outputs.items()}
        stretch = [(waits[who] + sizes[who]) / sizes[who] for who in outputs]
        mean = sum(stretch) / len(stretch)
        print(f"   {title:<28}B waits for {waits['B']:>3} {max(stretch):>16.1f}{mean:>6.1f}")

# %% [markdown]
# Under HRRN B waits for 26 tokens, however many come after it. Under *shortest first* its wait grows with the crowd.
# And look at the worst stretch: somebody is always behind B when it runs. An order moves waiting from one to another;
# it makes no token cheaper. Chapter 09 is about that: tail latency, fairness between users, and what each order
# guarantees.
#
# ## On the real model
#
# Now everything at once. Four prompts, three places, a budget of 8 tokens a step, your order, SmolLM2. A line is a
# step, a column a request; `...` waits.

# %%
from minicb.course.live import live

PROMPTS = {
    "A": "The capital of France is",
    "B": "Once upon a time there was a",
    "C": "I am sure this project",
    "D": "The three primary colours are red, yellow and",
}
LENGTHS = {"A": 3, "B": 9, "C": 8, "D": 5}
shown = live(PROMPTS, places=3, budget=8, max_tokens=LENGTHS, policy="hrrn")

# %%
receipt()

# %% [markdown]
# Read the steps like the timeline. In step 0 `A` reads its whole prompt and says ` Paris`, and `B` gets what is left of
# the budget. `A` ends in step 2, and `D` is there in step 3. Nobody's words stop while `D` reads.
#
# Does anybody say something else because of the company? Each prompt alone:

# %%
apart = {}
for name, words in PROMPTS.items():
    apart |= live({name: words}, max_tokens=LENGTHS, quiet=True).ids
print("same tokens as alone:", apart == shown.ids)
for name, words in shown.texts.items():
    print(f"{name}  {PROMPTS[name]!r} -> {words!r}")

# %% [markdown]
# ### Now break it on purpose
#
# The exhibit of the museum, in the real model. It would not pass its check, so `run_anyway` puts it in for once.


# %%
@exercise("7.4")
def run_plan(plan, pool, model, cache, attention):
    if any(chunk.start == 0 for chunk in plan):
        plan = Plan(tuple(Chunk(c.request, 0, c.request.num_prompt_tokens, samples=True) for c in plan))
    batch = pack(plan, pool, model.device)
    hidden = model(batch, cache, attention)
    logits = model.logits(hidden[batch.sample_at])
    return sample(logits, plan.sampled)


with run_anyway("7.4"):
    broken = live(PROMPTS, places=3, budget=64, max_tokens=LENGTHS, quiet=True)
for name, words in broken.texts.items():
    print(f"{name}  {PROMPTS[name]!r} -> {words!r}")

# %% [markdown]
# **Find what was said twice before you unfold.** Why only there, and why does the answer look healthy after
# it?

# %% [markdown] folded Reading the ruins
# `D` joins in step 3, when `A` is done. In that step `B` and `C` are asked to go on from their prompts, so each says
# its *first* word once more, in the middle of a sentence. From the next step on they look into the cache again, where
# all that they had said is kept, but for the one word that the broken step should have added. So they go on from a
# sentence with a hiccup and a hole in it, fluently. Nobody would notice in a demonstration.

# %% [markdown]
# (If you want to `check("7.4")` again, run your own cell first.)
#
# ### By the clock
#
# The table counts tokens and steps. What does a processor say? Six requests on the real model, first with short
# prompts, then with prompts eight times as long. The times are not compared by any test; they are this machine's.

# %% timed
from minicb.course.live import race

print("prompts of 12, 3, 30, 5, 8 and 2 tokens")
race([12, 3, 30, 5, 8, 2], [4, 14, 3, 9, 6, 10], places=4, budget=16)
print("prompts eight times as long")
race([96, 24, 240, 40, 64, 16], [4, 14, 3, 9, 6, 10], places=4, budget=64)

# %% [markdown]
# With short prompts the dynamic rows compute twice as many tokens and take about as long. A step of 4 or of 16 tokens
# costs nearly the same here, because it reads the same half a gigabyte of weights, and the padding rides along for
# free. With long prompts computing is what costs, and the padding has to be paid.
#
# ## Playground
#
# Your own requests, in all three schedules. The numbers are token counts: prompts, then answers.

# %%
from minicb.course.playground import compare_schedules

compare_schedules([3, 3, 28], [16, 4, 4], places=2, budget=6)

# %% [markdown]
# Choose an example or type lengths (optional; it needs a running notebook). Can you find a workload in which continuous
# batching is *worse* than static batching?

# %% widget
from minicb.course.playground import playground

playground()

# %% [markdown] folded What did you find?
# *Equal lengths, all at once*: nothing to gain, all three plan the same steps. *One request alone*: with a budget
# smaller than its prompt continuous batching takes *more* steps, as it cuts a prompt for the sake of neighbours that
# are not there.

# %% [markdown]
# And step by step. These are some steps of the six requests' three schedules, as the **player** shows them:

# %%
from minicb.course.player import make_player

player = make_player(runs, title="Three schedules, step by step")
player.sheet().show()

# %% [markdown]
# The player itself goes forward and back: arrow keys, or the buttons, and 1 to 3 for the schedules (optional; it needs
# a running notebook). `player.save("steps.html")` makes a page of it that opens in any browser.

# %% widget
player

# %% [markdown]
# ## The evidence, in five lines
#
# - **Why faster:** a place that becomes free is used in the very next step, and a row without padding lets anybody in.
# - **Where it wins:** answers of different lengths, requests that come at any time: 51 steps instead of 83, and a first
#   token without waiting for a group to end.
# - **Where it loses:** one request alone, and equal lengths that come all at once: nothing to fill, and a small budget
#   only adds steps. On the three requests of the drawings it takes 8 steps where a group takes 6.
# - **How it could mislead:** the table counts tokens. With short prompts a step's price is reading the weights, and by
#   the clock half of the tokens saved nothing. The published factors are large where answers differ much, and mostly
#   measured against static batches.
# - **The command:** `compare_schedules(...)` for any workload; `grow_table(...)` for the table; `race(...)` for the
#   clock.
#
# ## Exam questions
#
# 1. **Explain.** Your colleague says: "We batch eight requests, so we are eight times as fast." Name two things that
#    can be wrong with it, and which column of the table shows each.
# 2. **Trace.** Budget 6, three places. A and B are decoding and have many tokens to go. C brings a prompt of 10, D one
#    of 3. Write down the next four plans.
# 3. **Build.** An engine should never read more than one prompt at a time, so that a half-read prompt never waits for
#    another. Which of your five functions do you change, and what must it know that it does not know now?
# 4. **Design.** A user pays to be served first. Where in the step does that belong: in `may_join`, in `plan_running`,
#    or in the order of the queue? What can still go wrong for everybody else?

# %% [markdown] folded Answers
# 1. Rows that are padding (useful share), and rows that wait for the longest (steps). Also: eight calls of the model
#    instead of one, which no column shows, but a count of its runs does (chapter 06).
# 2. A 1, B 1, C 4; then the same; then A 1, B 1, C 2 (its first token), and D cannot join, as all three places are
#    taken. Fourth: A 1, B 1, C 1. D waits for a place although three tokens of the budget are left.
# 3. `may_join`: it would have to know whether one of the running is still in the middle of its prompt. Try it on paper
#    with two long prompts: who wins, who loses?
# 4. In the order of the queue. The limits are about the machine, not about people; and whoever runs should not be
#    robbed of its next token, or its stream stalls. What can go wrong: with a steady flow of those who pay, the others
#    starve.

# %% [markdown]
# ## Your part in the engine

# %%
progress()

# %% [markdown]
# **Read on:** [Orca](https://www.usenix.org/conference/osdi22/presentation/yu) (OSDI 2022) is where iteration-level
# scheduling comes from · [Sarathi-Serve](https://arxiv.org/abs/2403.02310) (OSDI 2024) has chunks and stall-free steps
# · [PagedAttention](https://arxiv.org/abs/2309.06180) (SOSP 2023) hands out the cache in small pages.
#
# **Next, chapter 08:** seconds at last. You measure, choose a budget, and graduate.
