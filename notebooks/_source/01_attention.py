# ruff: noqa: F821, F811, ARG001 - names come from the set-up cell, and some are redefined to break them

# %% [markdown]
# # 01 · Attention: three small steps
#
# **CPU** · no network needed · 35 minutes in a workshop, 45 on your own
#
# A token that enters the model knows only itself. Everything it learns about the other tokens it learns through
# **attention**. This chapter takes attention apart into three functions, and you write all three. At the end they
# answer a question inside the real model.

# %% setup

# %%
start(1)

# %% [markdown]
# ## Before you begin
#
# 1. What does greedy do with a row of logits, and what if two of them are equal?
# 2. A prompt of 9 tokens gets 5 new ones, and the whole text is read again for each. Which lengths does the model
#    read?
# 3. Where is your `greedy_pick` kept, and what happens if you delete this notebook?

# %% [markdown] folded Answers
# 1. It takes the place of the largest; of equal ones the lowest index.
# 2. 9, 10, 11, 12, 13: 55 tokens for 5 new ones.
# 3. In `.minicb/work/0.1_greedy_pick.py`. Nothing happens to it: that file is the only state.

# %% [markdown]
# ## The running example
#
# Seven tokens go with us through the course. The model is asked what comes next, and the right answer is `will`.

# %%
from minicb import attention
from minicb.course.draw import draw_attention, draw_bars, draw_matrix, draw_tokens

TOKENS = ["<bos>", "I", "am", "sure", "this", "pro", "ject"]
draw_tokens(TOKENS, positions=True, title="The running example").show()

# %% [markdown]
# That is how the post which this course follows cuts the sentence. Every model has its own tokenizer. **Before you
# run on:** into how many tokens does SmolLM2's cut `I am sure this project`?

# %%
predict("1.P1", None)  # your number instead of None

# %%
from minicb.course.answer import packaged_model

model, tokenizer = packaged_model()
ids = tokenizer.encode("I am sure this project")
print([tokenizer.decode([i]) for i in ids])
measured("1.P1", len(ids))

# %% [markdown]
# No `<bos>` in front, spaces belong to the words behind them, and `project` is one token. The drawings keep the
# seven, because a word in two pieces is good to look at. The answers come from the real five.
#
# ## 1. Scores: how well do two tokens match?
#
# Each token turns what it knows into three rows of D numbers:
#
# - its **query**: what it is looking for,
# - its **key**: what it can be found by,
# - its **value**: what it has to give.
#
# The **score** of a query and a key is their dot product: multiply number by number and add up. If both point the
# same way it is large, if they have nothing in common it is 0. Then divide by the square root of D; in a moment you
# will see why.
#
# Here is one query and three keys with D = 4, by hand.

# %%
query = [2, 0, 0, 0]
for key in ([4, 0, 0, 0], [0, 4, 0, 0], [3, 0, 0, 5]):
    dot = sum(a * b for a, b in zip(query, key, strict=True))
    print(f"key {key}: dot product {dot}, score {dot / math.sqrt(4)}")

# %% [markdown]
# **Before you run on.** A second query is `[0, 2, 0, 2]`. What is its score with the last key, `[3, 0, 0, 5]`?

# %%
predict("1.P2", None)  # your number instead of None

# %%
measured("1.P2", (0 * 3 + 2 * 0 + 0 * 0 + 2 * 5) / math.sqrt(4))

# %% [markdown]
# The engine does this for all queries and all keys at once, and for several **heads**: each head is a comparison of
# its own, with its own queries and keys. Queries lie in a tensor `q` of shape `[T, H, D]`: T tokens, H heads, D
# numbers. Keys lie in `k` of shape `[S, H, D]`. T and S may differ: chapter 02 needs that.
#
# `torch.einsum` says such a product in letters. A letter that is missing in the result is added up. Compare the
# loop and the letters:

# %%
a, b = torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(4, 3)  # [t, d] and [s, d]

