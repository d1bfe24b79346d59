# ruff: noqa: F821, F841, F811, ARG001 - names come from the set-up cell, skeletons are unfinished, a mask is broken twice

# %% [markdown]
# # 02 · Masks: who may look at whom
#
# **CPU** · no network needed · 30 minutes in a workshop, 40 on your own
#
# A mask answers one question, over and over: *may this token look at that one?* You write four of them. The first is
# a triangle. The last is a single rule, and it lets strangers share one batch without reading each other's mail.

# %% setup

# %%
start(2)

# %% [markdown]
# ## Before you start: three questions
#
# Answer in your head, then unfold.
#
# 1. A query meets five keys that are all the same. What share of its attention does each get?
# 2. To hide a key you change its *score*. To what, and before or after softmax?
# 3. Two tokens have exactly the same largest logit. Which one does `greedy_pick` take, and why does it matter?

# %% [markdown] folded Answers
# 1. A fifth, 0.2: equal scores, equal shares, and a row of weights adds up to 1.
# 2. To minus infinity, before softmax: `exp(-inf)` is 0, and the others share what is left.
# 3. The one with the lower index, always. Otherwise the same prompt could get two different answers, and you could
#    not tell a bug from bad luck.

# %% [markdown]
# ## 2.1 All tokens at once
#
# The running example of this course has seven tokens. A model reads them and is asked what comes next.

# %%
from minicb import masks  # the engine's four; each is yours once it has passed its check
from minicb.course.draw import draw_bars, draw_mask, draw_tokens

TOKENS = ["<bos>", "I", "am", "sure", "this", "pro", "ject"]
draw_tokens(TOKENS, positions=True, title="The running example")

# %% [markdown]
# The number under a token is its **position**: how many tokens of its text stand before it.
#
# When the model writes, the next token does not exist yet. So nobody may look ahead: a token sees itself and what
# stands before it. This is called **causal**.
#
# A **mask** writes it down. It has a row for each query (who looks) and a column for each key (who is looked at).
# True means *may look*.
#
# **Before you run anything.** Six tokens give a square of 36 cells. How many of them are True?

# %%
predict("2.P1", None)  # your number instead of None

# %% [markdown]
# A worked example, for four tokens. Start with everybody seeing everybody, then keep the lower triangle (`tril`):

# %%
everybody = torch.ones(4, 4, dtype=torch.bool)
print(everybody.tril().int())

# %% [markdown]
# Read row 2 aloud: "the third token sees tokens 0, 1 and 2, but not 3".

# %% [markdown] heading 2.1
# Now for any number of tokens. One line is missing.


# %% exercise 2.1
def causal_mask(num_tokens):
    """A whole sequence at once: each token sees itself and everything before it.

    num_tokens: int
    returns: bool [num_tokens, num_tokens], True = may look
    """
    everybody = torch.ones(num_tokens, num_tokens, dtype=torch.bool)
    return ...


# %% check 2.1

# %%
measured("2.P1", int(masks.causal_mask(6).sum()))

# %% [markdown]
# Row 0 has one visible cell, row 1 two, row 5 six: 1 + 2 + 3 + 4 + 5 + 6 = 21. For n tokens it is n(n + 1)/2, a bit
# more than half of the square. Here is the mask of the seven tokens:

# %%
draw_mask(
    masks.causal_mask(7),
    TOKENS,
    TOKENS,
    frame_row=2,
    note="this row: what 'am' may look at",
    title="Causal mask",
)

# %% [markdown]
# **Find the bug.** "True counts as 1 and False as 0, so I multiply the scores by the mask." Three keys, and the last
# one is hidden:

# %%
scores = torch.tensor([-2.0, -1.0, -3.0])
seen = torch.tensor([True, True, False])

multiplied = torch.softmax(scores * seen, dim=0)
hidden = torch.softmax(scores.masked_fill(~seen, -math.inf), dim=0)
print("multiplied by the mask:    ", [f"{share:.2f}" for share in multiplied.tolist()])
print("minus infinity where False:", [f"{share:.2f}" for share in hidden.tolist()])

