# ruff: noqa: F401, F811, F821, RUF059, ARG001 - names come from the set-up cell, skeletons are unfinished

# %% [markdown]
# # 04 · Chunked prefill: a long prompt in pieces
#
# **CPU** · no network needed · 30 minutes in a workshop, 40 on your own
#
# A prompt need not be read in one go. You write the four functions that cut it up: how many tokens now, which ones,
# who sees whom, and what it costs. They are short. What they decide is how long everybody else waits.

# %% setup

# %%
start(4)

# %% [markdown]
# ## Before you start: three questions
#
# Answer in your head, then unfold.
#
# 1. A prompt of 6 tokens gets 10 new ones. How many tokens does the model compute without a cache, and how many with
#    one?
# 2. Four keys are in the cache and three new tokens come. What shape has their mask, and what stands in its first row?
# 3. At which position does the first of these three stand, and what happens if you start again at 0?

# %% [markdown] folded Answers
# 1. 6 + 7 + ... + 15 = 105 without, 6 + 9 = 15 with. Not 16: nobody reads the last token.
# 2. 3 by 7. Five True, then two False: four old keys and itself.
# 3. At 4. Starting at 0 raises no error. The keys are turned by the wrong angle, and the answer is fluent and wrong.

# %% [markdown]
# ## 4.1 How many tokens now?
#
# Reading the prompt, before the first token of the answer, is called **prefill**. Writing the answer, a token a pass,
# is called **decoding**. So far the whole prompt went through the model in one pass. For a long one that is a very
# large pass: all its scores at once, and nobody else gets a token until it is over.
#
# But you know from chapter 02 that it makes no difference *when* a key was computed, and from chapter 03 how keys are
# kept. So let us read in pieces. A piece is called a **chunk**, and the most tokens that one pass may compute is its
# **budget**. All that a request must remember between two passes is one number: how many of its tokens are computed.
#
# The running example with a budget of 4, after the first pass:

# %%
from minicb import metrics, reference, request
from minicb.course.draw import HUES, draw_bars, draw_chunks, draw_lines, draw_mask, draw_timeline, draw_tokens

TOKENS = ["<bos>", "I", "am", "sure", "this", "pro", "ject"]
draw_tokens(TOKENS, ["cached"] * 4 + ["new"] * 3, positions=True, title="4 computed, 3 to go")

# %% [markdown]
# **Before you run anything.** A prompt of 10 tokens, a budget of 4. How large are its chunks?

# %%
predict("4.P1", None)  # a list of numbers instead of None

# %% [markdown]
# A worked example with other numbers: 7 tokens, budget 3. Read it line by line: what decides the size of a chunk,
# except in the last line?

# %%
for computed in (0, 3, 6):
    left = 7 - computed
    print(f"{computed} computed, {left} left, budget 3: compute {min(left, 3)} now")

# %% [markdown] heading 4.1
# The same for any numbers. If nothing is left the answer is 0, and if the budget is 0 as well.


# %% exercise 4.1
def next_chunk(num_tokens, num_computed, budget):
    """How many tokens to compute now: all that are left, but no more than the budget.

    num_tokens: tokens that the request holds   num_computed: those whose keys and values are in the cache
    """
    return ...


# %% check 4.1

# %%
computed, sizes = 0, []
while computed < 10:
    sizes.append(request.next_chunk(10, computed, 4))
    computed += sizes[-1]
measured("4.P1", sizes)

# %% [markdown]
# Now a surprise. A request that has read its prompt and is writing holds, say, 12 tokens, of which 11 are computed:
# the newest one was sampled just now and has no keys yet. What does your function say?

# %%
print("12 tokens, 11 computed, budget 4:", request.next_chunk(12, 11, 4))

# %% [markdown]
# One. That is decoding. **There are no phases**: reading a long prompt and writing an answer are both "compute the
# next uncomputed tokens". The engine knows no prefill and no decoding, only this number.
#
# ## 4.2 Which tokens, and is it time to sample?
#
# The model gives a row of logits for each token it reads: *what comes after this one?* In the middle of a prompt we
# know what comes, it stands there. Nobody may sample from the middle. Only the row of the request's **last** token is
# a question that is still open.
#
# **Before you run anything.** A prompt of 8 tokens, a budget of 4. After how many passes is the first token of the
# answer there?

# %%
predict("4.P2", None)

