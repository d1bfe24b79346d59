# ruff: noqa: F401, F821, F841, F811, ARG001, B007 - names come from the set-up cell, skeletons are unfinished

# %% [markdown]
# # 06 · Ragged batching: no padding at all
#
# **CPU** · no network needed · 45 minutes in a workshop, 55 on your own
#
# A rectangle of requests is full of holes. A row has none: lay all tokens end to end, and tell the one part of the
# model that looks sideways who belongs to whom. You write the four functions that do it. And you will see a mask that
# hides waste instead of removing it.

# %% setup

# %%
start(6)

# %% [markdown]
# ## Before you start: three questions
#
# Answer in your head, then unfold.
#
# 1. When may a query look at a key? One sentence with one "and" in it. (Chapter 02)
# 2. A request has 9 tokens in the cache and feeds one more. At which position does it stand, and how many keys does it
#    see? (Chapter 03)
# 3. Prompts of 3, 9 and 4 tokens are padded into one rectangle. How many slots, how many for nothing? (Chapter 05)

# %% [markdown] folded Answers
# 1. When both are of the same sequence, and the key does not stand behind the query.
# 2. At position 9, as positions count from 0. It sees 10 keys: the nine and itself.
# 3. 3 x 9 = 27 slots, 11 of them padding.

# %% [markdown]
# ## 6.1 One row
#
# Why may tokens of different requests share a pass at all? Because nearly everything in the model works token by
# token. Here is the MLP of a tiny model: once for A's 3 tokens and B's 2 apart, once for all 5 in one row.

# %%
from minicb import batch, reference  # each part is yours once it has passed its check
from minicb.cache import attend_with_cache  # chapter 03's, for 6.4
from minicb.course.draw import draw_areas, draw_batch, draw_mask, draw_padding
from minicb.course.tiny import model as tiny_model
from minicb.masks import visible

mlp = tiny_model().layers[0].mlp
rows_of_a, rows_of_b = torch.randn(5, mlp.down.out_features, dtype=torch.float64).split([3, 2])

with torch.inference_mode():
    apart = torch.cat([mlp(rows_of_a), mlp(rows_of_b)])
    in_one_row = mlp(torch.cat([rows_of_a, rows_of_b]))
print("the MLP notices:", not torch.allclose(apart, in_one_row))

# %% [markdown]
# Norms, projections and the head are the same kind of thing. They see a row of T tokens, and nothing else exists for
# them. **Only attention looks sideways**, so only attention has to know where one request ends and the next begins.
#
# A row of chunks of any length, without padding, is called **ragged**.
#
# **Before you run anything.** Three requests have prompts of 3, 9 and 4 tokens. How many tokens go through the model
# in one ragged row?

# %%
predict("6.P1", None)  # your number instead of None

# %% [markdown] heading 6.1
# Two things come back: the row, and where each chunk begins in it, with the total at the end. For chunks of 3, 2 and 1
# tokens the second is `[0, 3, 5, 6]`, so chunk 1 is `row[3:5]`. It works for anything that can be laid end to end: the
# engine calls it for tokens, for positions and for slots of the cache.

# %% exercise 6.1

# %% check 6.1

# %%
from minicb.padding import left_pad

prompts = [[3, 1, 4], [1, 5, 9, 2, 6, 5, 3, 5, 8], [9, 7, 9, 3]]
row, starts = batch.concatenate(prompts)
measured("6.P1", len(row))
print("the chunks begin at", starts[:-1], "and end at", starts[1:])
draw_padding(left_pad(prompts, 0)[1], "ABC", title="A rectangle, and a ragged row")

# %% [markdown]
# 27 slots, or 16. Now the real thing: three prompts of just these lengths, answered by SmolLM2 in one engine.
# `together` returns each step's **batch**, the tensors that the model was given. This is the first:

# %%
from minicb.course.answer import packaged_model
from minicb.course.together import together

PROMPTS = {"A": "To be or", "B": "The capital city of the whole of Italy is", "C": "Red, green,"}
batches = together(PROMPTS)

# %%
_, tokenizer = packaged_model()


def words(tokens):
    return [tokenizer.decode([token]).strip() for token in tokens.tolist()]


draw_batch(batches[0], "ABC", words(batches[0].tokens), title="Step 1: three prompts")