# %% [markdown] folded What went wrong?
# The hidden key got the *largest* share, 0.67. A score of 0 does not hide anything: `exp(0)` is 1, and here 0 is even
# the best score of the three. Hidden means a score of minus infinity. "Adding a mask" means adding 0 where True and
# minus infinity where False; `masked_fill` does the same in one go.

# %% [markdown]
# ## 2.2 Half of the prompt is in the cache
#
# So far all tokens came at once: seven queries, seven keys, a square. From chapter 03 on that is the exception. The
# engine keeps the keys of old tokens in a **cache** and feeds only the new ones. Then there are *fewer queries than
# keys*.
#
# Take the seven tokens and feed them in two goes: first `<bos> I am sure`, then `this pro ject`. In the second go
# there are 3 queries. The keys are all 7: four from the cache, three new.
#
# **Before you run anything.** The mask now has 3 rows and 7 columns. How many of its 21 cells are visible?

# %%
predict("2.P2", None)

# %%
second_go = masks.causal_mask(7)[4:]  # the last three rows of the square
measured("2.P2", int(second_go.sum()))
draw_mask(second_go, TOKENS[4:], TOKENS, col_roles=["cached"] * 4 + ["new"] * 3, title="The second go")

# %% [markdown]
# It is the bottom of the square. For `this` nothing has changed: it still sees itself and everything before it.
# Whether a key was computed now or a minute ago makes no difference to who may look at it. **Remember that sentence.
# Chunked prefill, decoding and the whole of continuous batching follow from it.**
#
# One thing does change: row 0 of this mask is not position 0. The first new token stands at position 4, because four
# tokens stand before it.
#
# **Once more, with other numbers.** Two new tokens after four cached ones. How many visible cells?

# %%
predict("2.P3", None)

# %% [markdown]
# **A tool for it: compare all with all.** `a[:, None]` stands a row of numbers up as a column, `b[None, :]` lies
# flat. A comparison of the two gives a cell for each pair. Row i belongs to `a[i]`, column j to `b[j]`:

# %%
a, b = torch.tensor([1, 3]), torch.tensor([0, 1, 2, 3])
print((a[:, None] == b[None, :]).int())

# %% [markdown] heading 2.2
# You could cut the mask from the square. But then you build a square of a thousand rows for one new token after 999
# old ones, and throw all but one away. Compare positions instead: fill in both blanks. With 3 queries and 7 keys
# `query_pos` should hold 4, 5, 6.


# %% exercise 2.2
def chunk_mask(num_queries, num_keys):
    """Which keys may each of the newest `num_queries` tokens see?

    num_queries, num_keys: ints, num_queries <= num_keys
    returns: bool [num_queries, num_keys], True = may look
    """
    query_pos = ...  # int [num_queries]: where each query stands in its sequence
    key_pos = torch.arange(num_keys)  # int [num_keys]: the keys stand at 0, 1, 2, ...
    return ...


# %% check 2.2

# %%
measured("2.P3", int(masks.chunk_mask(2, 6).sum()))

# %% [markdown]
# The first new token sees 4 + 1 keys, the second 4 + 2: together 11.
#
# **Find the bug.** PyTorch's fused attention has a switch for all this, `is_causal=True`. Let us see which keys it
# lets each query look at. A trick shows it: give every key a value of its own, a row of the identity matrix. Then the
# answer of a query *is* its row of weights, and where that is above 0, there it has looked.

# %%
import torch.nn.functional as F

dice = torch.Generator().manual_seed(0)
q, k = torch.randn(2, 1, 7, 4, generator=dice)  # [H, T, D] and [H, S, D]: 1 head of size 4
identity = torch.eye(7)[None]

attention = F.scaled_dot_product_attention
one_go = attention(q, k, identity, is_causal=True)[:, 4:]  # all 7 at once, the last 3 rows
by_mask = attention(q[:, 4:], k, identity, attn_mask=masks.chunk_mask(3, 7))
by_switch = attention(q[:, 4:], k, identity, is_causal=True)

