# ruff: noqa: F821, F811, F841, RUF059 - names come from the set-up cell, skeletons and tests are unfinished

# %% [markdown]
# # 05 · Batching by padding, and what it wastes
#
# **CPU** · no network needed · 35 minutes in a workshop, 45 on your own
#
# So far one request ran at a time. Now several run together, in the oldest way: make all rows equally long, so that
# they fit into a rectangle. It works, it is fast for some work, and most of what it computes may be nothing at all.
# You write the parts, count the nothing, and learn where the counting misleads.

# %% setup

# %%
start(5)

# %% [markdown]
# ## Before you start: three questions
#
# Answer in your head, then unfold.
#
# 1. A request has a prompt of 9 tokens and writes 5. How many tokens does the model compute, if it has a cache?
# 2. At which position stands the first token of its answer?
# 3. One new token looks at 12 cached keys and at itself. How many of these 13 cells does the mask hide?

# %% [markdown] folded Answers
# 1. 9 + 4 = 13. Each token once; the last one of the answer is never fed, because nobody asks what follows it.
# 2. At 9: nine tokens stand before it.
# 3. None. One new token may see everything there is. Keep that in mind: in this chapter it stops being true.

# %% [markdown]
# ## Why batch at all?
#
# To compute one token, the model multiplies by every one of its weights, so every weight must come from memory. The
# next token needs all of them again. For one request alone a step is mostly *reading*.

# %%
from minicb import metrics, padding
from minicb.cache import bytes_per_token
from minicb.course.answer import packaged_model
from minicb.course.draw import draw_lines, draw_mask, draw_padding, draw_timeline, draw_tokens
from minicb.course.padded import baseline, padded

model, tokenizer = packaged_model()
weights = sum(p.numel() for p in model.parameters())
print(f"SmolLM2: {weights:,} weights of 4 bytes, {4 * weights / 1e6:.0f} MB to read in each step")

# %% [markdown]
# But a weight that has arrived can be used more than once. Put the tokens of eight requests into one step: the step
# reads the weights once and multiplies eight rows by them.
#
# **Before you run anything.** How many MB of weights are then read for each token? (One request alone: 538.)

# %%
predict("5.P1", None)  # your number instead of None

# %%
measured("5.P1", round(4 * weights / 8 / 1e6, 1))

# %% [markdown]
# Two things do not shrink. The *arithmetic*: each weight costs a token one multiplication and one addition, in any
# company. And the token's own *cache*: its keys and values belong to one request, and no neighbour can use them.

# %%
c = model.config
cache = 1000 * bytes_per_token(c.num_layers, c.num_kv_heads, c.head_dim, 4)  # of a request with 1,000 tokens
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)

print("requests  MB of weights a token  MB of cache  million operations  operations a byte of weights")
for n in BATCHES:
    print(f"{n:>8}{4 * weights / n / 1e6:>23.1f}{cache / 1e6:>13.1f}{2 * weights / 1e6:>20.0f}{n * 2 / 4:>30.1f}")

draw_lines(
    {
        "weights": (BATCHES, [4 * weights / n / 1e6 for n in BATCHES]),
        "own cache": (BATCHES, [cache / 1e6] * len(BATCHES)),
    },
    x_label="requests in the step",
    y_label="MB to read for one token",
    log_x=True,
    log_y=True,
    title="What batching saves, and what it cannot (a cache of 1,000 tokens)",
    data=f"weights: {4 * weights / 1e6:.0f} MB alone, {4 * weights / 128 / 1e6:.1f} with 128; cache: {cache / 1e6:.0f}",
)

# %% [markdown]
# With 12 such requests their caches are as much to read as the weights; from there on more requests save little. (A
# long context is dear for this reason too.)
#
# For short texts the last column of the table decides. A processor can do a certain number of operations in the time
# that it takes to fetch a byte. As long as the step asks for fewer, it waits for memory, and another request in the
# step costs little. This is the **roofline**: speed is bounded by memory on the left and by arithmetic on
# the right.
#
# Now your own machine. The cell measures both limits (read a large tensor; multiply two matrices), and then decoding
# steps of SmolLM2 with 1, 2, 4, ... requests. Its numbers are yours alone; the ones stored here are of a small
# machine with two cores. You need not read its code: look at the picture and at the last line below it.

# %% timed
import time


def best(work, times=4):
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