# %% [markdown] heading 4.2
# Three values: the first position of the chunk, the position *after* its last token (as in a slice), and whether the
# next token can be sampled afterwards. Use your own `next_chunk`. At least one token of the request is not computed
# yet; the budget may be 0.


# %% exercise 4.2
def next_span(num_tokens, num_computed, budget):
    """Which tokens to compute now, and whether the request's next token can be sampled afterwards.

    returns: the first position, the position after the last one, and True if that reaches the request's end
    """
    end = ... + next_chunk(num_tokens, num_computed, budget)
    return ..., end, ...


# %% check 4.2


# %%
def spans(num_tokens, budget):
    """All chunks of a prompt, as the engine cuts it: (first position, position after the last, sampled?)"""
    found = [request.next_span(num_tokens, 0, budget)]
    while found[-1][1] < num_tokens:
        found.append(request.next_span(num_tokens, found[-1][1], budget))
    return found


for tokens in (8, 10):
    print(f"{tokens} tokens by 4: {spans(tokens, 4)}")
measured("4.P2", len(spans(8, 4)))

# %% [markdown]
# Two passes, not three: the pass that computes the last token of the prompt also gives the first token of the
# answer. And look at the last chunk of each: one is full, the other is not. A short chunk is not the sign of the
# end.
#
# ## 4.3 Who sees whom?
#
# The running example once more, budget 4. The first pass is a square, the second a rectangle: three queries, and
# seven keys of which four come from the cache.

# %%
from minicb.masks import causal_mask, chunk_mask

draw_chunks(spans(7, 4), TOKENS, title="Seven tokens by four")

# %% [markdown]
# Push the two together and you have the causal square of chapter 02, but for the corner at the upper right: 12 cells
# that nobody would have been allowed to look at, and that now are not even computed.

# %% [markdown] heading 4.3
# Both masks are yours already. Here are the lines in the wrong order. One is too many: it is a well-known mistake.
#
# `return causal_mask(num_keys)` · `return chunk_mask(num_new, num_keys)` · `if num_computed == 0:` ·
# `num_keys = num_computed + num_new` · `return causal_mask(num_new)`

# %% exercise 4.3

# %% check 4.3

# %%
new_after_cached = reference.mask_of_chunk(4, 3)
print("shape:", list(new_after_cached.shape), "  visible:", int(new_after_cached.sum()))
print("one decoded token:", reference.mask_of_chunk(11, 1).int().tolist())

# %% [markdown]
# A whole prompt is the widest chunk, a decoded token the narrowest. The line that was too many has a row for every
# token, also for those that ask nothing in this pass.
#
# ## 4.4 What does it cost?
#
# Attention computes every cell of a chunk's rectangle: each query with each key, and then hides some. So a chunk has
# two counts: cells **computed** and cells **visible**.
#
# **Before you run anything.** 10 tokens in one pass are 100 cells. How many are computed with a budget of 4? The
# fewest possible would be the visible ones alone: how many are those? And how large is the largest of the three
# rectangles?

# %%
predict("4.P3", None)  # computed, all chunks together
predict("4.P4", None)  # visible, all chunks together
predict("4.P5", None)  # computed in the largest chunk

# %% [markdown] heading 4.4
# One chunk, as two whole numbers. For the visible ones count what is hidden: of 3 new tokens the first may not see 2
# of them, the second may not see 1, the last sees all.

# %% exercise 4.4

# %% check 4.4

# %% [markdown]
# Now use it. Complete the loop, so that it adds up a whole prompt and keeps the largest chunk.


# %% only=blank
def cost(num_tokens, budget):
    """Of a whole prompt: cells computed, cells visible, and cells computed in the largest chunk."""
    computed = visible = peak = 0
    for start, end, _ in spans(num_tokens, budget):
        cells, seen = metrics.count_cells(start, end - start)
        # two or three lines: add to computed and visible, keep the largest in peak
    return computed, visible, peak


# %% only=solution
def cost(num_tokens, budget):
    """Of a whole prompt: cells computed, cells visible, and cells computed in the largest chunk."""
    computed = visible = peak = 0
    for start, end, _ in spans(num_tokens, budget):
        cells, seen = metrics.count_cells(start, end - start)
        computed, visible, peak = computed + cells, visible + seen, max(peak, cells)
    return computed, visible, peak


# %%
for name, value in zip(("4.P3", "4.P4", "4.P5"), cost(10, 4), strict=True):
    measured(name, value) if value else print(f"{name}  your cost() says 0: its loop is not complete yet")