print("same as one go, with your mask:     ", torch.allclose(by_mask, one_go, atol=1e-6))
print("same as one go, with is_causal=True:", torch.allclose(by_switch, one_go, atol=1e-6))
draw_mask(
    by_switch[0] > 0,
    TOKENS[4:],
    TOKENS,
    col_roles=["cached"] * 4 + ["new"] * 3,
    title="Where is_causal=True has looked",
)

# %% [markdown] folded What went wrong?
# The switch draws its staircase from the top left corner: it takes row 0 for position 0. So `this` sees `<bos>` and
# nothing else, not even itself. In a square the two corners agree, so the mistake shows only once there is a cache.
# It is the most common one in this subject. (PyTorch has the right one too:
# `torch.nn.attention.bias.causal_lower_right`.)

# %% [markdown]
# ### The bug museum: their tests were green
#
# Here is a chunk mask as found in the wild, with the test that came with it. The test compares it with the causal
# square, for every length up to 8.


# %%
def exhibit(num_queries, num_keys):
    return torch.ones(num_queries, num_keys, dtype=torch.bool).tril()


def their_test(chunk_mask):
    for n in range(1, 9):
        assert torch.equal(chunk_mask(n, n), masks.causal_mask(n))


def colour(test, mask):
    try:
        test(mask)
    except AssertionError:
        return "red"
    return "green"


print("their test, on the exhibit:       ", colour(their_test, exhibit))
print("their test, on the engine's mask: ", colour(their_test, masks.chunk_mask))

# %% [markdown]
# Green and green. Write the one assertion that their test forgot: red for the exhibit, green for the right mask.


# %% only=blank
def your_test(chunk_mask):
    """Fail for a mask that is wrong where their test does not look."""
    # assert ...


print("your test, on the exhibit:       ", colour(your_test, exhibit))
print("your test, on the engine's mask: ", colour(your_test, masks.chunk_mask))


# %% only=solution
def your_test(chunk_mask):
    assert chunk_mask(1, 5).all()  # the newest token sees everything


print("your test, on the exhibit:       ", colour(your_test, exhibit))
print("your test, on the engine's mask: ", colour(your_test, masks.chunk_mask))

# %% [markdown] folded What was missing?
# Every case of their test is a square, and squares are where this bug hides. One new token after four cached ones is
# enough: it must see all five keys. When you test a mask, test *fewer queries than keys*.

# %% [markdown]
# ## 2.3 Two requests in one row
#
# Two people send a prompt: A has 3 tokens, B has 2. We lay them end to end in one row of 5 tokens, so that one pass
# of the model serves both. That is called **packing**. Positions restart with each request: 0 1 2 for A, 0 1 for B.
#
# Is that enough to keep them apart? Here is the plain causal mask over the whole row:

# %%
draw_mask(masks.causal_mask(5), row_owners="AAABB", col_owners="AAABB", title="One staircase for two")

# %% [markdown]
# A visible cell has the colour of the key's owner. The rows of B are full of A's colour: six cells through which B
# reads A's prompt. The positions restarted, but a mask of rows and columns does not care about positions.
#
# **Before you run anything.** With nothing visible between A and B, how many of the 25 cells are left?

# %%
predict("2.P4", None)

# %% [markdown] heading 2.3
# A triangle for each sequence on the diagonal, False everywhere else. Any number of sequences, any lengths. Your
# own `masks.causal_mask(n)` may help; so may `torch.block_diag`, or a square of False into which you paste.

# %% exercise 2.3

# %% check 2.3

# %%
two = masks.block_mask([3, 2])
measured("2.P4", int(two.sum()))
draw_mask(two, row_owners="AAABB", col_owners="AAABB", title="A block for each request")

# %% [markdown]
# ### What leaks without it
#
# `packed` puts two requests into one row of the real model and lets it answer both. The engine's mask comes first,
# then one staircase over the whole row. A's prompt holds a secret, and B asks for it.