loop = torch.zeros(2, 4)
for t in range(2):
    for s in range(4):
        for d in range(3):
            loop[t, s] += a[t, d] * b[s, d]

print(loop)
print(torch.equal(loop, torch.einsum("td,sd->ts", a, b)))

# %% [markdown] heading 1.1
# The dot products are there, head by head. The division is missing: D is the last dimension of `q`. The result has
# a row for each query and a column for each key, with the heads in front: `[H, T, S]`.


# %% exercise 1.1
def scores(q, k):
    """How well does each query match each key?

    q: [T, H, D]   k: [S, H, D]
    returns: [H, T, S], the dot products divided by sqrt(D)
    """
    dots = torch.einsum("thd,shd->hts", q, k)
    return dots / ...


# %% check 1.1

# %% [markdown]
# From here on the notebook calls `attention.scores`, the engine's: that is yours as soon as the check says `[ok]`.
# Seven tokens, one head, D = 4, random numbers:

# %%
generator = torch.Generator().manual_seed(7)
q, k, v = (torch.randn(7, 1, 4, generator=generator) for _ in range(3))  # [T, H, D]
raw = attention.scores(q, k)  # [H, T, S]
draw_matrix(raw[0], TOKENS, TOKENS, title="Scores of one head").show()

# %% [markdown]
# ### Find the bug: the forgotten root
#
# Code that leaves out the division runs, and a test that compares shapes is green. What does it cost? The next cell
# lets 200 random queries look at 20 keys and asks how large the *largest* share of a query is, on average. An even
# split would be 0.05.

# %%
dice = torch.Generator().manual_seed(0)
for size in (4, 64, 1024):
    queries, keys = (torch.randn(n, 1, size, generator=dice, dtype=torch.float64) for n in (200, 20))
    bare = torch.einsum("thd,shd->hts", queries, keys)
    for name, these in (("forgotten", bare), ("divided", attention.scores(queries, keys))):
        spread, share = float(these.std()), float(torch.softmax(these, dim=-1).amax(dim=-1).mean())
        print(f"D = {size:4}  root {name:9}  spread {spread:5.1f}  largest share {share:.2f}")

# %% [markdown]
# Why does the spread grow? A dot product is a sum of D random products, and such a sum spreads like the square root
# of D. Without the division a head with D = 1024 gives nearly everything to one token. With it the spread
# is 1 at every size.
#
# ## 2. Weights: from scores to shares
#
# A row of scores says what matches. To mix the values we need **shares**: none negative, together 1. **Softmax**
# does that: raise e to each score, divide by the sum of the row.
#
# **Before you run on.** A query looks at five identical keys. Which share does each get?

# %%
predict("1.P3", None)  # your number instead of None

# %%
same = torch.ones(5, 1, 4)
shares = attention.weights(attention.scores(same[:1], same), torch.ones(1, 5, dtype=torch.bool))
print([round(share, 3) for share in shares[0, 0].tolist()])
measured("1.P3", round(float(shares[0, 0, 0]), 3))

# %% [markdown]
# It did not matter *how well* they matched, only that all match alike.
#
# Not every token may look at every other. Who may look at whom is said by the **mask**: a table of True (may look)
# and False. Who makes the mask is the business of chapter 02; here it is given.
#
# A hidden key must get a share of exactly 0, and the others must share the whole. So it must be hidden *before*
# softmax, by a score of minus infinity: e to the minus infinity is 0. By hand, scores `[1, 2, 4]` with the third
# one hidden:

# %%
powers = [math.exp(1), math.exp(2), math.exp(-math.inf)]
print([round(power / sum(powers), 3) for power in powers])

# %% [markdown] heading 1.2
# Three lines, one for each step:
#
# 1. Hidden places get minus infinity. `masked_fill(where, value)` returns a copy with `value` wherever `where` is
#    True; `~mask` turns True and False round.
# 2. Softmax over the keys. Which dimension of `[H, T, S]` is that?
# 3. A query that may see nothing at all must get zeros. `mask.any(dim=-1, keepdim=True)` has shape `[T, 1]` and
#    says for each query whether it may see anything; you need the rows where that is *not* so.
#
# Minus infinity is `-math.inf` or `float("-inf")`. The reference has a line more, which only matters in half
# precision.