large, square = torch.rand(2**26), torch.rand(2048, 2048)
bandwidth = large.nbytes / best(large.sum)  # bytes a second
arithmetic = 2 * 2048**3 / best(lambda: square @ square)  # operations a second

speed = []
for n in BATCHES:
    requests = {str(i): ([5 + i], 4) for i in range(n)}  # prompts of one token: every step decodes n rows
    _, steps = baseline(requests, rows=n, model=model)
    speed.append(n / min(step.duration_s for step in steps))

slope, roof = bandwidth / (4 * weights), arithmetic / (2 * weights)  # tokens a second: for each request, and at most
ridge = roof / slope
draw_lines(
    {"measured": (BATCHES, speed)},
    x_label="requests in the step",
    y_label="tokens per second",
    log_x=True,
    log_y=True,
    limits={
        f"memory: {bandwidth / 1e9:.0f} GB/s": ((1, ridge), (slope, roof)),
        f"arithmetic: {arithmetic / 1e9:.0f} GFLOP/s": ((ridge, max(128, 2 * ridge)), (roof, roof)),
    },
    title="The roofline of this machine, and SmolLM2 under it",
    data=f"{speed[0]:.0f} tokens/s alone, {speed[-1]:.0f} with 128; the limits meet at {ridge:.0f} requests",
).show()
print(f"a step with 8 takes {8 * speed[0] / speed[3]:.1f} times as long as a step with 1, and gives 8 tokens")

# %% [markdown]
# On the left the points rise along the slanted line: such a step is mostly reading. (The more else your machine has to
# do meanwhile, the further below the line they lie.) Far to the right they flatten out. The place where the limits meet
# is the **ridge**: to the left of it a step waits for memory, to the right of it another request makes everybody's step
# longer and brings little speed.
#
# In the middle the points stay below the roof. It says what the machine *could* do; a product of four or eight rows
# by a large matrix is harder to do well than one of a single row or of a hundred.
#
# Where the ridge lies depends on the machine and on the bytes of a weight, not on the model: both limits count every
# weight once. An [NVIDIA H100](https://www.nvidia.com/en-us/data-center/h100/) does 989 trillion operations a second
# on dense 2-byte numbers and reads 3.35 trillion bytes. There it lies at about 295 rows. **That is why servers batch,
# and why they want many requests at the same time.**
#
# ## 5.1 A rectangle
#
# The three requests of this course have prompts of 3, 9 and 4 tokens. A tensor has rows of equal length. So the short
# rows are filled up with **padding**: an id that stands for nobody's token, here 0. The rectangle is as wide as the
# longest row.
#
# **Before you run anything.** 3 rows of 9 are 27 slots. How many of them are padding?

# %%
predict("5.P2", None)

# %% [markdown]
# On which side? The next token of every row will be laid on at the right. With the padding on the *left* all rows end
# in the same column, and one new column serves them all.

# %% [markdown] heading 5.1
# Return two tensors: the ids, and `real`, which is True where a token is real. A row may be empty (a request that has
# nothing to do in this step): then it is all padding. And the padding's id is an ordinary id. A prompt may well
# contain it, so do not use it to find out what is real.
#
# Lists do most of the work: `[0] * 2 + [7, 8]` is `[0, 0, 7, 8]`.

# %% exercise 5.1

# %% check 5.1

# %%
from minicb.course.table import THREE, grow_table, records

PROMPTS = {name: list(ids) for name, (ids, _) in THREE.requests.items()}
ids, real = padding.left_pad(list(PROMPTS.values()), padding.PAD_ID)
measured("5.P2", int((~real).sum()))
draw_tokens(
    dict(zip(PROMPTS, ids.tolist(), strict=True)),
    {name: ["prompt" if ok else "padding" for ok in row] for name, row in zip(PROMPTS, real.tolist(), strict=True)},
    title="Three prompts, padded on the left",
)

# %% [markdown]
# ## 5.2 What the padding must not change
#
# Two things know where a token stands: its position, and the mask. Both must be told about the padding. (Its place in
# the cache follows from the position: the token at position 2 lies in the third slot of its request's page.)
#
# **Positions.** Request A has its first token in column 6. Its position is 0 all the same, because none of *its*
# tokens stands before it. So number the tokens of a row, not its columns. `cumsum`, the running sum, does it: of True
# and False it counts the Trues so far.

# %%
row = torch.tensor([[False, False, True, True, True]])
print(row.cumsum(dim=1))