# %%
from minicb.course.packed import in_one_row, packed


def one_staircase(mask):
    return masks.chunk_mask(*mask.shape)


PROMPTS = {"A": "The secret word is banana.", "B": "The secret word is"}
print("A block for each request")
packed(PROMPTS)
print("\nOne staircase over the row")
leaky = packed(PROMPTS, one_staircase)

# %% [markdown]
# B has never been told the word. This is the mask that the model used when it read the two prompts:

# %%
draw_mask(leaky[0], row_owners="AAAAAABBBB", col_owners="AAAAAABBBB", title="How B came to know")

# %% [markdown]
# Nothing crashed, and the text reads well. In a service this is one customer's prompt in another customer's answer.
#
# The course keeps a table of ways to serve the same requests, and you met its first row in chapter 00. Two more,
# packed with the right mask and packed with the staircase:

# %%
from minicb.course.table import grow_table

grow_table("naive", ("packed, blocks", in_one_row()), ("packed, staircase", in_one_row(one_staircase)))

# %% [markdown]
# The last two rows count the same in every column but the first. A wrong mask is exactly as fast as a right one, so
# no benchmark will find it. *Tokens identical?* comes first for that reason.
#
# ### What a block mask does not save
#
# Requests of different lengths can also be filled up to equal length, with **padding**: places in a rectangle that
# hold nobody's token (chapter 05). Packing needs none. But look at the white cells between the
# blocks. A dense mask does not stop them from being computed. Attention first works out *every* score, all queries by
# all keys, and only then hides the white ones: (all queries) times (all keys) cells.
#
# **Before you run anything.** Eight prompts of 16 tokens in one row of 128: 16,384 cells. What part of them is
# visible, in whole per cent?

# %%
predict("2.P5", None)

# %%
rows = {f"{n} prompt{'s' * (n > 1)}": masks.block_mask([16] * n) for n in (1, 2, 4, 8)}
measured("2.P5", round(100 * float(rows["8 prompts"].float().mean())))
draw_bars(
    {name: mask.numel() for name, mask in rows.items()},
    {name: int((~mask).sum()) for name, mask in rows.items()},
    unit="cells",
    title="Score cells under one dense mask; hatched: computed and thrown away",
)

# %% [markdown]
# Twice the prompts, twice the useful cells, four times the work. The waste has not gone away. **It has moved from the
# padded slots into attention.**
#
# The course's own three requests have prompts of 3, 9 and 4 tokens. Padded to a rectangle they take 3 x 9 x 9 = 243
# cells. Packed under one dense mask:

# %%
lengths = [3, 9, 4]
useful = int(masks.block_mask(lengths).sum())
for way, cells in {
    "padded to 9": len(lengths) * max(lengths) ** 2,
    "packed, one dense mask": sum(lengths) ** 2,
    "packed, block by block": sum(n * n for n in lengths),
}.items():
    print(f"{way:<24}{cells:>4} cells computed, {useful} useful: {100 * useful / cells:.0f} %")

# %% [markdown]
# The dense mask computes *more* cells than padding did. What helps is not to compute the white cells at all: the
# engine goes block by block and cuts each request's rows and columns out of your mask. You build that loop in chapter
# 06.

# %% [markdown]
# ## 2.4 One rule
#
# Now everything at once, in one row of 8 new tokens. A reads its prompt, 3 tokens. B is in the middle of its answer:
# one new token after four cached ones. C reads its prompt, 4 tokens.
#
# The keys lie end to end as well: A's 3, B's 5, C's 4. Neither a square nor a rectangle nor a row of triangles will
# do. But each token knows two things about itself: which request it belongs to, and its position there.
#
# **Before you run anything.** 8 queries, 12 keys, 96 cells. How many are visible?

# %%
predict("2.P6", None)

# %% [markdown] heading 2.4
# When may a query look at a key? Say it in one sentence with one "and" in it. Then write the sentence down: two
# comparisons of all with all, as in 2.2. The "and" of two masks is `&`, with brackets around each comparison.