draw_chunks(spans(10, 4), title="Ten tokens by four")

# %% [markdown]
# 16 + 32 + 20 = 68. The visible cells are 55 for every cut: it is always the same triangle, 10 x 11 / 2.
#
# **Change one number.** Budget 5 or budget 6: which has the larger peak? Say it before you run it. And from which
# budget on does a smaller one gain nothing more?

# %% only=blank
print(cost(10, 5))  # computed, visible, peak; change it, and run again

# %% only=solution
for budget in range(10, 0, -1):
    computed, visible, peak = cost(10, budget)
    passes = len(spans(10, budget))
    print(f"budget {budget:>2}: {passes:>2} passes, {computed:>3} cells computed, peak {peak:>3}")

# %% [markdown] folded Answer
# Budget 5, with a peak of 50; budget 6 has 40. The later a chunk, the wider its rectangle: with 5 the last chunk is
# 5 by 10, with 6 it is 4 by 10. So a smaller budget does not always mean a smaller peak. The end of the road is
# a budget of 1: 55 cells, all visible, and a peak of 10. Nothing is left to save.

# %% [markdown]
# ### Sliders
#
# First without them:


# %%
def explore(tokens, budget):
    draw_chunks(spans(tokens, budget), title=f"{tokens} tokens by {budget}").show()


explore(tokens=12, budget=5)

# %% [markdown]
# Drag (optional). Find a budget for 12 tokens with which every chunk is full. Does that make the fewest white cells?

# %% widget
from ipywidgets import interact

_ = interact(explore, tokens=(1, 16), budget=(1, 16))

# %% [markdown] folded What did you find?
# 1, 2, 3, 4, 6 and 12 divide 12. But the white cells only depend on how small the chunks are: a chunk of n tokens
# has n (n - 1) / 2 of them, whether it is the first or the last.

# %% [markdown]
# ## Quadratic, but from where on?
#
# "Attention is quadratic in the length" is said so often that one thinks of nothing else. It is true, and for most
# prompts it does not matter. Let us count the operations of a prompt of n tokens:
#
# - **Linear layers**: each token meets each weight of the products once, a multiplication and an addition. With P
#   weights: `2 P n`.
# - **Attention**, every cell of the square: D multiplications and additions for the score, D for the mix, in H heads
#   and L layers: `4 L H D n²`.
#
# They are equal where n = P / (2 L H D). For P we need the sizes of a model. Those of the 7B model stand in the
# LLaMA paper (arXiv 2302.13971: table 2, and section 2.2 for the inner size, 8/3 of 4,096, rounded up to a multiple of
# 256). SmolLM2's are read from the model itself.

# %%
from minicb.course.answer import packaged_model

model, tokenizer = packaged_model()
c = model.config
SIZES = {  # layers, hidden size, inner size of the MLP, query heads, KV heads, head size
    "7B": (32, 4096, 256 * math.ceil(8 / 3 * 4096 / 256), 32, 32, 128),
    "SmolLM2-135M": (c.num_layers, c.hidden_size, c.intermediate_size, c.num_heads, c.num_kv_heads, c.head_dim),
}


def products(layers, hidden, inner, heads, kv_heads, size):
    """Weights that every token meets, in all layers."""
    q_k_v, back = hidden * (heads + 2 * kv_heads) * size, heads * size * hidden
    mlp = 3 * hidden * inner  # three products
    return layers * (q_k_v + back + mlp)


def operations(n, layers, hidden, inner, heads, kv_heads, size):
    """Of a prompt of n tokens in one pass: in the linear layers, and in attention."""
    weights = products(layers, hidden, inner, heads, kv_heads, size)
    return 2 * weights * n, 4 * layers * heads * size * n * n


in_the_model = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2 and "embed" not in name)
print(f"SmolLM2's products: {products(*SIZES['SmolLM2-135M']):,} weights by the formula,")
print(f"                    {in_the_model:,} in the model")

# %% [markdown]
# (The last layer, from hidden numbers to the vocabulary, is left out: only sampled rows go through it.)
#
# In chapter 01 you saw about 25,000 for the 7B model. **Before you run anything:** is SmolLM2's number, with 60
# times fewer weights, higher or lower?

# %%
predict("4.P6", None)  # "higher" or "lower"