# %% [markdown] heading 5.2
# Two blanks. `start` says how many tokens of each row are in the cache already: while a row decodes, that is its
# whole text but for the newest token. Padding gets position 0; that line is given.


# %% exercise 5.2
def padded_positions(real, start):
    """Position of each token in its own sequence; padding does not count, and gets 0.

    real: bool [B, W]   start: int64 [B], tokens of each row that are in the cache already
    returns: int64 [B, W]
    """
    count = ...  # int [B, W]: real tokens of the row up to here, this one included
    positions = start[:, None] + ...
    return positions.masked_fill(~real, 0)


# %% check 5.2

# %%
positions = padding.padded_positions(real, torch.zeros(3, dtype=torch.int64))
for name, numbers in zip(PROMPTS, positions.tolist(), strict=True):
    print(name, *numbers)

# %% [markdown]
# **The mask.** Attention runs on the rectangle too: every row computes 9 queries by 9 keys, whether it has tokens for
# them or not. Here is the mask of row A. Its keys come from the cache, where only its own 3 tokens are: they stand at
# the left, at their positions, whatever their column in the rectangle is.

# %%
seen = padding.PaddedAttention().mask(positions, torch.arange(9), None)  # bool [B, W, K]
labels = ["padding"] * 6 + [str(token) for token in PROMPTS["A"]]
draw_mask(
    seen[0],
    labels,
    [str(token) for token in PROMPTS["A"]] + ["-"] * 6,
    col_roles=["new"] * 3 + ["padding"] * 6,
    title="Row A of the rectangle",
).show()
first = records("padded")[0]
print(f"all three rows: {first.score_cells} cells computed, {first.useful_cells} of them needed")

# %% [markdown]
# Of the 12 visible cells only the lowest three rows are of use: 1 + 2 + 3. Why does padding look at key 0, and not at
# nothing? You met the reason in chapter 01: a row without any visible key is 0 divided by 0. Nobody reads what a
# padding computes, but NaN would find its way. So each padding gets one key to look at, and its result is thrown
# away.
#
# ## 5.3 A batch from beginning to end
#
# Now the three requests run: A writes 4 tokens, B 5, C 6. The first pass reads the prompts and gives each row its
# first token. Then every pass feeds one column. This is **static batching**: the group stays together until its
# longest answer is done. The number in a cell is the pass that computes it, counted from 0.

# %%
roles, passes = {name: [] for name in PROMPTS}, {name: [] for name in PROMPTS}
for step in records("padded"):
    for entry in step.entries:
        kind = "prompt" if entry.num_computed < entry.num_prompt else "generated"
        roles[entry.request_id] += ["padding"] * entry.padding + [kind] * entry.num_new
        passes[entry.request_id] += [step.step] * (entry.padding + entry.num_new)

draw_tokens(passes, roles, title="Every slot, with the pass that computes it").show()
draw_timeline(records("padded"), title="The same, a column a pass")

# %% [markdown]
# Six passes; one request after the other would need 15 (4 + 5 + 6). So the weights are read 6 times and not 15. But
# there is a second kind of padding now. A is done after four tokens, and its row is still fed: a rectangle has no
# holes.
#
# **Before you run anything.** Four requests with prompts of one token write 5, 5, 5 and 50 tokens. The group needs 50
# passes of 4 slots, 200 in all. How many of them are wasted?

# %%
predict("5.P3", None)

# %%


def slots(prompts, answers, **options):
    """Run requests of these sizes: the useful slots, and all of them."""
    sizes = zip(prompts, answers, strict=True)
    _, steps = baseline({f"r{i}": ([1 + i] * p, n) for i, (p, n) in enumerate(sizes)}, **options)
    return sum(step.useful_slots for step in steps), sum(step.token_slots for step in steps)


useful, total = slots([1, 1, 1, 1], [5, 5, 5, 50])
measured("5.P3", total - useful)

# %% [markdown] heading 5.3
# As a share, so that engines can be compared. Where nothing was computed, nothing was wasted.

# %% exercise 5.3

# %% check 5.3

# %%
print(f"5, 5, 5, 50:        {metrics.wasted_fraction(useful, total):.1%} wasted")
print(f"A, B and C:         {metrics.wasted_fraction(*slots([3, 9, 4], [4, 5, 6])):.1%} wasted")
print(f"everything equal:   {metrics.wasted_fraction(*slots([9, 9, 9], [6, 6, 6])):.1%} wasted")