# %% exercise 2.4

# %% check 2.4

# %%
q_seq, q_pos = torch.tensor([0, 0, 0, 1, 2, 2, 2, 2]), torch.tensor([0, 1, 2, 4, 0, 1, 2, 3])
k_seq, k_pos = torch.tensor([0] * 3 + [1] * 5 + [2] * 4), torch.tensor([0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 3])
mixed = masks.visible(q_pos, q_seq, k_pos, k_seq)

measured("2.P6", int(mixed.sum()))
draw_mask(
    mixed,
    row_owners="AAABCCCC",
    col_owners="AAABBBBBCCCC",
    col_roles=["new"] * 3 + ["cached"] * 4 + ["new"] * 5,
    title="One row, three requests",
)

# %% [markdown]
# A triangle of 6, a row of 5, a triangle of 10. The other three masks are cases of this one. A cell can say so:


# %%
def numbers(lengths):
    """Positions and sequence numbers of whole sequences laid end to end."""
    seq = [i for i, n in enumerate(lengths) for _ in range(n)]
    pos = [p for n in lengths for p in range(n)]
    return torch.tensor(pos), torch.tensor(seq)


same = 0
for n in range(1, 10):
    pos, seq = numbers([n])
    same += torch.equal(masks.visible(pos, seq, pos, seq), masks.causal_mask(n))
    for new in range(1, n + 1):
        same += torch.equal(masks.visible(pos[-new:], seq[-new:], pos, seq), masks.chunk_mask(new, n))
        pos_2, seq_2 = numbers([n, new])
        same += torch.equal(masks.visible(pos_2, seq_2, pos_2, seq_2), masks.block_mask([n, new]))
print(f"{same} of 99 masks are what the one rule gives")

# %% [markdown]
# Now play. The function draws one row with two requests: A has `cached` keys and feeds `new` tokens, B reads a prompt
# of `other`.


# %%
def explore(cached, new, other):
    pos = torch.cat([torch.arange(cached + new), torch.arange(other)])
    seq = torch.tensor([0] * (cached + new) + [1] * other)
    draw_mask(
        masks.visible(pos[cached:], seq[cached:], pos, seq),
        row_owners="A" * new + "B" * other,
        col_owners="A" * (cached + new) + "B" * other,
        col_roles=["cached"] * cached + ["new"] * (new + other),
        title=f"{cached} cached and {new} new of A, {other} of B",
    ).show()


explore(cached=4, new=3, other=2)

# %% [markdown]
# Drag the sliders (optional; they need a running notebook). Find the setting with the most white cells, and one
# without any.

# %% widget
from ipywidgets import interact

_ = interact(explore, cached=(0, 8), new=(1, 6), other=(0, 6))

# %% [markdown] folded What did you find?
# One new token with `other` at 0 leaves no white cell: it may see everything there is. So decoding one request needs
# no mask at all, and "everything visible" passes every test that only decodes. At the other end, 6 new after 8 cached
# beside 6 of B: 240 cells, 150 of them white. Only 30 are somebody's future. The other 120 lie between the requests.

# %% [markdown]
# **Find the bug.** What happens to a query that may see nothing at all?

# %%
from minicb.attention import weights

nothing = torch.full((3,), -math.inf)
print("softmax over three hidden keys:", torch.softmax(nothing, dim=0).tolist())
print("a share of 0 times that:       ", 0 * math.nan)
print("the engine's weights:          ", weights(torch.zeros(1, 1, 3), torch.zeros(1, 3, dtype=torch.bool)).tolist())

# %% [markdown] folded What went wrong, and can it happen here?
# All scores are minus infinity, softmax divides 0 by 0, and the result is NaN. In the next layer that NaN is
# somebody's key and value. Hiding it does not help, because 0 times NaN is NaN: one empty row spoils the whole batch.
# That is why `weights` of chapter 01 gives such a row zeros. With the one rule no row is empty, as every token sees
# itself. A padding token (chapter 05) has nobody to look at, and there it happens.