# %%
LENGTHS = [128, 512, 2048, 8192, 32768, 131072]
lines, meet = {}, {}
for name, sizes in SIZES.items():
    linear, attention = zip(*(operations(n, *sizes) for n in LENGTHS), strict=True)
    lines[f"{name}, linear layers"] = (LENGTHS, [count / 1e12 for count in linear])
    lines[f"{name}, attention"] = (LENGTHS, [count / 1e12 for count in attention])
    meet[name] = LENGTHS[0] * linear[0] / attention[0]
measured("4.P6", "lower" if meet["SmolLM2-135M"] < meet["7B"] else "higher")
draw_lines(
    lines,
    x_label="tokens of the prompt",
    y_label="operations in 10\u00b9\u00b2",
    log_x=True,
    log_y=True,
    colors={name: HUES[0] if name.startswith("7B") else HUES[1] for name in lines},
    title="Attention catches up with the linear layers, late",
    data="equal at " + ", ".join(f"{n:,.0f} tokens ({name})" for name, n in meet.items()),
)

# %% [markdown]
# Lower: 3,072. The weights grow with the *square* of a model's width, the scores only with the width, so in a narrow
# model attention catches up early. With the white half of the square left out (small chunks, or a kernel that skips
# it) both numbers double. At 1,000 tokens attention is 4 % of a 7B model's work. **Whoever tells you that chunks are
# there to save operations has not counted.**
#
# What are they for, then? For the peak. If the scores lie in memory, one layer of the 7B model with a prompt of 32,768
# tokens needs, in 2 bytes a number and 32 heads:

# %%
for budget in (32768, 512):
    peak = max(metrics.count_cells(start, end - start)[0] for start, end, _ in spans(32768, budget))
    print(f"budget {budget:>6,}: largest chunk {peak:>13,} cells, {peak * 32 * 2 / 1e9:>5.2f} GB of scores")

# %% [markdown]
# Fused kernels never keep the scores; for them only the other rows of a pass get fewer, such as the MLP's 11,008
# numbers a token. But there is a reason that holds for all of them.
#
# ## It changes when, never what
#
# **Safety.** One hundred random prompts on the tiny model. The budget is drawn anew in every pass. The answer must be
# that of the prompt in one go.

# %%
import random

from minicb.course.table import continuous, grow_table, longest_gap
from minicb.course.tiny import model as tiny_model
from minicb.engine import Engine
from minicb.sampling import SamplingParams


def engine_of(budget, on_step=None):
    return Engine(
        tiny_model(),
        attention="reference",
        max_num_batched_tokens=budget,
        max_num_seqs=4,
        max_model_len=64,
        on_step=on_step,
    )


def answer_ids(prompt, next_budget):
    """The ids of four new tokens, and how many passes it took; `next_budget()` gives the budget of each."""
    engine, ids, passes = engine_of(64), [], 0
    engine.add_request(prompt, SamplingParams(max_tokens=4, ignore_eos=True))
    while engine.has_unfinished_requests:
        engine.scheduler.max_num_batched_tokens = next_budget()
        ids += [event.token_id for event in engine.step()]
        passes += 1
    return ids, passes


dice, same, passes = random.Random(4), 0, 0
for _ in range(100):
    prompt = [dice.randint(1, 63) for _ in range(dice.randint(1, 20))]
    whole, _ = answer_ids(prompt, lambda: 64)
    cut, took = answer_ids(prompt, lambda: dice.randint(1, 7))
    same, passes = same + (cut == whole), passes + took
print(f"{same} of 100 answers are the same, in {passes} passes instead of {100 * 4}")

# %% [markdown]
# **Motive.** A is writing its answer, a token a pass. Then B comes with a prompt of 40. Both go through the model
# together, in one pass (how that works is chapter 06; here it is the reference's business). While B's prompt is
# computed, A waits.
#
# **Before you run anything.** Count tokens computed between two tokens of A, whoever they are for. With B's prompt in
# one go that is 41 at worst: 40 of B and one of A itself. And with a budget of 8?

# %%
predict("4.P7", None)


# %%
def b_comes(budget):
    """A writes; after its fourth token B comes with a prompt of 40. The records of all steps."""
    steps, prompt_of_b = [], list(range(1, 41))
    engine = engine_of(budget, steps.append)
    engine.add_request([3, 1, 4], SamplingParams(max_tokens=14, ignore_eos=True), request_id="A")
    while engine.has_unfinished_requests:
        if len(steps) == 4:
            engine.add_request(prompt_of_b, SamplingParams(max_tokens=3, ignore_eos=True), request_id="B")
        engine.step()
    return steps