# %% [markdown]
# Read the columns. A token's **position** counts in its own request and starts anew with each. Its **slot** is its
# place in the cache; each request has a region of its own (chapter 03). `q_start` is your `starts`. The black squares
# are section 6.3.
#
# **Find the bug.** "Why start anew? Number the tokens along the row: 0, 1, 2, up to 15." The mask stays as it is, so
# nobody reads anybody else's prompt. `change` does that to each step's batch:

# %%
from dataclasses import replace


def along_the_row(step):
    return replace(step, positions=torch.arange(len(step.tokens)))


_ = together(PROMPTS, change=along_the_row)

# %% [markdown]
# **Compare the two runs before you unfold.** Which tokens are still right, and why those?

# %% [markdown] folded What went wrong?
# The first token of each answer is right: ` not`, ` Rome`, ` and`. SmolLM2 turns queries and keys by their
# positions, and what counts is how far apart two tokens are. In the first row every distance within a request is as it
# should be, so the mistake cannot be seen. In the second step the row is three tokens long, and they get the
# positions 0, 1 and 2, although their own requests go on at 3, 9 and 4. Now the distances are wrong.
#
# Positions restart with each *request*, and go on from chunk to chunk. A right mask with wrong positions raises no
# error and leaks nothing; the answers only get worse. A test that looks at one token passes.

# %% [markdown]
# ## 6.2 Who may look at whom in this row
#
# You know the mask of three whole prompts from chapter 02: a triangle for each, nothing between them.
#
# **Before you run anything.** How many of its 16 x 16 = 256 cells are True?

# %%
predict("6.P2", None)

# %%
three_prompts = reference.step_mask(batches[0])
measured("6.P2", int(three_prompts.sum()))
whose = "A" * 3 + "B" * 9 + "C" * 4
draw_mask(three_prompts, row_owners=whose, col_owners=whose, title="Step 1: three prompts")

# %% [markdown]
# In the second step each request feeds the one token that it has just written. The prompts of 3, 9 and 4 tokens are in
# the cache. The keys of all three lie end to end as well, old and new: a mask needs a column for each.
#
# **Before you run anything.** Three queries, one for each request. How many columns does the mask have?

# %%
predict("6.P3", None)

# %% [markdown]
# **Worked example.** The rule of chapter 02, `visible`, wants four lists: position and request of each query, position
# and request of each key. Take one request with 5 keys after this step, of which 2 are new. Let it be number 7:

# %%
count, total = 2, 5
print("its queries stand at", list(range(total - count, total)), "and belong to", [7] * count)

# %% [markdown] heading 6.2
# Now for all requests, one after another. `q_seq` is there; fill in what the other three lists get. `+=` adds the
# numbers of a range or of a list to their end. The last line makes tensors of the four and asks the rule.


# %% exercise 6.2
def ragged_mask(new, context):
    """Who may look at whom in one ragged row; the keys of its requests lie end to end in the same order.

    new: new tokens of each request   context: keys of each after this step, the new ones included
    returns: bool [T, S]; T = sum(new), S = sum(context)
    """
    q_pos, q_seq, k_pos, k_seq = [], [], [], []
    for i, (count, total) in enumerate(zip(new, context, strict=True)):
        q_pos += ...
        q_seq += [i] * count
        k_pos += ...
        k_seq += ...
    return visible(*map(torch.tensor, (q_pos, q_seq, k_pos, k_seq)))


# %% check 6.2

# %%
one_each = reference.ragged_mask([1, 1, 1], [4, 10, 5])
measured("6.P3", one_each.shape[1])
draw_mask(
    one_each,
    row_owners="ABC",
    col_owners="A" * 4 + "B" * 10 + "C" * 5,
    col_roles=["cached"] * 3 + ["new"] + ["cached"] * 9 + ["new"] + ["cached"] * 4 + ["new"],
    title="Step 2: a token each",
)

# %% [markdown]
# 3 queries, 19 keys, and 19 visible cells: each request sees all that is its own. No word in your function is about
# prompts or answers. So it also covers a step in which some read and some write. Here C arrives two steps late:

# %%
mixed = together(PROMPTS, late={"C": 2})[2]
roles = ["generated"] * 2 + ["prompt"] * 4
draw_batch(mixed, "ABC", words(mixed.tokens), roles, title="A and B write, C reads")