# %% [markdown]
# ## It changes when, never what
#
# First the safety, then the motive; you will see these two headings often.
#
# **Safety.** A prompt of 7 tokens can be fed in 64 ways: all at once, one by one, 4 and 3, 2 and 2 and 3. Each cut
# changes *when* a token is computed. It must not change *what* comes out. We try all 64, on a tiny model with random
# weights.

# %%
from itertools import pairwise, product

from minicb.course.answer import generate
from minicb.course.tiny import model
from minicb.engine import Engine


def fed(pieces):
    """Feed a prompt of 7 tokens in these pieces: the ids of the answer, and a record of each step of the prompt."""
    steps = []
    engine = Engine(model(), attention="reference", max_num_seqs=1, max_model_len=32, on_step=steps.append)
    events = generate(engine, [1, 57, 23, 44, 9, 38, 16], pieces, 6)
    return tuple(event.token_id for event in events), steps[: len(pieces)]


def all_ways(n):
    for cuts in product([False, True], repeat=n - 1):
        places = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), n]
        yield [b - a for a, b in pairwise(places)]


answers = {fed(pieces)[0] for pieces in all_ways(7)}
print(f"{len(list(all_ways(7)))} ways to feed the prompt, different answers: {len(answers)}")

# %% [markdown]
# **Motive.** Why feed in pieces, then? The engine keeps a record of each step. It counts the cells that attention
# computed and those that the mask let through.


# %%
def count(pieces):
    _, steps = fed(pieces)
    cells, useful = sum(step.score_cells for step in steps), sum(step.useful_cells for step in steps)
    print(f"{pieces!s:<24}passes: {len(steps)}   cells computed: {cells}   visible: {useful}")


for pieces in ([7], [4, 3], [1] * 7):
    count(pieces)

# %% [markdown]
# The visible cells are 28 whatever you do: it is the same triangle, cut into bands. Smaller pieces only compute less
# of the white above the diagonal. The price is passes, runs of the whole model, and each pass reads all of its weights
# from memory: for SmolLM2 135 million numbers of 4 bytes, 0.54 GB.
#
# The stronger reasons come later. Old keys need not be computed again (chapter 03). And between two pieces of a long
# prompt other requests can have their turn (chapters 04 and 07).
#
# **Change one number.** Instead of `[4, 3]` feed `[6, 1]`. More cells than 37, or fewer? And which cut in two
# computes the fewest?

# %% only=blank
count([4, 3])  # change it, and run again

# %% only=solution
for first in range(1, 7):
    count([first, 7 - first])

# %% [markdown] folded Answer
# More: `[6, 1]` computes 6 x 6 + 1 x 7 = 43 cells. With a first piece of a tokens it is a² + 7(7 - a), smallest in
# the middle: 37 for `[4, 3]`, and for `[3, 4]` too. In every line 28 cells are visible.

# %% [markdown]
# ## On the real model
#
# SmolLM2 reads the prompt in two goes, 3 tokens and then 2. Each pass asks your masks. `watch` keeps what the chunk
# mask answered.

# %%
from minicb.course.inside import watch

with watch("2.2") as calls:
    answer("The capital of France is", feed=[3, 2], attention="reference")

# %% [markdown]
# Now in one go, and in five. Before you run it: how often will the chunk mask be asked each time?

# %%
answer("The capital of France is", attention="reference")
answer("The capital of France is", feed=[1, 1, 1, 1, 1], attention="reference")

# %% [markdown]
# Word for word the same. The chunk mask is asked once for each pass that finds keys in the cache: 8 times in two goes
# (the second piece, then seven decoded tokens), 7 in one go, 11 in five. This is the first mask that it gave, as the
# model used it:

# %%
words = ["The", "capital", "of", "France", "is"]
draw_mask(
    calls[0].result,
    words[3:],
    words,
    col_roles=["cached"] * 3 + ["new"] * 2,
    title="The second go, inside SmolLM2",
)