runs = {"B's prompt whole": b_comes(64), "budget 8": b_comes(8)}
measured("4.P7", longest_gap(runs["budget 8"]))
draw_timeline(runs, title="B comes while A is writing")

# %% [markdown]
# In the timeline every pass is one column, whatever it costs. So once more, with the cost: how many tokens were
# computed for each token of A?

# %%
waits = {name: [step.token_slots for step in steps] for name, steps in runs.items()}
draw_lines(
    {name: (range(1, len(costs) + 1), costs) for name, costs in waits.items()},
    x_label="token of A's answer",
    y_label="tokens computed since the one before",
    title="What A waits for",
    data="; ".join(f"{name}: {max(costs)} at most, {sum(costs)} in all" for name, costs in waits.items()),
)

# %% [markdown]
# The same work, flattened. A token of A costs at most 8 now, whatever B brings. **A budget bounds everybody's
# waiting**, and that is why engines cut prompts. Who pays? B, a little: its first token comes later. In passes, and
# in tokens computed since it came:

# %%
for name, steps in runs.items():
    of_b = {i: entry for i, step in enumerate(steps) for entry in step.entries if entry.request_id == "B"}
    began, first = min(of_b), next(i for i, entry in of_b.items() if entry.sampled)
    queue, prefill = began - 4, first + 1 - began
    assert queue + prefill == first + 1 - 4  # time to first token = queue + prefill, exactly
    work = sum(step.token_slots for step in steps[4 : first + 1])
    print(f"{name:<17} queue {queue} + prefill {prefill} passes, {work} tokens computed until B's first token")

# %% [markdown]
# ### The table grows
#
# The same requests as in the chapters before. "chunked" serves one after the other, so there is nobody to wait for
# anybody. The two last rows are a foretaste of chapter 07: four requests at a time, their prompts whole, or cut to
# the budget.

# %%
from dataclasses import replace


def four_at_once(workload):
    return continuous(replace(workload, budget=256))


grow_table("naive", "cached", "chunked", ("at once, whole", four_at_once), ("at once, chunked", continuous))

# %% [markdown]
# "chunked" against "cached": a few more steps and nothing gained. Alone, a chunk is no help. In company, read the last
# column with care. Three requests that start together do better with whole prompts (3 against 8): all is read before
# anybody has a token to wait for. Of the sixteen, most start while others write: 29 against 16. And 16 is a promise,
# because it is the budget; 29 is only how the prompts happened to fall.
#
# ## Where it loses: every pass reads the whole model
#
# A pass must fetch all weights from memory, for 1,000 tokens or for one. SmolLM2 has 134.5 million of 4 bytes: 0.54 GB
# a pass. It also reads the keys and values in the cache, 46,080 bytes a token (chapter 03). **Before you run
# anything.** A prompt of 1,024 tokens, one token at a time: how many GB of weights are read?

# %%
predict("4.P8", None)

# %%
weight_bytes = 4 * sum(p.numel() for p in model.parameters())
read = {}
for budget in (1024, 256, 64, 16, 4, 1):
    cut = spans(1024, budget)
    peak = max(metrics.count_cells(start, end - start)[0] for start, end, _ in cut)
    weights, cache = len(cut) * weight_bytes / 1e9, sum(end for _, end, _ in cut) * 46_080 / 1e9
    read[f"budget {budget}"] = weights + cache
    gigabytes = f"{weights:>6.1f} GB of weights, {cache:>4.1f} of cache"
    print(f"budget {budget:>5}: {len(cut):>5} passes, {gigabytes}; peak {peak:,} cells")
measured("4.P8", round(weights))
draw_bars(read, unit="GB", digits=1, title="Bytes read for a prompt of 1,024 tokens: weights and cache")

# %% [markdown]
# A budget of 1 has the fewest cells, the smallest peak, and is the worst choice of all. It reads the model a
# thousand times.
#
# ### The experiment that failed
#
# We hoped that fewer cells would mean less time, and read 256 tokens in pieces. Seconds of the processor, after one
# pass to warm up:

# %% timed
import time


def seconds(prompt, budget):
    limits = {"max_num_seqs": 1, "max_model_len": 300, "max_num_batched_tokens": budget}
    engine = Engine(model, attention="reference", **limits)
    engine.add_request(prompt, SamplingParams(max_tokens=1))
    began = time.process_time()
    while engine.has_unfinished_requests:
        engine.step()
    return time.process_time() - began