# %% exercise 1.2
def weights(scores, mask):
    """Turn each row of scores into shares that add up to 1, over the visible keys only.

    scores: [H, T, S]   mask: bool [T, S], True = may look
    returns: [H, T, S]; a query that may see nothing gets zeros, not NaN.
    """
    hidden = scores.masked_fill(..., ...)
    shares = torch.softmax(hidden, dim=...)
    return shares.masked_fill(..., 0.0)


# %% check 1.2

# %% [markdown]
# For our seven tokens, with the mask of a language model: each token sees itself and what stands before it.

# %%
seen = torch.ones(7, 7, dtype=torch.bool).tril()
shares = attention.weights(raw, seen)  # [H, T, S]
title, data = "Weights", "each row adds up to 1 over the keys that it may see"
draw_matrix(shares[0], TOKENS, TOKENS, mask=seen, totals=True, title=title, data=data).show()

# %% [markdown]
# ### Find the bug: a mask that is multiplied
#
# Also found in the wild: the scores are multiplied by the mask, where True is 1 and False is 0. The test stands
# below, and it is green. The sums are right, so where is the bug?
#
# **Before you run on.** Scores `[1, 2, 4]`, the third one hidden in this way. Which share does the hidden key get?
# (e is about 2.7, e squared about 7.4.)

# %%
predict("1.P4", None)  # your number instead of None; two digits will do

# %%
row, visible = torch.tensor([[[1.0, 2.0, 4.0]]]), torch.tensor([[True, True, False]])
multiplied = torch.softmax(row * visible, dim=-1)

assert torch.allclose(multiplied.sum(dim=-1), torch.ones(1, 1))  # their test: every row adds up to 1
print([round(share, 3) for share in multiplied[0, 0].tolist()])
measured("1.P4", round(float(multiplied[0, 0, 2]), 2))

# %% [markdown]
# A score of 0 is a score like any other: e to the 0 is 1. The hidden token still speaks, more softly. **Write the
# assertion that would have failed**, then open the fold.

# %% [markdown] folded An assertion that fails
# `assert (multiplied[:, ~visible] == 0).all()`: a hidden key has a share of exactly 0. Or, closer to what we want:
# change the hidden key's score, and nothing may change. A test of sums cannot see who got the shares.

# %% [markdown]
# ### Find the bug: one empty row, and everything is NaN
#
# Why the third line of `weights`? Minus infinity everywhere gives 0 divided by 0. And a NaN does not stay where it
# is: a share of 0 does not remove it, because 0 times NaN is NaN.

# %%
empty = torch.softmax(torch.full((3,), float("-inf")), dim=-1)
print(empty)
print(0.0 * empty[0])
print(attention.weights(torch.zeros(1, 1, 3), torch.zeros(1, 3, dtype=torch.bool)))

# %% [markdown]
# A padded row, or a request that has nothing to do in this step, is such an empty row. One of them could turn the
# whole batch into NaN, neighbours included.
#
# ### Change a number
#
# Add 100 to every score of a row. What happens to the shares? Multiply every score by 2. What now? Guess both, then
# let the engine answer.

# %%
everything = torch.ones(1, 3, dtype=torch.bool)
changed = {"as they are": row, "plus 100": row + 100, "times 2": row * 2, "times 0": row * 0}
for name, these in changed.items():
    three = attention.weights(these, everything)[0, 0]
    print(f"{name:12}", [round(share, 3) for share in three.tolist()])