# %% [markdown]
# ### Now break it on purpose
#
# The staircase from the top left corner, in the real model. It would not pass its check, so `run_anyway` puts it in
# for one answer and takes it out again.


# %%
@exercise("2.2")
def chunk_mask(num_queries, num_keys):
    return torch.ones(num_queries, num_keys, dtype=torch.bool).tril()


run_anyway("2.2", "The capital of France is", attention="reference")
run_anyway("2.2", "The capital of France is", feed=[3, 2], attention="reference")

# %% [markdown]
# **Read what comes out before you unfold.** The first answer begins well, the second does not. Why?

# %% [markdown] folded Reading the ruins
# In one go the prompt is a square, which `causal_mask` answers: the first token, ` Paris`, is right. From then on
# each new token is one query with a cache behind it. The staircase shows it key 0, the word `The`, and nothing else.
# The model has forgotten the question and its own answer, and all it can do is repeat itself.
#
# In two goes the second piece is broken already. ` is` sees `The capital` and not `of France`.
#
# A test that looks at one token of an answer would have passed the first of the two.

# %% [markdown]
# The last lines say whose mask is back in the engine. If you want to `check("2.2")` again, run your own cell first.
#
# ## The evidence, in five lines
#
# - **Why faster:** a mask computes nothing, it only says what need not be looked at. Time is saved where code acts on
#   it: keys kept instead of computed again, blocks cut out instead of hidden.
# - **Where it wins:** one new token after a long text (a row, not a square), and many short requests in one pass.
# - **Where it loses:** many requests under one *dense* mask: 256 cells for 61 useful ones, more than padding's 243.
#   And small pieces: seven passes over the weights for seven tokens.
# - **How it could mislead:** the table's *useful share* says 100 % for the packed rows, because it counts tokens and
#   not cells. And a wrong mask is exactly as fast.
# - **The command:** `count([4, 3])` above for any cut; `grow_table(...)` for the same requests served in any way.
#
# ## Exam questions
#
# 1. **Explain.** Your colleague says: "Request B's positions start at 0 again, so it cannot see request A." What is
#    the mistake?
# 2. **Trace.** A has 5 keys in the cache and feeds 2 tokens, B feeds its whole prompt of 3. Draw the 5 by 10 mask by
#    hand and count its visible cells.
# 3. **Build.** Sliding-window attention: a query sees only the newest `window` positions, itself included. Which
#    comparison do you add to `visible`? Try it with a window of 2.
# 4. **Design.** Two requests begin with the same 500 tokens, and you want to keep their keys only once. What does the
#    rule "same sequence" have to become? What may differ between the requests, and what must not?

# %% [markdown] folded Answers
# 1. A position tells the model where a token stands; it hides nothing. Only the mask keeps requests apart. In 2.3 the
#    positions restarted, and B knew the word.
# 2. 6 + 7 for A, 1 + 2 + 3 for B: 19 of 50. `explore(5, 2, 3)` draws it.
# 3. `k_pos[None, :] > q_pos[:, None] - window`, joined with another `&`. With a window of 2 each token sees itself
#    and one more.
# 4. "Same sequence" becomes "the key is in the list of keys that this request owns or shares". Positions and tokens
#    of the shared part must be equal in both, from the first token on: a key depends on everything before it. What
#    follows may differ. It is called prefix caching, and nothing in attention changes for it.

# %% [markdown]
# ## Your part in the engine

# %%
progress()

# %% [markdown]
# **Read on:** [Attention Is All You Need](https://arxiv.org/abs/1706.03762), section 3.2.3, has the causal mask in
# one sentence ·
# [scaled_dot_product_attention](https://pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html)
# says in its code which corner it counts from · [FlexAttention](https://pytorch.org/blog/flexattention/) takes your
# rule as a function and compiles a kernel that skips the white blocks.
#
# **Next, chapter 03:** the keys and values that you have been looking at are kept, and every token is computed once.