sentence = "Bread is older than writing, and nobody knows who baked it first. "
long_prompt = tokenizer.encode(sentence * 30)[:256]
seconds(long_prompt, 256)
for budget in (256, 64, 16, 8):
    print(f"budget {budget:>3}: {seconds(long_prompt, budget):5.2f} s")

# %% [markdown]
# Nothing is gained, and with small chunks much is lost. At 256 tokens attention is 256 / (256 + 3,072) = 8 % of
# SmolLM2's work. Chunks save less than half of that and pay with passes. So a budget is chosen as *large* as the
# others' patience allows, not as small as possible. Chapter 08 chooses one.
#
# ## From the bug museum: nothing left to do
#
# An engine keeps the keys of prompts it has seen, and a new request that begins alike need not compute them again.
# This function says which chunks such a request still needs. Its test tries every number of cached tokens below 10,
# and is green.


# %%
def exhibit(num_tokens, num_cached, budget):
    """The chunks (first, end) of a prompt whose first num_cached tokens are in the cache already."""
    chunks, computed = [], num_cached
    while True:
        first, computed, sampled = request.next_span(num_tokens, computed, budget)
        chunks.append((first, computed))
        if sampled:
            return chunks


def mended(num_tokens, num_cached, budget):
    return exhibit(num_tokens, min(num_cached, num_tokens - 1), budget)


def their_test(chunks_of):
    for cached in range(10):
        chunks = chunks_of(10, cached, 4)
        assert chunks[0][0] == cached  # begins where the cache ends
        assert chunks[-1][1] == 10  # ends with the prompt
        assert sum(end - first for first, end in chunks) == 10 - cached  # nothing twice, nothing forgotten


def colour(test, chunks_of):
    try:
        test(chunks_of)
    except AssertionError:
        return "red"
    return "green"


print("their test, on the exhibit:    ", colour(their_test, exhibit))
print("their test, on the mended one: ", colour(their_test, mended))

# %% [markdown]
# Write the assertion that is red for the exhibit and green for the mended one. (Do not try a budget of 0. Why not?)


# %% only=blank
def your_test(chunks_of):
    """Fail where their test does not look."""
    # assert ...


print("your test, on the exhibit:    ", colour(your_test, exhibit))
print("your test, on the mended one: ", colour(your_test, mended))


# %% only=solution
def your_test(chunks_of):
    assert all(end > first for first, end in chunks_of(10, 10, 4))  # no chunk without a token


print("your test, on the exhibit:    ", colour(your_test, exhibit))
print("your test, on the mended one: ", colour(your_test, mended))

# %% [markdown] folded What was missing?
# The request whose prompt is in the cache *whole*. Its chunk is (10, 10): no token, and marked as sampled. But the
# logits come from the last token's row, and no row was computed: keys and values were kept, logits were not. The mended
# one computes the last token again; that is the price of a full hit.
#
# With a budget of 0 the chunk is empty as well, the end is never reached, and the loop never ends.

# %% [markdown]
# What does an engine do with such a chunk? The next cell tells ours that all of B's prompt is computed, while A
# beside it reads its own. `first_tokens` prints who got which token in the first pass.


# %%
def first_tokens(computed_of_b):
    engine = engine_of(64)
    engine.add_request([3, 1, 4], SamplingParams(max_tokens=4), request_id="A")
    engine.add_request([9, 7, 9, 3], SamplingParams(max_tokens=4), request_id="B")
    engine.requests["B"].num_computed_tokens = computed_of_b  # never do this at home
    return {event.request_id: event.token_id for event in engine.step()}


print("nothing of B computed:   ", first_tokens(0))
print("said to be computed whole:", first_tokens(4))

# %% [markdown]
# No error. "The last row of B's chunk" is the row before its (empty) end, and that is the last row of A. **B goes on
# with A's token.** In a service somebody has just been given the beginning of somebody else's answer. So our engine
# keeps a rule, and its tests check it after every step: a request that runs has at least one token to compute.
#
# ## On the real model
#
# SmolLM2 reads the running example in two chunks. `watch` keeps what your mask function answered.

# %%
from minicb.course.inside import watch

with watch("4.3") as calls:
    answer("I am sure this project", feed=[3, 2], attention="reference")