# %%
new, context = mixed.q_start.diff().tolist(), mixed.kv_len.tolist()
draw_mask(
    reference.ragged_mask(new, context),
    row_owners="ABCCCC",
    col_owners="A" * 5 + "B" * 11 + "C" * 4,
    col_roles=["cached"] * 4 + ["new"] + ["cached"] * 10 + ["new"] * 5,
    title="The mask of that step",
    width=4.0,
)

# %% [markdown]
# Two rows of one token and a triangle of four, in one pass. C's arrival has changed nobody's words. *Who* comes when is
# the scheduler's business, and that is chapter 07; the row does not care.
#
# ## 6.3 Which rows does somebody read?
#
# The model gives a hidden state for each of the 16 tokens. The **head** turns a hidden state into logits, one number
# for each of SmolLM2's 49,152 tokens. But 13 of the 16 predict a token of the prompt that everybody knows. Wanted are
# the last rows, where what comes next is unknown.
#
# In a rectangle padded on the left that was `[:, -1]`. A ragged row has no such column.
#
# **Before you run anything.** A, B and C lie in one row, 3, 9 and 4 tokens. Which row holds B's next token? (The first
# row is number 0.)

# %%
predict("6.P4", None)

# %% [markdown]
# **Worked example.** A chunk ends where the next one begins, and its last row is the one before:

# %%
q_start = [0, 3, 12, 16]
print("ends:", q_start[1:], "  last rows:", [end - 1 for end in q_start[1:]])

# %% [markdown] heading 6.3
# There is one more thing to it. A chunk may stop in the middle of its prompt (chapter 04), and then nobody reads
# anything. `samples` says for each chunk whether its last row is wanted. `zip(a, b, strict=True)` goes through two
# lists side by side, and a list like the one above may end with an `if`.


# %% exercise 6.3
def rows_to_sample(q_start, samples):
    """The rows whose logits are read: the last one of each chunk that reaches its request's end.

    q_start: [N+1] where each chunk begins   samples: [N] does it end with its request's last token?
    """
    ends = q_start[1:]
    return ...


# %% check 6.3

# %%
wanted = batch.rows_to_sample([0, 3, 12, 16], [True, True, True])
measured("6.P4", wanted[1])

head = packaged_model()[0].head.weight
millions = head.numel() / 1e6
print(f"the head is {head.shape[0]:,} by {head.shape[1]}: {millions:.1f} million products a row")
print(f"all 16 rows: {16 * millions:.0f} million, those that are read: {len(wanted) * millions:.0f} million")

# %% [markdown]
# ## 6.4 The mask does not remove the waste
#
# The row has no padding. Is all waste gone? A dense mask has a cell for each query and each key, and attention works
# out the score of *every* cell before the mask hides any: (all new tokens) x (all keys).
#
# Here is a step from the life of a server. Seven requests decode, each with 100 keys in all. An eighth arrives with a
# prompt of 100 tokens. Chapter 05 padded them: 8 rows of 100 slots, 693 of the 800 for nothing. The ragged row has
# 107 tokens, all useful.
#
# **Before you run anything.** The dense mask of this row has 107 x 800 cells. What part of them is True, in per cent?

# %%
predict("6.P5", None)

# %%
from minicb.course.ways import costs, three_ways

server_step = three_ways(new=[1] * 7 + [100], context=[100] * 8)
for way in server_step:
    print(way)
cells, useful = server_step[1].cells
measured("6.P5", round(100 * useful / cells, 1))

# %% [markdown]
# 6.7 per cent. The dense mask computes *more* scores than the rectangle did. The waste has not gone, it has moved from
# the slots into attention. Here are all these cells, to scale:

# %%
draw_areas(server_step, title="A prompt of 100 beside seven that decode")

# %% [markdown]
# A to G have one query each: thin lines. The last picture is what we want. It computes a block for each request and
# nothing between them; what is left over is the future within H's own chunk. The course's three prompts, cell by cell:

# %%
draw_areas(three_ways([3, 9, 4], [3, 9, 4]), title="Three prompts")