# %% [markdown]
# Only differences between scores count; a factor makes the choice sharper or flatter. (That factor has a name where
# the next token is chosen: it is one over the *temperature*.)
#
# ## 3. Mix: add up what they have to give
#
# The last step is the shortest. Each token takes the values of all keys, each by its share, and adds them up.
# Shares `0.5, 0.5, 0` and values `[2, 4]`, `[6, 8]`, `[9, 9]`:

# %%
values, parts = [[2, 4], [6, 8], [9, 9]], [0.5, 0.5, 0]
print([sum(part * value[i] for part, value in zip(parts, values, strict=True)) for i in range(2)])

# %% [markdown] heading 1.3
# Do it for all heads and all queries at once. Weights are `[H, T, S]`, values `[S, H, D]`. The result is `[T, H,
# D]`: the tokens come first again. In `einsum` letters: which of h, t, s, d disappears?

# %% exercise 1.3

# %% check 1.3

# %% [markdown]
# ## All three together
#
# This is attention, whole. The matrices stand where the product rule puts them: a score lies in the row of its
# query and under its key. Follow the framed row from left to right: the query of `sure`, its scores, the mask, its
# weights, its mix.


# %%
def show_head(query=3, sharpness=1.0):
    """One head over the seven tokens, through the engine's three functions."""
    raw = sharpness * attention.scores(q, k)
    shares = attention.weights(raw, seen)
    mixed = attention.mix(shares, v)
    parts = (q[:, 0], k[:, 0], v[:, 0], raw[0], shares[0], mixed[:, 0], seen)
    title = f"Attention, and what \u201c{TOKENS[query]}\u201d does in it"
    draw_attention(*parts, rows=TOKENS, cols=TOKENS, frame_row=query, title=title).show()


show_head()

# %% [markdown]
# Sliders, if your notebook shows them: another query, and scores that are made sharper or flatter. Watch the row of
# weights. With 0 every visible key gets the same.

# %% widget
from ipywidgets import FloatSlider, IntSlider, interact

_ = interact(show_head, query=IntSlider(3, min=0, max=6), sharpness=FloatSlider(1, min=0, max=8, step=0.25))

# %% [markdown]
# ### First safety: is it the same attention that everybody else has?
#
# PyTorch has attention in one call, *fused*: the scores never lie in memory as a whole. Fifty random shapes, in
# float64, ours against theirs:

# %%
agree = 0
for seed in range(50):
    dice = torch.Generator().manual_seed(seed)
    tokens, heads, size = (int(torch.randint(1, 9, (), generator=dice)) for _ in range(3))
    qs, ks, vs = (torch.randn(tokens, heads, size, generator=dice, dtype=torch.float64) for _ in range(3))
    mask = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    ours = attention.attend(qs, ks, vs, mask)  # mix(weights(scores(q, k), mask), v)
    heads_first = (x.transpose(0, 1) for x in (qs, ks, vs))
    theirs = torch.nn.functional.scaled_dot_product_attention(*heads_first, attn_mask=mask)
    agree += torch.allclose(ours, theirs.transpose(0, 1), atol=1e-12)
print(f"{agree} of 50 shapes agree to 12 digits")

# %% [markdown]
# ### Then the motive: why three steps?
#
# Because they are not equally dear, and not equally interesting. Steps 1 and 3 are products. Step 2 is where the
# mask works, and the mask is where batching happens: from chapter 02 on almost everything is a question of *who may
# look at whom*.
#
# How much work is it? Each query meets each key, so a prompt of 7 tokens has 49 scores a head. **Before you run
# on:** a prompt of 14?

# %%
predict("1.P5", None)  # your number instead of None

# %%
from minicb.engine import Engine
from minicb.sampling import SamplingParams
from minicb.weights import random_model

steps = []
for length in (7, 14):
    engine = Engine(random_model(), attention="reference", max_num_seqs=1, max_model_len=32)
    engine.on_step = steps.append
    engine.add_request([5] * length, SamplingParams(max_tokens=1))
    engine.step()
    print(f"{length} tokens: {steps[-1].score_cells} scores, {steps[-1].useful_cells} of them visible")