# %% [markdown]
# **Read the last line twice.** A rectangle wastes nothing if the work is rectangular. Answers are not: nobody knows
# their length before they are written.
#
# ## Let a new one in
#
# The obvious cure: when a row is done, give its place to the next request. That is **dynamic batching**. The newcomer
# brings a prompt, the others feed one token each, and all of it has to be one rectangle. Four requests run; A is
# done, and E joins with the seven tokens of `<bos> I am sure this pro ject`.

# %%
from minicb.course.inside import watch

WORDS = ["<bos>", "I", "am", "sure", "this", "pro", "ject"]
FIVE = {"A": ([7, 8, 9], 2), "B": ([1, 2, 3, 4, 5], 6), "C": ([6, 5, 4, 3], 6), "D": ([2, 1], 5)}
FIVE["E"] = ([11, 12, 13, 14, 15, 16, 17], 3)

with watch("5.1") as calls:
    _, joined = baseline(FIVE, rows=4, kind="dynamic")
ids, real = calls[2].result  # what your left_pad made of the third pass
cells = dict(zip("BCDE", [*ids[:3].tolist(), WORDS], strict=True))
roles = {
    name: ["padding" if not ok else "prompt" if name == "E" else "generated" for ok in row]
    for name, row in zip("BCDE", real.tolist(), strict=True)
}
draw_tokens(cells, roles, title="The third pass: one prompt and three decodes").show()
draw_timeline(joined, title="E takes the place of A")

# %% [markdown]
# Each of the three that decode is padded to the newcomer's prompt: 3 rows of 6 paddings, 18 of 28 slots. With n
# tokens in the prompt and B rows it is **(n - 1)(B - 1)**.
#
# **Before you run anything.** Eight rows; seven decode, and the eighth brings a prompt of 100 tokens. How many of the
# 800 slots of this pass are padding?

# %%
predict("5.P4", None)

# %%


def joining(n, rows):
    """A prompt of n tokens joins rows that decode: the record of that pass."""
    early, late = {"first": ([1], 2)}, {f"r{i}": ([2], 4) for i in range(rows - 1)}
    _, steps = baseline({**early, **late, "new": ([3] * n, 1)}, rows=rows, kind="dynamic")
    return steps[2]


step = joining(100, 8)
measured("5.P4", step.token_slots - step.useful_slots)
print(f"{metrics.wasted_fraction(step.useful_slots, step.token_slots):.1%} of {step.token_slots} slots")
print(f"{metrics.wasted_fraction(step.useful_cells, step.score_cells):.1%} of {step.score_cells:,} score cells")

# %% [markdown]
# Of the score cells even more: every row computes 100 queries by 100 keys, and seven rows need one query each.

# %%


def explore(n=100, rows=8):
    step = joining(n, rows)
    real = [[False] * entry.padding + [True] * entry.num_new for entry in step.entries]
    draw_padding(real, ragged=False, title=f"{n} tokens join {rows - 1} rows that decode").show()


explore()

# %% [markdown]
# Drag the sliders (optional; they need a running notebook). Find a setting that wastes less than half.

# %% widget
from ipywidgets import interact

_ = interact(explore, n=(1, 100), rows=(2, 8))

# %% [markdown] folded What did you find?
# Two rows: one of them is the newcomer and all useful, so the waste stays under one half, whatever n. And very short
# prompts: eight rows and n = 2 waste 7 of 16. With n = 1 the newcomer looks like the others, and nothing is wasted.

# %% [markdown]
# **How fast does it grow?** The post that this course retells says that the cost of padding is quadratic in both, the
# rows and the length of the prompt. Let us double each, and measure.

# %%
LENGTHS, ROWS = (26, 51, 101), (3, 5, 9)
waste = {rows: [step.token_slots - step.useful_slots for n in LENGTHS if (step := joining(n, rows))] for rows in ROWS}
print("         " + "".join(f"n - 1 = {n - 1:<6}" for n in LENGTHS))
for rows, counts in waste.items():
    print(f"B - 1 = {rows - 1}" + "".join(f"{count:>9}     " for count in counts))

draw_lines(
    {f"{rows} rows": (LENGTHS, counts) for rows, counts in waste.items()},
    x_label="tokens of the prompt that joins",
    y_label="padding in this pass",
    title="Straight lines: double the prompt, double the waste",
)