# %% [markdown] heading 6.4
# So go from request to request. A `span` says what belongs to one of them: its `rows` among the new tokens, its
# `columns` in the mask, its `slots` in the cache. The first two are slices: `q[span.rows]`,
# `mask[span.rows, span.columns]`. For a single request you have `attend_with_cache` from chapter 03; it takes
# `(q, k, v, mask, k_cache, v_cache, slots)`, writes the new keys and values, and looks at all that are kept. The
# answers of all requests come back as one tensor like `q`.

# %% exercise 6.4

# %% check 6.4

# %% [markdown]
# The success line counts score cells. Attention over all requests at once under the whole mask gives the same numbers,
# and would have been sent back for computing too many of them.
#
# This is our own picture of the chapter: three ways to compute a step, for five kinds of steps.

# %%
from minicb.course.draw import draw_costs

workloads = {
    "three prompts, of 3, 9 and 4": ([3, 9, 4], [3, 9, 4]),
    "a token each, 3, 9 and 4 cached": ([1, 1, 1], [4, 10, 5]),
    "seven that decode beside a prompt of 100": ([1] * 7 + [100], [100] * 8),
    "eight prompts of 100": ([100] * 8, [100] * 8),
    "31 short conversations and a long one": ([1] * 32, [20] * 31 + [1000]),
}
draw_costs(costs(workloads))

# %% [markdown]
# Three things to see. Padding is perfect where all are alike (*eight prompts of 100*), and there the dense mask is
# eight times worse. While all decode, the rectangle has no empty *slot*, and still wastes most of its *scores* on the
# one long conversation. Going request by request is never worse than either.
#
# Play with it: a prompt beside some that decode.


# %%
def explore(prompt=12, decoding=3, context=6):
    ways = three_ways([1] * decoding + [prompt], [context] * decoding + [prompt])
    draw_areas(ways, title=f"{decoding} with {context} keys, beside a prompt of {prompt}").show()


explore()

# %% [markdown]
# Here the dense mask computes *fewer* cells than the rectangle. Drag one slider, as little as you can, until it
# computes more (optional; it needs a running notebook). Which of the three gets there soonest, and which never?

# %% widget
from ipywidgets import interact

_ = interact(explore, prompt=(1, 40), decoding=(0, 8), context=(1, 40))

# %% [markdown] folded What did you find?
# Soonest what the others keep: with 9 keys each instead of 6 it is 15 x 39 = 585 cells against 4 x 12 x 12 = 576. A
# prompt of 8 instead of 12 gets there too: 286 against 256. More requests that decode never do: eight of them make
# 1,200 against 1,296. The rectangle makes everybody as long as the prompt, the dense mask only adds up what there is.
# So it loses as soon as the others keep nearly as much as the prompt is long, and in a server they mostly do.

# %% [markdown]
# ## From the bug museum: a batch that is none
#
# An engine was given batching, and the tests were green: every request got the tokens that it gets alone, and three
# requests took 6 steps instead of 15. Only the tokens per second did not move. Here it is, in our words. `serve` runs
# the usual three requests on a tiny model, and asks how each step's chunks go through it. `one_row` is the engine's
# way; the `exhibit` is what we found.

# %%
from minicb.course.table import SIXTEEN, THREE, grow_table, records
from minicb.course.together import serve


def one_row(chunks):
    return [chunks]


def exhibit(chunks):
    return [[chunk] for chunk in chunks]


def their_test(cut):
    run = serve(cut)
    assert run.answers == serve(one_row).answers
    assert run.steps == max(length for _, length in THREE.requests.values())


def colour(test, cut):
    try:
        test(cut)
    except AssertionError:
        return "red"
    return "green"


print("their test, on the exhibit:", colour(their_test, exhibit))
print("their test, on one row:    ", colour(their_test, one_row))

# %% [markdown]
# **Before you run on.** The answers have 4, 5 and 6 tokens, and the run takes 6 steps. How often does the exhibit run
# the model?

# %%
predict("6.P6", None)

# %% [markdown]
# Write the assertion that their test forgot: red for the exhibit, green for one row. What `serve` returns has
# `answers`, `steps`, `passes` (runs of the model) and `tokens`.


# %% only=blank
def your_test(cut):
    """Fail for a batch that is none."""
    run = serve(cut)
    # assert ...


print("your test, on the exhibit:", colour(your_test, exhibit))
print("your test, on one row:    ", colour(your_test, one_row))