answer("I am sure this project", attention="reference")

# %%
words = ["I", "am", "sure", "this", "project"]
draw_mask(
    calls[1].result,
    words[3:],
    words,
    col_roles=["cached"] * 3 + ["new"] * 2,
    title="The second chunk, inside SmolLM2",
)

# %% [markdown]
# ### Now break it on purpose
#
# A span that is always sampled. It would not pass its check, so `run_anyway` puts it in for one answer. First the
# prompt in one go, then 4 tokens and 1.


# %%
@exercise("4.2")
def next_span(num_tokens, num_computed, budget):
    end = min(num_computed + budget, num_tokens)
    return num_computed, end, True


run_anyway("4.2", "I am sure this project", attention="reference")
run_anyway("4.2", "I am sure this project", feed=[4, 1], attention="reference")
run_anyway("4.2", "The capital of France is", feed=[3, 2], attention="reference")

# %% [markdown]
# **Read what comes out before you unfold.** Where does the first word of the second answer come from?

# %% [markdown] folded Reading the ruins
# In one go nothing is wrong: the only chunk is the last one. A test with short prompts never sees this bug.
#
# In two chunks the model is asked after `I am sure this`, and says ` is`. That is a good answer to that question. But
# the token is appended where tokens are appended: behind the prompt. So the model reads `I am sure this project is`,
# and makes the best of it. The text is fluent and the prompt is no longer what the user wrote.

# %% [markdown]
# The last lines say whose function is back. If you want to `check("4.2")` again, run your own cell first.
#
# ## The evidence, in five lines
#
# - **Why faster:** it is not, for the request that is cut. It makes the *others* faster: 8 tokens instead of 41
#   between two of theirs.
# - **Where it wins:** long prompts beside running answers; and where scores lie in memory, the peak (1.07 GB instead
#   of 68.72).
# - **Where it loses:** alone, and in small pieces: 1,024 passes over the weights read 551 GB where one reads 0.54.
# - **How it could mislead:** counting cells, 55 against 100, looks like half the work. At 256 tokens all of attention
#   is 8 %. And "the longest gap" says nothing about the one who came with the long prompt.
# - **The command:** `longest_gap(b_comes(8))` with any budget; `cost(10, 4)` for cells.
#
# ## Exam questions
#
# 1. **Explain.** Why may the middle of a prompt never be sampled, although the model computes logits for it, and why
#    does no crash tell you?
# 2. **Trace.** 11 tokens, 3 of them in the cache from before, budget 4. List the chunks, the shapes of their masks and
#    the cells computed.
# 3. **Build.** Change `next_chunk` so that a chunk always ends at a multiple of 16 tokens, but for the last one. What
#    must it do where the budget is smaller than 16?
# 4. **Design.** Instead of a budget of tokens you could give a budget of score cells. Whom would that treat better,
#    whom worse, and what would the passes late in a long prompt look like?

# %% [markdown] folded Answers
# 1. The row answers a question whose answer stands in the prompt already. Whatever is drawn is a token like any other,
#    so nothing crashes; it just lands behind the prompt.
# 2. (3, 7), (7, 11): two masks, 4 by 7 and 4 by 11, 28 + 44 = 72 cells. `metrics.count_cells(3, 4)` and `(7, 4)`
#    agree.
# 3. Round `num_computed + chunk` down to a multiple of 16 unless it is the request's end. With a smaller budget that
#    may leave 0 tokens, for ever: the museum's bug. Then the chunk must be taken as it is.
# 4. It bounds the time of attention better, because late chunks are wide. But most of the work is in the linear
#    layers, which go by tokens: below 25,000 tokens a budget of tokens is nearer to the truth. Late chunks would
#    shrink, and each of their tokens would pay for more reading of weights.

# %% [markdown]
# ## Your part in the engine

# %%
progress()

# %% [markdown]
# **Read on:** [SARATHI](https://arxiv.org/abs/2308.16369) had the idea of cutting prompts and letting decoding ride
# along; [Sarathi-Serve](https://arxiv.org/abs/2403.02310) measures what it does for the others' waiting ·
# [FlashAttention](https://arxiv.org/abs/2205.14135) computes attention without ever keeping the scores ·
# [LLaMA](https://arxiv.org/abs/2302.13971) has the sizes used above.
#
# **Next, chapter 05:** more than one request at a time, at first in the way that everybody tries first: fill them up
# to the same length. Count what that costs.