# %% [markdown]
# To the right each number doubles, and downwards it doubles. Quadratic would mean four times. Four times it is only
# on the diagonal, where *both* double. A product of two things is called **bilinear**: linear in each. It is bad
# enough.
#
# **Think first:** why not read the newcomer's prompt in a pass of its own, and let it join when it decodes as well?

# %% [markdown] folded A pass for the prompt alone
# It is a good idea, and many engines have done so: 100 slots in one pass and 7 in the next, instead of 800 in one.
# The price is that the weights are read once more, and that the seven wait while the prompt is read. With short
# prompts and many newcomers somebody is always waiting. Chapter 06 has a way without the extra pass.

# %% [markdown]
# Back to the five requests, static and dynamic, with some of their passes from the inside. The **player** draws them:

# %%
from minicb.course.player import make_player

_, grouped = baseline(FIVE, rows=4)
player = make_player({"static": grouped, "dynamic": joined}, title="Static and dynamic, pass by pass")
player.sheet().show()

# %% [markdown]
# 6 passes instead of 9, and E has its first token after the third instead of the seventh. The price: 24 paddings
# instead of 11.
#
# The player itself goes forward and back, with the arrow keys or the buttons; 1 and 2 choose the run (optional; it
# needs a running notebook).

# %% widget
player

# %% [markdown]
# ## 5.4 Which row is read?
#
# After the pass the model has a row of numbers for each slot. Logits are computed only for rows that somebody reads:
# each request's newest token. In a left-padded rectangle that is the last column, and much code simply takes the last
# column. But many tools pad on the *right*, as one does for training. Here are our prompts in that way:

# %%
_, real = padding.left_pad([prompt[::-1] for prompt in PROMPTS.values()], padding.PAD_ID)
real = real.flip(1)  # left_pad in a mirror
draw_padding(real, ragged=False, title="The same prompts, padded on the right")

# %% [markdown]
# **Before you run anything.** Whoever reads the last column here: of how many of the three requests is that the newest
# token?

# %%
predict("5.P5", None)

# %%
measured("5.P5", int(real[:, -1].sum()))

# %% [markdown] heading 5.4
# It runs, and it is right in every test that pads on the left. Make it right wherever the padding is. In the
# flattened rectangle the rows lie end to end: column c of row r is number `r * width + c`. A row without a real token
# has no newest one, and is left out; that part is right.
#
# How to find the last True of a row: it has the largest column number of all the Trues. `torch.where(real, x, -1)` puts
# -1 for every False, and `amax(dim=1)` is the largest number of each row. A loop will do as well.


# %% exercise 5.4
def newest_rows(real):
    """Where each sequence's newest token stands in the flattened rectangle: the rows whose logits are read.

    real: bool [B, W], True where a token is real, wherever the padding is
    returns: int64 [M], one for each sequence that has a real token, in order
    """
    rows, width = real.shape
    last_column = torch.arange(rows) * width + width - 1
    return last_column[real.any(dim=1)]


# %% check 5.4

# %%
for side in ("left", "right"):
    answers, _ = baseline(THREE.requests, rows=3, side=side)
    print(f"padded on the {side:<5}", answers)

# %% [markdown]
# With the right row, positions and mask, the side does not matter to the answers.
#
# ## The bug museum: their tests were green
#
# Two exhibits. Both were found in the wild more than once, and both came with a test that passed. A row alone in its
# rectangle has no padding, so it says what is right:


# %%
def alone(requests):
    return {name: baseline({name: one})[0][name] for name, one in requests.items()}


def colour(test, *parts):
    try:
        test(*parts)
    except AssertionError:
        return "red"
    return "green"


# %% [markdown]
# **Exhibit one** numbers the columns: positions count from the left edge, padding included. Its test compares a batch
# with the same requests alone.


# %%
def exhibit_one(real, start):
    return start[:, None] + torch.arange(real.shape[1])


def their_test(padded_positions):
    requests = {"A": ([3, 1, 4], 5), "B": ([1, 5, 9], 3), "C": ([9, 7, 9], 6)}
    answers, _ = baseline(requests, positions=padded_positions)
    assert answers == alone(requests)


print("their test, on the exhibit:       ", colour(their_test, exhibit_one))
print("their test, on the engine's part: ", colour(their_test, padding.padded_positions))

# %% [markdown]
# Green and green. Write the test that tells them apart: red for the exhibit, green for the right part.