# %% only=solution
def your_test(cut):
    run = serve(cut)
    assert run.passes == run.steps  # one run of the model for all, whoever takes part


print("your test, on the exhibit:", colour(your_test, exhibit))
print("your test, on one row:    ", colour(your_test, one_row))

# %%
measured("6.P6", serve(exhibit).passes)

# %% [markdown] folded What was missing?
# A step is not a run of the model. The exhibit calls it once for each chunk: 4 + 5 + 6 = 15 times, as often as without
# any batching, and each time all weights are read from memory for a token or two. When you test a batch, count what it
# was made to save.

# %% [markdown]
# ## It changes when, never what
#
# **Safety.** Random prompts arrive at random moments in engines with random limits, so that they meet in rows of every
# kind. Two claims are tested at once. Each request gets the tokens that it gets alone. And in each layer of each step
# your loop gives the same numbers as one dense attention under the whole mask; for that, a back end computes both. The
# model is tiny and counts in float64, so that no answer hangs on the last bit of a sum.

# %%
import random

from minicb.course.packed import DenseAttention
from minicb.course.together import meet


class Both:
    """Your loop and one dense mask, side by side."""

    def __init__(self):
        self.layers, self.worst = 0, 0.0

    def bind(self, step, cache):
        loop = reference.ReferenceAttention().bind(step, cache)
        dense = DenseAttention().bind(step, cache)

        def attend_layer(*layer):
            yours, other = loop(*layer), dense(*layer)
            self.worst = max(self.worst, float((yours - other).abs().max()))
            self.layers += 1
            return yours

        return attend_layer


dice, both, same = random.Random(6), Both(), 0
for _ in range(20):
    lengths = [dice.randint(1, 12) for _ in range(dice.randint(1, 5))]
    prompts = [[dice.randint(1, 63) for _ in range(n)] for n in lengths]
    alone = [meet([(0, prompt)])[0] for prompt in prompts]

    arrivals = [(dice.randint(0, 5), prompt) for prompt in prompts]  # (step, who comes then)
    limits = {"max_num_batched_tokens": dice.randint(3, 20), "max_num_seqs": dice.randint(1, 5)}
    same += meet(arrivals, both, **limits) == alone

print(f"{same} of 20 schedules give every request the tokens that it gets alone")
print(f"{both.layers} layers computed both ways, all differences below 1e-9: {both.worst < 1e-9}")

# %% [markdown]
# **Motive.** The same requests as in every chapter, with one more row:

# %%
grow_table("naive", "cached", "chunked", "padded", "padded, dynamic", "ragged")

# %% [markdown]
# Nothing is computed twice and nothing for nobody. The longest gap is 4 again: a newcomer no longer pads everybody to
# its own length, as in the 104 of chapter 05. The table counts tokens; the steps' records count the scores as well:

# %%
print("sixteen requests        cells computed   useful")
for method in ("padded", "padded, dynamic", "ragged"):
    steps = records(method, SIXTEEN)
    cells = sum(step.score_cells for step in steps)
    useful = sum(step.useful_cells for step in steps)
    print(f"{method:<24}{cells:>14,}{useful:>9,}: {100 * useful / cells:.0f} %")

# %% [markdown]
# **The real alternative** to a mixed row is not the rectangle but two passes: one for all prompts, one for all who
# decode. No padding either, and the same scores. What does it cost? `serve` can tell, with sixteen requests that
# replace each other as places become free:


# %%
def two_passes(chunks):
    reading = [c for c in chunks if c.start < c.request.num_prompt_tokens]
    writing = [c for c in chunks if c.start >= c.request.num_prompt_tokens]
    return [reading, writing]


for name, cut in {"one row": one_row, "two passes": two_passes, "the exhibit": exhibit}.items():
    print(f"{name:<12}{serve(cut, SIXTEEN)}")

gigabytes = sum(weight.nbytes for weight in packaged_model()[0].parameters()) / 1e9
print(f"each run of SmolLM2 reads {gigabytes:.2f} GB of weights")