measured("1.P5", steps[-1].score_cells)

# %% [markdown]
# Twice as long, four times the scores. A model is a stack of **layers**, each with one attention and one block of
# other products (the MLP); those only double. So on short texts they are nearly everything, and on long ones
# attention takes over. How many keys must a token have before its attention costs as much as all the rest? For a
# model with 7 billion
# parameters, 32 layers and rows of 4,096 numbers:

# %%
products = 2 * 6.6e9  # operations a token: nearly every weight multiplies and adds once
each_key = 2 * 2 * 4096 * 32  # operations a token and key: two for the score, two for the mix, in all layers
print(f"about {round(products / each_key, -3):,.0f} keys")

# %% [markdown]
# ## Does attention know the order of the words?
#
# Take four tokens that all see each other. To keep it small, each token's query, key and value is the token itself.
# Now swap tokens 1 and 2. **Before you run on:** what happens to the output of token 0?

# %%
predict("1.P6", None)  # "changes" or "unchanged"

# %%
x = torch.randn(4, 1, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
swapped = x[[0, 2, 1, 3]]
all_see_all = torch.ones(4, 4, dtype=torch.bool)


def verdict(one, other):
    return "unchanged" if torch.allclose(one, other) else "changes"


before, after = (attention.attend(these, these, these, all_see_all) for these in (x, swapped))
measured("1.P6", verdict(before[0], after[0]))

# %% [markdown]
# A sum does not care in which order it is added. Where all see all, a token in front cannot tell `dog bites man`
# from `man bites dog`. So the model marks each query and key with its **position**: it turns them by an
# angle that grows with the position (*rotary embedding*, RoPE), before they meet in the scores.

# %%
from minicb.model import rotate

positions, speeds = torch.arange(4, dtype=torch.float64), torch.tensor([1.0, 0.1, 0.01, 0.001])
angles = positions[:, None, None] * speeds  # [T, 1, D/2]


def with_positions(these):
    turned = rotate(these, angles.cos(), angles.sin())
    return attention.attend(turned, turned, these, all_see_all)


print("with positions, token 0's output", verdict(with_positions(x)[0], with_positions(swapped)[0]))

# %% [markdown]
# Remember it for chapters 03 and 06: a right mask with wrong positions is wrong, and nothing complains.
#
# ## 4. Heads: one row, cut into pieces
#
# In SmolLM2 the queries of a token come as one row of 576 numbers. It is 9 heads of 64: the first 64 numbers are
# head 0, the next 64 head 1, and so on. After attention the rows are merged again. Here, a row of 6 as 3 heads of
# 2:

# %%
print(torch.arange(6), "->", torch.arange(6).reshape(3, 2).tolist())

# %% [markdown] heading 1.4
# One line does it. Here are its pieces in the wrong order; put them together:
#
# `num_heads,` · `return` · `x.shape[1] // num_heads)` · `x.shape[0],` · `x.reshape(`

# %% exercise 1.4

# %% check 1.4

# %% [markdown]
# Its inverse is `merge_heads`, right under it in `minicb/attention.py`. There is no exercise in it: read it.

# %%
row_of_tokens = torch.arange(12.0).reshape(2, 6)
print(torch.equal(attention.merge_heads(attention.split_heads(row_of_tokens, 3)), row_of_tokens))

# %% [markdown]
# ## 5. Fewer key heads than query heads
#
# Keys and values must be kept for every token of every running request: that is the KV cache of chapter 03, and it
# is what fills the memory of a server. So modern models have fewer of them. In **grouped-query attention** (GQA)
# neighbouring query heads share one KV head. SmolLM2 has 9 query heads and 3 KV heads: query heads 0, 1, 2 read KV
# head 0.
#
# **Before you run on:** which KV head does query head 5 read?

# %%
predict("1.P7", None)  # your number instead of None

# %%
kv_heads = torch.arange(3.0)[None, :, None]  # [S, Hkv, D]: one key, KV head i holds the number i
served = attention.repeat_kv(kv_heads, 3)[0, :, 0]
print([int(head) for head in served])
measured("1.P7", int(served[5]))

# %% [markdown] heading 1.5
# The three functions above want as many key heads as query heads. So the few are spread out first: from `[S, Hkv,
# D]` to `[S, Hkv * num_repeats, D]`, each head `num_repeats` times, in the order 0, 0, 0, 1, 1, 1. The heads are
# dimension 1.
#
# PyTorch has `repeat` and `repeat_interleave`. One lays whole copies end to end, the other repeats each element in
# place. Try both on `torch.tensor([0, 1])` if you are not sure.

# %% exercise 1.5

# %% check 1.5

# %% [markdown]
# What is gained? Keys and values (KV for short) are kept in a cache, as chapter 03 will show, and it keeps the 3, not
# the 9. Here is what a token of SmolLM2 leaves behind: a key and a
# value, in 30 layers, 64 numbers a head, 4 bytes each. The middle bar is the real model. Before you run on, change
# a number in your head: what if it had a single KV head?

# %%
config = model.config
cost = {
    f"{n} KV head{'s' * (n > 1)}": 2 * config.num_layers * n * config.head_dim * 4
    for n in (config.num_heads, config.num_kv_heads, 1)
}
draw_bars(cost, unit="bytes a token", title="What a token leaves in the cache").show()

# %% [markdown]
# ## On the real model
#
# Now the functions of this chapter answer inside SmolLM2, and the line under the answer says whose they are. The
# model has 30 layers, and you ask for 8 tokens. **Before you run on:** how often is `scores` called?

# %%
predict("1.P8", None)  # your number instead of None

# %%
from minicb.course.inside import watch

with watch("1.1") as calls:
    answer("I am sure this project", attention="reference")
measured("1.P8", len(calls))

# %% [markdown]
# There it is: `will`. Eight tokens, each through 30 layers. The first of the eight came out of reading the prompt.
#
# The same look inside shows what the heads do in this sentence. Here is one head of a middle layer, drawn from the
# tensor that the engine used:

# %%
with watch("1.2") as calls:
    answer("I am sure this project", attention="reference", max_tokens=1)

words = [tokenizer.decode([i]).strip() for i in ids]
layer, head = 21, 0
_, mask = calls[layer].args
shares = calls[layer].result[head]
title = f"SmolLM2, layer {layer}, head {head}"
draw_matrix(shares, words, words, mask=mask, title=title).show()

# %% [markdown]
# Try other layers and heads (0 to 29, 0 to 8). In how many of them does the last token give more than 0.8 of its
# attention to the first?

# %%
sinks = sum(int((call.result[:, -1, 0] > 0.8).sum()) for call in calls)
print(f"{sinks} of {len(calls) * model.config.num_heads} heads")

# %% [markdown]
# A place to look when there is nothing to look for: it is called an *attention sink*.
#
# ### Where it differs from the fused kernel
#
# Nowhere but in rounding. The engine has a fast back end for daily use. Both read the prompt; these are all logits
# of the next token.

# %%
from minicb.kernels import best_attention


def next_logits(back_end):
    engine = Engine(model, attention=back_end, max_num_seqs=1, max_model_len=64)
    engine.add_request(ids, SamplingParams(max_tokens=1))
    with watch("0.1") as picks:
        engine.step()
    return picks[0].args[0][0]


step_by_step, fused = next_logits("reference"), next_logits(best_attention(model))
difference = float((step_by_step - fused).abs().max())
best, second = step_by_step.topk(2).values.tolist()
print(f"{len(fused):,} logits, the largest is {best:.1f}")
print("same token:", bool(step_by_step.argmax() == fused.argmax()))
print("largest difference below 0.0001:", difference < 1e-4)
print("the best two are more than 0.1 apart:", best - second > 0.1)

# %% [markdown]
# ### Now break it on purpose
#
# `run_anyway` puts a wrong version into the engine for once and takes it out again. Your checked version stays
# where it is. First the mask that is multiplied:


# %%
@exercise("1.2")
def weights(scores, mask):
    return torch.softmax(scores * mask, dim=-1)


run_anyway("1.2", "The capital of France is")

# %% [markdown]
# Fluent, and wrong. It does not crash, and no shape is off. A hidden future leaks a little into every token of the
# prompt, and that is enough. Now the forgotten root:


# %%
@exercise("1.1")
def scores(q, k):
    return torch.einsum("thd,shd->hts", q, k)


run_anyway("1.1", "The capital of France is")

# %% [markdown]
# And now with no scores at all: every visible token gets the same share, so nobody can choose whom to listen to.


# %%
@exercise("1.2")
def weights(scores, mask):
    even = mask / mask.sum(dim=-1, keepdim=True)
    return even.to(scores.dtype).expand_as(scores)


run_anyway("1.2", "The capital of France is")

# %% [markdown]
# (If you check 1.1 or 1.2 again now, you check these. Run your own cell above first.)
#
# And whole again, with the receipt: which parts were whose.

# %%
answer("The capital of France is")

# %%
receipt()

# %% [markdown]
# ## The table
#
# The first row, now through your attention. *Naive* is one request at a time, everything read again for each token.

# %%
from minicb.course.table import grow_table

grow_table("naive")

# %% [markdown]
# Of 2,181 tokens computed for the sixteen requests, 1,872 had been computed before. Chapter 03 removes all of them.
#
# ## The evidence line
#
# - **Why**: every token can reach every other one in a single step, whatever lies between them.
# - **Where it wins**: wherever something far back decides. And all queries of a prompt can be computed together.
# - **Where it loses**: the scores grow with the square of the length, and the cache with every token. GQA makes the
#   cache smaller, not the scores: each of the 9 query heads still meets every key. And fewer KV heads can tell less
#   apart: a model has to be trained for it.
# - **How a measurement could mislead**: on short prompts attention costs next to nothing beside the other products,
#   so a fast attention looks useless; on long ones it looks like everything. Say the lengths. And an answer that
#   reads well proves nothing, as you have just seen.
# - **The command**: `answer(prompt, attention="reference")`, then `receipt()`.
#
# ## Could you explain it?
#
# 1. *Explain.* Why is the mask applied before softmax and not after it?
# 2. *Trace.* Scores `[0, 0, 0, 5]`, the last one hidden. Which shares? And with the mask multiplied?
# 3. *Build.* A model wants each token to see only the last 4 tokens, itself included. Which of the three functions
#    changes?
# 4. *Design.* You may choose 9, 3 or 1 KV heads for a new model that serves many long conversations. What speaks
#    for each, and what would you measure?

# %% [markdown] folded Answers
# 1. After softmax the hidden keys have taken their shares already, and the row no longer adds up to 1. Before it,
#    minus infinity becomes exactly 0 and the rest share the whole.
# 2. A third each. Multiplied, the hidden score becomes 0 like the others: a quarter each, and one of them for a key
#    that nobody may see.
# 3. None. The mask changes: `q_pos - k_pos < 4` is added to its rule. That is a sliding window, and the engine has
#    it.
# 4. 9: the finest distinctions, three times the cache of 3. 1: the smallest cache, so the most requests at the same
#    time, but quality falls. 3 is a compromise. Measure quality at equal training, and how many requests of your
#    length fit into the memory you have: every token costs 2 · layers · KV heads · D numbers.

# %%
progress()

# %% [markdown]
# **What to read next.** Vaswani et al., "Attention Is All You Need" (2017), section 3.2: three pages, and you have
# written them. Ainslie et al., "GQA" (2023), for the shared heads. And the first part of "Continuous batching from
# first principles" (Hugging Face, 25 November 2025), whose running example you know by now.
#
# Next: `02_masks.ipynb`. Who may look at whom?