# %% only=blank
def your_test(padded_positions):
    """Fail for positions that are wrong where their test does not look."""
    requests = {"A": ([3, 1, 4], 5), "B": ([1, 5, 9], 3), "C": ([9, 7, 9], 6)}  # change these
    answers, _ = baseline(requests, positions=padded_positions)
    # assert ...


print("your test, on the exhibit:       ", colour(your_test, exhibit_one))
print("your test, on the engine's part: ", colour(your_test, padding.padded_positions))


# %% only=solution
def your_test(padded_positions):
    requests = {"A": ([3, 1], 5), "B": ([1, 5, 9], 3)}  # prompts of different lengths: A is padded
    answers, _ = baseline(requests, positions=padded_positions)
    assert answers == alone(requests)


print("your test, on the exhibit:       ", colour(your_test, exhibit_one))
print("your test, on the engine's part: ", colour(your_test, padding.padded_positions))

# %% [markdown] folded What was missing?
# Their prompts are all equally long, so the first rectangle has no padding, and there columns *are* positions.
# Different lengths are enough. When you test padding, let there be padding.
#
# The wrong numbers do two kinds of harm. A token at the wrong position is turned by the wrong angle (chapter 01). And
# a position is a place in the cache: a row with six paddings has its keys written six places too far, where nobody
# looks for them.

# %% [markdown]
# **Exhibit two** drops the mask while decoding. The reason sounds good: "one new token may see everything there is".
# You answered so yourself at the top of this chapter. Its test has prompts of different lengths.


# %%
class ExhibitTwo(padding.PaddedAttention):
    def mask(self, positions, places, window):
        seen = super().mask(positions, places, window)
        one_new_token_each = positions.shape[1] == 1
        return torch.ones_like(seen) if one_new_token_each else seen


def their_test(attention):
    requests = {"A": ([3, 1, 4], 1), "B": ([1, 5, 9, 2, 6, 5, 3, 5, 8], 1), "C": ([9, 7, 9, 3], 1)}
    answers, _ = baseline(requests, attention=attention)
    assert answers == alone(requests)


print("their test, on the exhibit:       ", colour(their_test, ExhibitTwo()))
print("their test, on the engine's part: ", colour(their_test, padding.PaddedAttention()))


# %% only=blank
def your_test(attention):
    requests = {"A": ([3, 1, 4], 1), "B": ([1, 5, 9, 2, 6, 5, 3, 5, 8], 1), "C": ([9, 7, 9, 3], 1)}  # change these
    answers, _ = baseline(requests, attention=attention)
    # assert ...


print("your test, on the exhibit:       ", colour(your_test, ExhibitTwo()))
print("your test, on the engine's part: ", colour(your_test, padding.PaddedAttention()))


# %% only=solution
def your_test(attention):
    requests = {"A": ([3, 1, 4], 2), "B": ([1, 5, 9, 2, 6, 5, 3, 5, 8], 2)}  # a second token: now somebody decodes
    answers, _ = baseline(requests, attention=attention)
    assert answers == alone(requests)


print("your test, on the exhibit:       ", colour(your_test, ExhibitTwo()))
print("your test, on the engine's part: ", colour(your_test, padding.PaddedAttention()))

# %% [markdown] folded What was missing?
# Answers of one token come out of the first pass. Nothing is ever decoded, so the broken mask never runs. A second
# token is enough.
#
# And what is wrong with the reason? The row of a request alone ends with its newest key. In a rectangle all rows are
# as wide as the longest context; a short row has something else behind its last key, and only the mask says so. The
# sentence was about one request. A batch made it false.

# %% [markdown]
# ## It changes when, never what
#
# **Safety.** Forty random workloads: prompts of 1 to 12 tokens, answers of 1 to 8, up to five requests, rectangles of
# one to four rows, static and dynamic, padding on the left and on the right. Each answer must have the tokens that it
# has alone.

# %%
import random

dice, same, compared = random.Random(5), 0, 0
for _ in range(40):
    requests = {
        f"r{i}": ([dice.randint(1, 60) for _ in range(dice.randint(1, 12))], dice.randint(1, 8))
        for i in range(dice.randint(1, 5))
    }
    kind, side, rows = dice.choice(["static", "dynamic"]), dice.choice(["left", "right"]), dice.randint(1, 4)
    answers, expected = baseline(requests, rows=rows, kind=kind, side=side)[0], alone(requests)
    same, compared = same + sum(answers[name] == expected[name] for name in expected), compared + len(expected)