# %% [markdown]
# Ten runs more: in each step in which somebody arrives while others write, the weights are read twice. In exchange
# each pass is of one kind, and there are fast kernels for either. With long prompts the second reading hardly counts
# beside the computing; with short prompts that arrive all the time it does.
#
# **What ragged rows do not save.** The ragged method serves the sixteen in groups of four, and a group ends with its
# longest answer.
#
# **Before you run anything.** 4 places, 83 steps: 332 times a place could have held somebody who computes. In how many
# per cent of them did it?

# %%
predict("6.P7", None)

# %%
from minicb.course.draw import draw_timeline

steps = records("ragged", SIXTEEN)
used = sum(len(step.entries) for step in steps)
print(f"{used} of {SIXTEEN.rows * len(steps)} places")
measured("6.P7", round(100 * used / (SIXTEEN.rows * len(steps))))
draw_timeline({"ragged, in groups of four": steps}, title="Who waits for whom")

# %% [markdown]
# No token is wasted, more than half of the places are. Look at the table once more: *padded, dynamic* needs 48 steps,
# because whoever ends makes room at once. It pays with padding. To have both is called continuous batching.
#
# **Change one number.** In the server's step the seven have 100 keys each, and the dense mask (85,600 cells) loses to
# the rectangle (80,000). Give them 10 keys instead. Who computes fewer now? Say it first, then run.

# %% only=blank
keys = 100  # of each of the seven: change it, and run again
for way in three_ways(new=[1] * 7 + [100], context=[keys] * 7 + [100]):
    print(way)

# %% only=solution
keys = 10
for way in three_ways(new=[1] * 7 + [100], context=[keys] * 7 + [100]):
    print(way)

# %% [markdown] folded Answer
# The dense mask: 107 x 170 = 18,190 cells. The rectangle stays at 80,000, because it pads everybody to the prompt
# whatever they keep. Request by request: 10,070. Neither of the others ever computes fewer.

# %% [markdown]
# ## On the real model: break it on purpose
#
# Your four functions have answered all the prompts above. Now sample from the wrong place: the *first* row of each
# chunk instead of the last, and then the row *behind* it. `run_anyway` puts a part in for once and takes it out again.


# %%
@exercise("6.3")
def rows_to_sample(q_start, samples):
    return [start for start, wanted in zip(q_start[:-1], samples, strict=True) if wanted]


with run_anyway("6.3"):
    _ = together(PROMPTS)


# %%
@exercise("6.3")
def rows_to_sample(q_start, samples):
    total = q_start[-1]
    return [end % total for end, wanted in zip(q_start[1:], samples, strict=True) if wanted]


with run_anyway("6.3"):
    _ = together(PROMPTS)

# %% [markdown]
# **Read both before you unfold.** Whose words does A speak in the second run?

# %% [markdown] folded Reading the ruins
# *The first row.* It knows only the first word of its prompt, and so the answer begins with a guess. From then on each
# chunk has a single row, where first and last are the same, and the model makes the best of it: B still comes to
# ` Rome`. A test that looks at decoding only would pass.
#
# *The row behind.* That is the next request's first row, and for C, at the end, it goes round to A's. In the second
# step A is handed ` Rome`, which was B's. The mask is right, nobody has read anybody else's prompt, and still one
# customer gets another's answer.

# %% [markdown]
# If you want to `check("6.3")` again, run your own cell first.
#
# ## The evidence, in five lines
#
# - **Why faster:** nothing is computed for nobody. 16 tokens instead of 27, 106 scores instead of 243; in the server's
#   step 107 tokens instead of 800, 10,700 scores instead of 80,000.
# - **Where it wins:** lengths that differ: a prompt beside short steps, a long conversation among short ones.
# - **Where it loses:** many small requests. The loop calls attention once for each of them, in every layer; see below.
#   And it still cuts its pieces from a mask of the whole row, 85,600 trues and falses for the server's step, written
#   once a step. The fast back ends never make it.
# - **How it could mislead:** *useful share 100 %* counts tokens. It says nothing of scores (a dense mask has 100 % as
#   well), of runs of the model (the exhibit has 100 %) or of places that stay empty. And cells are not seconds.
# - **The command:** `three_ways(new, context)` for any step, `serve(cut, SIXTEEN)` for any way to cut it.
#
# **A failed experiment, kept.** Fewer cells must be faster, we thought, and timed your loop against one dense mask: 32
# requests that decode, in the size of SmolLM2's attention.