print(f"{same} of {compared} answers have the same tokens as alone")

# %% [markdown]
# **Motive.** The table of this course grows by two rows.

# %%
grow_table("naive", "cached", "chunked", "padded", "padded, dynamic")

# %% [markdown]
# Read the sixteen requests. *Steps*, each of which reads all weights once, fall from 156 to 83 and 48. That is what
# batching is for. *Tokens computed* rise from 309 to 692 and 664: more than half is padding. And the *longest gap* of
# the dynamic rows is 104: somebody waited for his next token while a rectangle of 4 times 26 was computed for a
# newcomer.
#
# Which waste hurts? Think of the roofline. A hatched slot in a decoding column costs little *time*: memory is the
# limit, and the weights are on their way anyway. What is lost is the seat, in which a waiting request could sit.
# The 693 paddings of a rectangle are another matter: 800 rows are far to the right of the ridge, where every row is
# paid for in arithmetic.
#
# **A failed experiment, kept.** "Then sort the requests by prompt, so that neighbours have similar lengths." The
# sixteen, sorted by the length of their prompts:
#
# **Before you run anything.** Will the dynamic rows compute fewer tokens than 664, or more?

# %%
predict("5.P6", None)  # "fewer" or "more"

# %%
from dataclasses import replace

from minicb.course.table import SIXTEEN

by_prompt = dict(sorted(SIXTEEN.requests.items(), key=lambda item: len(item[1][0])))
grow_table("padded", "padded, dynamic", workloads=[replace(SIXTEEN, requests=by_prompt)])
before, after = (
    sum(step.token_slots for step in records("padded, dynamic", workload))
    for workload in (SIXTEEN, replace(SIXTEEN, requests=by_prompt))
)
measured("5.P6", "more" if after > before else "fewer")

# %% [markdown] folded Why?
# The static groups do profit: 692 tokens become 464, because the prompts of a group are alike. Not their answers,
# though, and nobody can sort by what is not yet written.
#
# In the dynamic rows a prompt is hardly ever read beside other prompts. It is read beside rows that decode, and these
# are one token wide, sorted or not. All the long prompts now come at the end, where every seat is taken: each of them
# pads three others. And whoever sorts must have all requests at hand before the first one starts. In a service that
# means letting people wait.

# %% [markdown]
# **Change one number.** Four prompts of one token, answers of 5, 5, 5 and 50: 67.5 % wasted. Make the 50 a 10. What
# is wasted now? And what does it take to waste nothing?

# %% only=blank
print(f"{metrics.wasted_fraction(*slots([1, 1, 1, 1], [5, 5, 5, 50])):.1%}")  # change it, and run again

# %% only=solution
for lengths in ([5, 5, 5, 10], [5, 5, 5, 5], [50]):
    print(f"answers {lengths!s:<15} {metrics.wasted_fraction(*slots([1] * len(lengths), lengths)):.1%}")

# %% [markdown] folded Answer
# 40 slots, 25 of them useful: 37.5 %. The waste is what the longest answer has more than the average one. It is
# nothing if all are equal, or if a request is alone, and then there is no batch.

# %% [markdown]
# ### Where padding wins
#
# A rectangle is what hardware likes best: one call for all rows, and the same shapes again and again, for which a
# kernel can be compiled or a graph recorded once.

# %%
attention_calls = {
    "padded": len(records("padded", SIXTEEN)),  # one rectangle for all rows of a step
    "request by request": sum(e.num_new > 0 for step in records("padded", SIXTEEN) for e in step.entries),
}
shapes = {
    name: len({(len(step.entries), step.token_slots) for step in records(name, SIXTEEN)})
    for name in ("padded", "padded, dynamic")
}
print("attention calls a layer:", attention_calls)
print("different rectangles:   ", shapes)

# %% [markdown]
# The dynamic rows lose this advantage too: every newcomer brings a width of its own.
#
# If your texts are all cut to 128 tokens and each gets one label, pad, and be done. If you write answers of unknown
# length for strangers, read on to chapter 06.
#
# ## On the real model
#
# Three prompts of 3, 9 and 4 tokens, in one rectangle, through your parts. Then in rectangles of one row, one request
# after the other.

# %%
TEXTS = {"A": "Water boils at", "B": "The capital of France is the great city of", "C": "One two three four"}
padded(TEXTS)
print()
padded(TEXTS, rows=1)

# %% [markdown]
# The same words: 6 passes and 42 slots, or 18 passes and 31 slots. The engine itself never pads, so `answer(...)` calls
# no part of this chapter; the baseline does.
#
# ### Now break it on purpose
#
# First the positions of exhibit one:


# %%
@exercise("5.2")
def padded_positions(real, start):
    return start[:, None] + torch.arange(real.shape[1])


with run_anyway("5.2"):
    padded(TEXTS)

# %% [markdown]
# Then the last column, with the padding on the right; and the mask of exhibit two.


# %%
@exercise("5.4")
def newest_rows(real):
    rows, width = real.shape
    return (torch.arange(rows) * width + width - 1)[real.any(dim=1)]


with run_anyway("5.4"):
    padded(TEXTS, side="right")
print()
padded(TEXTS, attention=ExhibitTwo())

# %% [markdown]
# **Before you unfold:** B is right every time. Why? And which of the three faults would you find in a service?

# %% [markdown] folded Reading the ruins
# B is the longest, so its row has no padding. A test with a batch of one, or one that looks at the longest row, is
# green for all three.
#
# The first fault is loud: A and C babble. The second is not: A goes on in good English, from a token that was never
# read in its place, and C is even right by luck. The third is the worst: water boils at *100 degrees Celsius*. True,
# fluent, and not what the model says. Nobody would report it. Only a comparison with the request alone finds it.

# %% [markdown]
# If you want to `check` 5.2 or 5.4 again, run your own cells first.
#
# ## The evidence, in five lines
#
# - **Why faster:** all weights are read once a step and serve every row. The sixteen need 48 or 83 steps, not 156.
# - **Where it wins:** equal lengths (0 % wasted), few shapes, one call for all rows.
# - **Where it loses:** uneven answers in a static group (135 of 200 slots), a long prompt among rows that decode (693
#   of 800), and whoever waits for that rectangle.
# - **How it could mislead:** the same prompt eight times over is the favourite benchmark of padded engines, and wastes
#   nothing. And slots are not seconds: left of the ridge a wasted one costs little.
# - **The command:** `slots([1, 1, 1, 1], [5, 5, 5, 50])` above for any sizes; `grow_table(...)` for the table; the
#   timed cell near the top for your machine.
#
# ## Exam questions
#
# 1. **Explain.** "We pad with an id that the model has never seen, so it cannot disturb anybody." What protects the
#    rows really, and does the id matter?
# 2. **Trace.** Prompts of 2, 5 and 1 tokens, answers of 3, 1 and 2, one static group. Draw the slots of all passes by
#    hand. How many are wasted, of how many?
# 3. **Build.** Compiled kernels like few shapes. Write a `left_pad` that rounds the width up to a multiple of 8. How
#    many slots does the first pass of A, B and C have now?
# 4. **Design.** A service labels texts of at most 128 tokens with one word each, thousands a minute. Padded or not?
#    What would you count before you decide, and what would make you change your mind?

# %% [markdown] folded Answers
# 1. The mask hides it, positions do not count it, and its result is not read. The id does not matter: with all three
#    right any id will do, and with one of them wrong a rare id disturbs as much as a common one.
# 2. First pass 3 by 5, then two columns of 3: 21 slots. Useful are 8 + 2 + 1 = 11, so 10 are wasted.
#    `slots([2, 5, 1], [3, 1, 2])` says the same.
# 3. `width = -(-max(map(len, rows)) // 8) * 8`, the rest as before. 3 rows of 16: 48 slots for 16 tokens.
# 4. Answers of one token leave no second kind of padding; what is left depends on the prompts. Count the share of
#    real tokens in groups as they arrive. If most texts are near 128, or can be grouped by length without waiting
#    for long, pad. If they are mostly short with a few long ones, you pay for the few in every group.

# %% [markdown]
# ## Your part in the engine

# %%
progress()

# %% [markdown]
# Your four parts stand beside the engine, not in it: they are the baseline that it has to beat.
#
# **Read on:** [Roofline: an insightful visual performance model](https://doi.org/10.1145/1498765.1498785), the paper
# that drew the roof first · [Orca](https://www.usenix.org/conference/osdi22/presentation/yu), sections 2 and 3, on
# what happens to requests that finish early and join late ·
# [Continuous batching from first principles](https://huggingface.co/blog/continuous_batching), the post that we
# retell.
#
# **Next, chapter 06:** the same 16 tokens in a row of 16. No rectangle, no padding, and one mask to keep them apart.