# %% timed
import timeit

from minicb.attention import attend


def stopwatch(keys, requests=32):
    q, k, v = (torch.randn(requests, heads, 64) for heads in (9, 3, 3))
    k_cache, v_cache = torch.randn(2, requests * keys, 3, 64)
    mask = reference.ragged_mask([1] * requests, [keys] * requests)
    spans = []
    for i in range(requests):
        first, end = i * keys, (i + 1) * keys
        spans.append(reference.Span(slice(i, i + 1), slice(first, end), torch.arange(first, end)))

    def dense():
        attend(q, k_cache, v_cache, mask)

    def loop():
        reference.attend_ragged(q, k, v, mask, k_cache, v_cache, spans)

    for way, cells in {dense: requests**2 * keys, loop: requests * keys}.items():
        seconds = min(timeit.repeat(way, number=1, repeat=5))
        print(f"{keys:>4} keys each, {way.__name__:<5} {cells:>8,} cells {1000 * seconds:>8.2f} ms")


for keys in (8, 64, 512):
    stopwatch(keys)

# %% [markdown]
# With 8 keys each the loop computes a 32nd of the cells and is the slower of the two: 32 rounds of small operations
# cost more than the wasted scores. With 512 keys it wins clearly. Count cells *and* calls.
#
# The engine's fast back end for CPUs therefore takes requests of like length together and pads them again, a little.
# On a GPU one kernel does the whole loop in a single call: FlashAttention's *varlen* functions and PyTorch's
# `varlen_attn` are given your `q_start`, under names like `cu_seqlens_q`, and no mask of cells at all.
#
# ## Exam questions
#
# 1. **Explain.** A colleague adds a block mask, sees no padding any more and reports: "no waste left". What has been
#    counted, and what not?
# 2. **Trace.** A decodes with 6 keys in the cache. B feeds 2 tokens of its prompt behind 3 that are cached, and 4 more
#    are still to come. C feeds its whole prompt of 2. Write down `q_start`, the positions, and the rows to sample. How
#    many cells does each of the three ways compute?
# 3. **Build.** Somebody wants the log-probability of every prompt token, to score a text. Which of your four functions
#    has to change, and what will it cost?
# 4. **Design.** Your GPU kernel wants every chunk to begin at a multiple of 16 rows. What happens to `q_start`, to the
#    positions, to the slots and to the rows that are sampled? What do you do with the rows in between?

# %% [markdown] folded Answers
# 1. Slots have been counted: there are none without a token. Scores have not: the mask hides them after they are
#    computed, (all queries) x (all keys).
# 2. `q_start` 0, 1, 3, 5; positions 6, 3, 4, 0, 1; rows 0 and 4, as B's prompt goes on. Keys 7, 5 and 2. Padded: 3 x 2
#    x 7 = 42 cells; dense 5 x 14 = 70; request by request 7 + 10 + 4 = 21. `three_ways([1, 2, 2], [7, 5, 2])` says
#    the same.
# 3. `rows_to_sample`: every row of a prompt, not the last alone. The head then has as many rows as there are tokens;
#    for SmolLM2 28.3 million products each.
# 4. There are rows that nobody owns: padding again, less than 16 a chunk. `q_start` needs ends of its own beside the
#    beginnings. Positions and slots of real tokens stay; the rows between write to the dummy page and are sampled by
#    nobody. It may still pay: the kernel decides what a row costs.

# %% [markdown]
# ## Your part in the engine

# %%
answer("The capital of France is")
progress()

# %% [markdown]
# **Read on:** [Orca](https://www.usenix.org/conference/osdi22/presentation/yu) (OSDI 2022) batches everything but
# attention and calls it *selective batching*: this chapter · [FlashAttention](https://github.com/Dao-AILab/flash-attention)
# has the varlen functions · [varlen_attn](https://docs.pytorch.org/docs/stable/nn.attention.varlen.html) is PyTorch's ·
# [FlexAttention](https://pytorch.org/blog/flexattention/) compiles your rule and skips the blocks that it hides ·
# [Sarathi](https://arxiv.org/abs/2308.16369) puts chunks of prompts beside decodes in one pass.
#
# **Next, chapter 07:** nobody waits for the longest any more. You write who joins, who gets how much, and who leaves.
