# ruff: noqa: F821, F841, F811, ARG001, PIE790 - names come from the set-up cell, skeletons are unfinished

# %% [markdown]
# # 03 · One token at a time, and the KV cache
#
# **CPU** · no network needed · 45 minutes in a workshop, 55 on your own
#
# A model that writes ten words reads its prompt ten times, and nine of these are for nothing. In this chapter you
# find out what changes from one word to the next, keep the rest, and then every token is computed once. What you
# keep is the **KV cache**. It is the largest thing that an engine has to look after.

# %% setup

# %%
start(3)

# %% [markdown]
# ## Before you start: three questions
#
# Answer in your head, then unfold.
#
# 1. One new token comes after four old ones. Its mask has 1 row and 5 columns. How many cells are visible?
# 2. SmolLM2 has 9 query heads and 3 KV heads. What do the query heads 3, 4 and 5 have in common?
# 3. A sentence goes on. Do the keys of its first words change?

# %% [markdown] folded Answers
# 1. All five: it may look at everything that stands before it and at itself. One new token needs no mask.
# 2. They read the same KV head, number 1.
# 3. No. Nobody looks ahead, so nothing that comes later can reach them. The whole chapter rests on this answer.

# %% [markdown]
# ## 3.1 Read everything again
#
# The loop of chapter 00 in its plainest form: let the model read the text, append the token that it proposes, and
# ask again. The model keeps nothing. So each time it reads the *whole* text, from the first token to the newest.
#
# The work is counted in **token-forwards**: one token going once through the whole model. A prompt of 3 tokens and
# 3 new ones: the model reads 3 tokens, then 4, then 5. That makes 12. (The last new token is never read, because
# nobody asks what comes after it.)
#
# **Before you run anything.** A prompt of 6 tokens, 10 new ones. How many token-forwards?

# %%
predict("3.P1", None)  # your number instead of None

# %% [markdown] heading 3.1
# `next_token` stands for the model: you give it a list of ids, it says which id comes next. The prompt belongs to
# somebody else, so the loop works on a copy. What has to happen in each round, and what is the answer at the end?


# %% exercise 3.1
def generate_naive(next_token, prompt, max_tokens):
    """Write an answer token by token; for each, the whole text so far is read again.

    next_token: reads all the ids that it is given and returns the id that comes next
    returns: the `max_tokens` ids of the answer, without the prompt
    """
    text = list(prompt)
    for _ in range(max_tokens):
        ...
    return ...


# %% check 3.1

# %% [markdown]
# Now with a real model behind it. A `Reader` is a model with room for one text: `read(ids)` computes these ids and
# says which token comes next. Here a new one is made for every pass, so it remembers nothing. The list `passes` gets
# two numbers for each pass: how many tokens were remembered, and how many had to be computed.

# %%
from minicb import cache, naive  # the engine's parts; each is yours once it has passed its check
from minicb.course.answer import packaged_model
from minicb.course.draw import draw_attention, draw_bars, draw_cache, draw_lines, draw_matrix, draw_passes
from minicb.course.reader import Reader

model, tokenizer = packaged_model()
prompt = tokenizer.encode("I am very sure this project")
passes = []


def next_token(text):
    return Reader(model, passes=passes).read(text)


naive_ids = naive.generate_naive(next_token, prompt, 10)
words = [tokenizer.decode([i]).strip() for i in prompt + naive_ids]
print(repr(tokenizer.decode(naive_ids)))
measured("3.P1", sum(count for _, count in passes))
draw_passes(passes, words, title="Nothing is kept").show()

# %% [markdown]
# 6 + 7 + ... + 15 = 105. A row is one pass. Only the blue cells are new; the hatched ones had been computed before,
# those of the prompt nine times over.
#
# ## What is new in a pass?
#
# Put two neighbouring passes side by side. The first reads 6 tokens, the second 7. In every layer the second computes
# 7 x 7 scores where the first had 6 x 6. Are the old 36 among the 49? (A difference of a thousandth is let pass: seven
# rows may be added up in another order than six, and that rounds differently.)

# %%
from minicb.course.inside import watch

text = prompt + naive_ids[:1]
with watch("1.1") as calls:
    Reader(model).read(text[:-1])
    Reader(model).read(text)
first, second = calls[:30], calls[30:]  # a call for each of the 30 layers, [H, T, S]
same = [torch.allclose(a.result, b.result[:, :-1, :-1], atol=1e-3) for a, b in zip(first, second, strict=True)]
largest = max(call.result.abs().max() for call in second)
print(f"the old scores are there again in {sum(same)} of {len(same)} layers; the largest score is {largest:.0f}")

# %%
layer, head = 21, 0
seen = torch.ones(7, 7, dtype=torch.bool).tril()
draw_matrix(
    second[layer].result[head],
    words[:7],
    words[:7],
    mask=seen,
    digits=0,
    frame_row=6,
    note="new in this pass: one row",
    title=f"Scores of layer {layer}, head {head}",
)

# %% [markdown]
# **Of all the scores that anybody may look at, only the last row is new.** (The last column is new too, but hidden:
# for the old tokens it is the future.)
#
# So compute this row and nothing else. What does it take? The newest token has just made its own query, key and value.
# The old tokens made theirs in earlier passes, and something of that is needed again.
#
# **Before you run on.** Of Q, K and V of the *old* tokens one can be thrown away. Which?

# %%
predict("3.P2", None)  # "Q", "K" or "V"

# %% [markdown]
# Let us poison them and see: NaN spreads to everything that touches it. The tensors come out of the engine. Its part
# 3.3, which you will write, gets q, k, v and a mask in each layer, and `calls[layer].args` is what it got in layer 21.

# %%
from minicb.attention import attend

with watch("3.3") as calls:
    Reader(model).read(text)
q, k, v, mask, *_ = calls[layer].args  # [7, 9, 64] and twice [7, 3, 64]
right = attend(q, k, v, mask)[-1]


def poisoned(x):
    return torch.cat([torch.full_like(x[:-1], math.nan), x[-1:]])


needless = []
for name, parts in {"Q": (poisoned(q), k, v), "K": (q, poisoned(k), v), "V": (q, k, poisoned(v))}.items():
    newest = attend(*parts, mask)[-1]
    unharmed = torch.allclose(newest, right)
    print(f"{name} of the old tokens poisoned: {int(newest.isnan().sum())} of {newest.numel()} numbers are NaN")
    needless += [name] * unharmed
measured("3.P2", ", ".join(needless))  # the newest row is the same without it

# %% [markdown]
# The new row compares one query, its own, with all keys, and mixes all values. That is why it is called a KV cache and
# not a QKV cache: a query is asked once, in the pass of its own token.
#
# And the rows that the old queries were asked for? In the pass of its own token each went up to the next layer, and
# was made into a key and a value there. Every layer keeps its own keys and values. So these are in the cache as well,
# and **the old tokens need not go through any layer again.**

# %% [markdown] folded The last column of the scores was new, too. Was it right to leave it out?
# Yes. It is hidden: it says how well the old tokens match the newest, which they may not look at. A hidden score gets a
# share of exactly 0, whatever its number, so it need not be computed. And in the last row nothing is hidden.

# %% [markdown]
# ## 3.2 A place for keys and values
#
# In each layer the cache is two tensors, one for keys, one for values, of shape `[num_slots, Hkv, D]`. They are made
# once, when the engine starts, with room for everybody. A row of them is a **slot**: room for one token.
#
# Each token has its slot, and a tensor of whole numbers, `slots`, says which. They need not lie side by side nor in
# order, because requests come and go and take what is free.
#
# Such a tensor can stand in brackets. It picks rows, in its own order:

# %%
letters = torch.tensor([10, 11, 12, 13, 14, 15])
print(letters[torch.tensor([4, 1])])

# %% [markdown] heading 3.2
# Row 0 of `k` goes to slot `slots[0]`, row 1 to `slots[1]`, and so on; the same for `v`. The brackets from above can
# also stand on the left of an assignment.
#
# Write *into* the two tensors that you are given: the engine goes on using these very tensors. Everything else in
# them stays as it is, and nothing is returned.

# %% exercise 3.2

# %% check 3.2

# %% [markdown]
# ### Where the cache of many requests lives
#
# One text is easy. But the cache is one tensor for *all* requests. So who owns which slots? The engine's pool hands
# them out in **pages** of equal size. Here a page is large enough for a whole request, and each request has one. (The
# engine serves the three together; how it does that is chapter 06.)

# %%
from minicb.course.table import THREE
from minicb.course.tiny import model as tiny_model
from minicb.engine import Engine
from minicb.sampling import SamplingParams

ROOM = 16  # tokens of one request, prompt and answer
steps = []
engine = Engine(
    tiny_model(), attention="reference", max_num_seqs=4, max_model_len=ROOM, on_step=steps.append,
    kv_cache_memory_bytes=1 << 24,
)  # fmt: skip


def ask(name, ids, length):
    engine.add_request(ids, SamplingParams(max_tokens=length, ignore_eos=True), request_id=name)


def show_cache(title):
    """Who has which page, and what the last step wrote."""
    new = {entry.request_id: entry.num_new for entry in steps[-1].entries}
    pages = [(None, 0, 0)] * (1 + engine.pool.num_pages)
    for name, [page] in engine.pool.owners().items():
        held = engine.requests[name].num_computed_tokens
        pages[page] = (name, held - new[name], new[name])
    draw_cache(pages, ROOM, dummy=0, unit="page", title=title).show()


for name, (ids, length) in THREE.requests.items():
    ask(name, ids, length)
for _ in range(3):
    engine.step()
show_cache("The cache after three steps")

# %% [markdown]
# A, B and C have read their prompts of 3, 9 and 4 tokens and written two tokens into the cache each. Page 0 is
# nobody's: padding is written there (chapter 05), never into somebody's answer.
#
# **Before you run on.** Pages have 16 slots, and page 2 is B's. Which slot holds B's token at position 5?

# %%
predict("3.P3", None)

# %%
from minicb.batch import slots_of

measured("3.P3", slots_of(engine.pool.pages("B"), ROOM, 5, 6)[0])

# %% [markdown]
# 2 x 16 + 5. **A position is where a token stands in its text. A slot is where its keys and values lie in memory.**
# For one text at the start of the cache they are the same number, and code that mixes them up passes every test with
# one request.
#
# Now A ends, and D comes. Who gets A's page, and what lies in it?

# %%
engine.step()  # A's fourth and last token
ask("D", [2, 7, 1, 8], 4)
engine.step()
show_cache("D has moved in")
page = engine.pool.pages("D")[0]
left = engine.cache.k[0, page * ROOM : (page + 1) * ROOM].abs().sum(dim=(1, 2)) > 0
print(f"rows of D's page that are not zero: {int(left.sum())}, tokens of D: 4")

# %% [markdown]
# (B has ended meanwhile.) Two rows of A are still lying in D's page. Nobody wipes them, and nobody needs to: D's tokens
# will be written over them, and until then no list of slots names them. But mind what follows: a slot that has *not
# yet* been written holds a stranger's key.
#
# ## 3.3 Attention that remembers
#
# Now the two halves come together. A request's new tokens arrive, one or many, with their q, k and v. `slots` lists
# the places of *all* its tokens, the old ones first. The last of these places belong to the new ones.
#
# In words: **write, then look at everything.** Why in this order? A token sees itself, so its own key must be there.

# %%
from minicb.cache import write_kv  # the engine's; yours, if it has passed

# %% [markdown] heading 3.3
# You have `attend(q, k, v, mask)` from chapter 01 and `write_kv` from above. With 5 tokens in the cache and 2 new
# ones, `slots` has 7 places and `new` should hold the last two. With no new token it should be empty; try
# `slots[-0:]` before you rely on it.


# %% exercise 3.3
def attend_with_cache(q, k, v, mask, k_cache, v_cache, slots):
    """One request's new tokens in one layer: keep their keys and values, then look at everything that is kept.

    q: [T, H, D]   k, v: [T, Hkv, D], of the new tokens only   mask: bool [T, S]
    k_cache, v_cache: [num_slots, Hkv, D], changed in place
    slots: int64 [S], where the request's tokens are kept, in order; the last T are the new ones'
    returns: [T, H, D]
    """
    new = ...  # the places of the new tokens
    ...  # write
    return attend(q, ..., ..., mask)


# %% check 3.3

# %% [markdown]
# With that the loop can feed each token once. The prompt goes in whole; after it, only the newest token:


# %%
def generate_cached(reader, prompt, max_tokens):
    answer = [reader.read(prompt)]
    while len(answer) < max_tokens:
        answer.append(reader.read(answer[-1:]))
    return answer


# %% [markdown]
# **Before you run it.** Again 6 tokens of prompt and 10 new ones. How many token-forwards now?

# %%
predict("3.P4", None)

# %%
reader = Reader(model)
cached_ids = generate_cached(reader, prompt, 10)
print("the same ten tokens:", cached_ids == naive_ids)
measured("3.P4", sum(count for _, count in reader.passes))
draw_passes(reader.passes, words, title="Keys and values are kept").show()

# %% [markdown]
# 6 + 9 = 15: each token once, and the last one never. The first row is the prefill, the diagonal under it is decoding:
# one token a pass. But count the rows: there are still ten passes.
#
# Such a pass from the inside, on the seven tokens of the running example with D = 4. One query, one row of scores, one
# row of weights. The mask has one row too, and it hides nothing. The key and the value in a frame are the only ones
# that this pass has made; the other six come from the cache.

# %%
TOKENS = ["<bos>", "I", "am", "sure", "this", "pro", "ject"]
generator = torch.Generator().manual_seed(7)
q, k, v = (torch.randn(7, 1, 4, generator=generator) for _ in range(3))
k_cache, v_cache, slots = torch.zeros(16, 1, 4), torch.zeros(16, 1, 4), torch.tensor([3, 4, 5, 6, 10, 11, 12])
everything = torch.ones(7, 7, dtype=torch.bool).tril()

cache.attend_with_cache(q[:6], k[:6], v[:6], everything[:6, :6], k_cache, v_cache, slots[:6])
with watch("1.1") as scored, watch("1.2") as shared:
    newest = cache.attend_with_cache(q[6:], k[6:], v[6:], everything[6:], k_cache, v_cache, slots)
print("the same as all seven at once:", torch.allclose(newest, attend(q, k, v, everything)[6:]))
draw_attention(
    q[6:, 0], k_cache[slots, 0], v_cache[slots, 0], scored[0].result[0], shared[0].result[0], newest[:, 0],
    everything[6:], rows=TOKENS[6:], cols=TOKENS, frame_key=6, title="The newest token, with a cache",
).show()  # fmt: skip

# %% [markdown]
# ### The bug museum: their tests were green
#
# A generator as found in the wild, with its test. The cache is made once, when the generator is. The test compares
# its answer with the naive loop. (`Reader()` without a model takes a tiny one with random weights.)


# %%
def exhibit():
    reader = Reader()
    return lambda prompt, max_tokens: generate_cached(reader, prompt, max_tokens)


def sound():
    return lambda prompt, max_tokens: generate_cached(Reader(), prompt, max_tokens)


def by_the_naive_loop(prompt, max_tokens):
    return naive.generate_naive(lambda text: Reader().read(text), prompt, max_tokens)


def their_test(generate):
    assert generate([3, 1, 4], 5) == by_the_naive_loop([3, 1, 4], 5)


def colour(test, make):
    try:
        test(make())
    except AssertionError:
        return "red"
    return "green"


print("their test, on the exhibit:          ", colour(their_test, exhibit))
print("their test, on one without the fault:", colour(their_test, sound))

# %% [markdown]
# Write the assertion that their test forgot: red for the exhibit, green for the sound one.


# %% only=blank
def your_test(generate):
    """Fail for a generator that is wrong where their test does not look."""
    # assert ...


print("your test, on the exhibit:          ", colour(your_test, exhibit))
print("your test, on one without the fault:", colour(your_test, sound))


# %% only=solution
def your_test(generate):
    assert generate([3, 1, 4], 5) == generate([3, 1, 4], 5)


print("your test, on the exhibit:          ", colour(your_test, exhibit))
print("your test, on one without the fault:", colour(your_test, sound))

# %% [markdown] folded What was missing?
# A second call. The cache belongs to a *text*, and here it belongs to the generator: the second answer still looks at
# the first prompt. Whoever tests something with a memory must use it twice.

# %% [markdown]
# ## 3.4 How large does it get?
#
# The cache trades work for memory. Follow SmolLM2, whose numbers have 4 bytes (float32). One token leaves in *one*
# layer, for each of 3 KV heads, a key of 64 numbers and a value of 64 numbers:

# %%
print(2 * 3 * 64 * 4, "bytes in one layer")

# %% [markdown]
# **Before you run on.** The model has 30 layers. How many bytes does a token take in all?

# %%
predict("3.P5", None)

# %% [markdown] heading 3.4
# Follow the line above, with names instead of numbers, and for all layers.


# %% exercise 3.4
def bytes_per_token(num_layers, num_kv_heads, head_dim, element_bytes):
    """Cache bytes for one token: a key and a value, for each KV head, in *every* layer."""
    return ...


# %% check 3.4

# %%
config = model.config
token = cache.bytes_per_token(config.num_layers, config.num_kv_heads, config.head_dim, 4)
measured("3.P5", token)
print("what the reader's cache really takes, a slot:", reader.cache.nbytes // (2 * reader.room))

# %% [markdown]
# ### 16 or 512?
#
# For Llama-2-7B you will read "16 KB a token" in one place and "512 KiB" in another. It has 32 layers, 32 KV heads of
# size 128, and numbers of 2 bytes. **Before you run on:** which of the two is the whole model?

# %%
predict("3.P6", None)  # 16 or 512

# %%
SHAPES = {
    "SmolLM2-135M, float32": (30, 3, 64, 4),
    "Llama-2-7B, 16 bit": (32, 32, 128, 2),
    "Llama-3-8B, 16 bit": (32, 8, 128, 2),
}
for name, (layers, *rest) in SHAPES.items():
    one, all_layers = cache.bytes_per_token(1, *rest) / 1024, cache.bytes_per_token(layers, *rest) / 1024
    print(f"{name:<23}{one:5g} KiB in one layer, {all_layers:4g} KiB in all")
measured("3.P6", cache.bytes_per_token(*SHAPES["Llama-2-7B, 16 bit"]) // 1024)

# %% [markdown]
# Both numbers are right; only one of them is a token. Whoever plans memory with the other plans for a 32nd of it.
#
# Llama 3 has as many layers and query heads, but 8 KV heads instead of 32 (the GQA of chapter 01): a quarter. It is
# the **KV heads** that count. And what if it kept its queries, too?

# %%
gib = 2**30 / 4096  # bytes a token -> GiB for a text of 4,096
without_gqa = cache.bytes_per_token(32, 32, 128, 2)
draw_bars(
    {
        "keys and values, 8 KV heads": cache.bytes_per_token(32, 8, 128, 2) / gib,
        "and queries, 32 heads": (cache.bytes_per_token(32, 8, 128, 2) + without_gqa // 2) / gib,
        "without GQA (Llama-2-7B)": without_gqa / gib,
    },
    unit="GiB",
    digits=1,
    title="One text of 4,096 tokens in the cache of Llama-3-8B",
).show()

# %% [markdown]
# That is for *one* request. The queries would triple the cache and save nothing, as you have seen.
#
# **Change one number.** An engine may use 1 GB for the cache, and each request gets room for 2,048 tokens. How many
# requests fit? Which change gives more: half the room, or numbers of 2 bytes?


# %%
def fitting(room, dtype):
    return cache.plan_slots(config, dtype, max_model_len=room, max_num_seqs=1000, budget_bytes=10**9)


print("2,048 tokens, float32: ", fitting(2048, torch.float32), "requests")

# %% only=blank
# print("1,024 tokens, float32: ", ...)
# print("2,048 tokens, bfloat16:", ...)

# %% only=solution
print("1,024 tokens, float32: ", fitting(1024, torch.float32), "requests")
print("2,048 tokens, bfloat16:", fitting(2048, torch.bfloat16), "requests")

# %% [markdown] folded Answer
# Neither: both make 20 requests out of 9. Memory is a product, and it does not matter which factor you halve. (It is
# more than double because the dummy page takes the room of one request each time.) For the users it does matter:
# shorter texts in one case, coarser numbers in the other.

# %% [markdown]
# ## 3.5 Where does the new token stand?
#
# In a pass with a cache the model is given a single token. It is row 0 of this pass. Its *position* is another
# matter: queries and keys are turned by an angle that belongs to their position (chapter 01), and the old keys in
# the cache have been turned by theirs.
#
# Below is a function from the wild, and this was its test. Would you have let it pass?
#
# ```python
# assert positions_of(0, 6) == [0, 1, 2, 3, 4, 5]
# assert len(positions_of(6, 1)) == 1
# ```

# %% [markdown] heading 3.5
# Run it and its check as they are. Then find the bug and mend it.


# %% exercise 3.5
def positions_of(num_computed, num_new):
    """Where the new tokens stand in their own request: they continue where the computed ones end.

    num_computed: tokens whose keys and values are in the cache   num_new: tokens to compute now
    """
    return list(range(num_new))


# %% check 3.5

# %% [markdown]
# What does the mistake do? Nothing crashes: no shape depends on a position. So let us look at an answer. `swapped`
# puts the wild function in for one generation:

# %%
from minicb import seams


def restarting(num_computed, num_new):
    return list(range(num_new))


def both_ways(text):
    ids = tokenizer.encode(text)
    with watch("3.5") as calls:
        print("continue:", repr(tokenizer.decode(generate_cached(Reader(model), ids, 16))))
    print("         ", [position for call in calls for position in call.result])
    with seams.swapped("3.5", restarting), watch("3.5") as calls:
        print("restart: ", repr(tokenizer.decode(generate_cached(Reader(model), ids, 16))))
    print("         ", [position for call in calls for position in call.result])


both_ways("Hello! How are you?")
both_ways("I am sure this project")

# %% [markdown]
# **Fluent, grammatical, wrong.** That is the first answer; in the second the thread gets lost word by word. Both begin
# with the right words. The first had to be right, because the prompt is read in one pass, where nothing restarts, and
# the next were still easy to guess. But from the second on every new token believes that it stands at the beginning of
# the text. A mask cannot repair that. The mask says *whom* a token may look at; the position says *how far away* they
# are.
#
# How far away, and not where. **Change one number:** add 100 to every position, in the prompt and after it. How many
# of the 16 tokens of the first answer change? And if only the new tokens move, 100 places away from the prompt?

# %%
predict("3.P7", None)  # tokens of the 16 that change if all positions are 100 higher


# %%
def jumping(num_computed, num_new):
    gap = 100 if num_computed else 0  # the prompt stays where it is
    return [gap + num_computed + i for i in range(num_new)]


ids = tokenizer.encode("Hello! How are you?")
here, shifted = (generate_cached(Reader(model, shift=shift), ids, 16) for shift in (0, 100))
measured("3.P7", sum(a != b for a, b in zip(here, shifted, strict=True)))
with seams.swapped("3.5", jumping):
    print("a gap of 100:", repr(tokenizer.decode(generate_cached(Reader(model), ids, 16))))

# %% [markdown] folded Why does a shift of all positions change nothing?
# Queries and keys are turned by angles that grow with the position, and a score depends only on the angle between
# the two. Turn both further by the same amount, and the angle between them is what it was. So counting from 1
# instead of 0 is invisible in this model, in every answer that you will ever look at. It is wrong all the same: a
# model with learned positions would mind, and so does the check, which compares positions and not answers.

# %% [markdown]
# ## It changes when, never what
#
# **Safety.** A cache must change *when* a token is computed and never *what* comes out. So: random prompts, read in
# random pieces, answers of random length, on the tiny model; each against the naive loop.

# %%
from random import Random


def in_pieces(prompt, max_tokens, dice):
    """Read the prompt in random pieces, then write; everything through one cache."""
    reader = Reader()
    while reader.length < len(prompt) - 1 and dice.random() < 0.7:
        reader.read(prompt[reader.length : dice.randint(reader.length + 1, len(prompt) - 1)])
    return generate_cached(reader, prompt[reader.length :], max_tokens)


dice, agree = Random(3), 0
for _ in range(60):
    ids, length = [dice.randrange(64) for _ in range(dice.randint(1, 12))], dice.randint(1, 8)
    agree += in_pieces(ids, length, dice) == by_the_naive_loop(ids, length)
print(f"{agree} of 60 schedules give the tokens of the naive loop")

# %% [markdown]
# **Motive.** The picture of the passes, now to play with. `write` is the number of new tokens.


# %%
def explore(read=6, write=10, keep=True):
    ids, passes = list(range(1, read + 1)), []
    if keep:
        generate_cached(Reader(passes=passes), ids, write)
    else:
        naive.generate_naive(lambda text: Reader(passes=passes).read(text), ids, write)
    how = "with" if keep else "without"
    draw_passes(passes, title=f"{read} tokens read, {write} written, {how} a cache").show()


explore(read=12, write=3, keep=False)
explore(read=12, write=3, keep=True)

# %% [markdown]
# Move the sliders (optional; they need a running notebook). For which requests is the cache worth nothing?

# %% widget
from ipywidgets import interact

_ = interact(explore, read=(1, 16), write=(1, 16), keep=True)

# %% [markdown] folded Answer
# For `write = 1`: one token is wanted, each token of the prompt is read once, and nobody comes back for the keys. A
# service that only classifies texts needs no KV cache.

# %% [markdown]
# ### What became cheaper, exactly?
#
# You will read that the cache turns n² into n *because the projections are saved*. (The projections are the products
# that make q, k and v out of a token.) Let us count both for one layer of SmolLM2 and a text of n tokens: the
# projections, and then scores and mix. There is a way in between: keep K and V, but compute the whole square QKᵀ all
# the same. It is the failed experiment of this chapter.

# %%
width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
make_q, make_kv = 2 * config.hidden_size * width, 2 * config.hidden_size * 2 * kv_width  # operations a token
pair = 2 * 2 * width  # operations a query and key: two for each number in the score, two in the mix
WAYS = {
    "nothing kept": lambda n: (n * (make_q + make_kv), n * n * pair),
    "K, V kept, square": lambda n: (n * make_q + make_kv, n * n * pair),
    "K, V kept, one row": lambda n: (make_q + make_kv, n * pair),
}
print("million operations           projections   scores and mix")
for n in (100, 1000, 10000):
    for name, way in WAYS.items():
        made, met = (number / 1e6 for number in way(n))
        print(f"n = {n:<7,}{name:<18}{made:>11,.1f}{met:>17,.1f}")

# %%
lengths = [100, 300, 1000, 3000, 10000]
draw_lines(
    {name: (lengths, [sum(way(n)) / 1e9 for n in lengths]) for name, way in WAYS.items()},
    x_label="tokens in the text",
    y_label="billion operations for one new token, one layer",
    log_x=True,
    log_y=True,
    title="One row, not saved projections",
    data="at 10,000 tokens: " + "; ".join(f"{name} {sum(way(10000)) / 1e9:.3f}" for name, way in WAYS.items()),
).show()

# %% [markdown]
# The two upper lines nearly cover each other, and that is the point: what lies between them are the saved projections.
# They were never quadratic: n tokens, n products. Saving them takes a share off, and the longer the text the smaller
# that share. **From n² to n it goes because one row of QKᵀ is computed instead of n.** In the other
# products, projections and MLP, the cache goes from n to 1. On short texts that is most of what it saves.
#
# ### The table
#
# The three requests of the course, as the engine recorded them. A column is a step, a number says how many tokens it
# computed; a pale cell is a single token.

# %%
from minicb.course.draw import draw_timeline
from minicb.course.table import METHODS, grow_table, records

runs = {"Nothing is kept": records("naive"), "Keys and values are kept": records("cached")}
draw_timeline(runs, title="One after the other").show()

# %% [markdown]
# The same fifteen steps, and hardly any work in most of the lower ones. In numbers, with a row for wrong positions:

# %%


def cached_without_positions(workload):
    with seams.swapped("3.5", restarting):
        return METHODS["cached"](workload)


grow_table("naive", "cached", ("positions restart", cached_without_positions))

# %% [markdown]
# Every token is computed once, so the useful share is 100 %, and it cannot get better than that. The steps are what
# they were: one for each new token of one request. To bring *them* down is what the rest of the course is about. (And
# the wait before the first token is still in no column: the sixteenth request waits for fifteen answers.)
#
# And look at the last row. The wrong positions cost nothing and save nothing. Only the first column knows.
#
# ## On the real model
#
# Your function, inside SmolLM2. `watch` keeps what went in. **Before you run it:** 30 layers, 2 new tokens. How often
# is it called?

# %%
predict("3.P8", None)

# %%
with watch("3.3") as calls:
    answer("I am very sure this project", attention="reference", max_tokens=2)
measured("3.P8", len(calls))
for number, call in enumerate((calls[0], calls[30]), 1):
    q, k, v, mask, k_cache, v_cache, slots = call.args
    print(
        f"pass {number}, layer 0: q {list(q.shape)}, k {list(k.shape)}, mask {list(mask.shape)}, slots {slots.tolist()}"
    )

# %% [markdown]
# The first pass brings six tokens, the second one. The cache has 3 KV heads, the queries 9. Slots begin at 512,
# because page 0 is nobody's and `answer` asks for pages of 512. And what has the first pass written?

# %%
before, after = calls[0].args[4], calls[30].args[4]  # the key cache of layer 0, as each pass found it
changed = (before != after).flatten(1).any(dim=1).nonzero().flatten()
print("slots whose key is new in layer 0:", changed.tolist())

# %% [markdown]
# And this is what the new token looks at in the second pass, head by head. Each row is one row of softmax(QKᵀ); there
# is no other in this pass and this layer:

# %%
with watch("1.2") as looks:
    answer("I am very sure this project", attention="reference", max_tokens=2)
shares = looks[30 + layer].result[:, 0]  # [H, S]: one query
draw_matrix(
    shares, [f"head {i}" for i in range(len(shares))], words[:7], totals=True, title=f"One row a head, layer {layer}"
)

# %% [markdown]
# Heads 0, 3 and 6 look at other words as well. The remaining six give three quarters and more to `I`, the first token:
# the *attention sink* of chapter 01, where a head rests that finds nothing to look for.

# %% [markdown]
# ### Now break it on purpose
#
# Three mistakes, each in one line. First: look, then write.


# %%
@exercise("3.3")
def attend_with_cache(q, k, v, mask, k_cache, v_cache, slots):
    out = attend(q, k_cache[slots], v_cache[slots], mask)
    write_kv(k_cache, v_cache, slots[len(slots) - len(q) :], k, v)
    return out


run_anyway("3.3", "The capital of France is", attention="reference")

# %% [markdown]
# In the first pass the cache is empty, so the prompt looks at zeros. Second: look at the new keys only.


# %%
@exercise("3.3")
def attend_with_cache(q, k, v, mask, k_cache, v_cache, slots):
    write_kv(k_cache, v_cache, slots[len(slots) - len(q) :], k, v)
    return attend(q, k, v, mask[:, len(slots) - len(q) :])


run_anyway("3.3", "The capital of France is", attention="reference")

# %% [markdown]
# Third: the answer of each pass is right, but nothing is kept.


# %%
@exercise("3.3")
def attend_with_cache(q, k, v, mask, k_cache, v_cache, slots):
    old = slots[: len(slots) - len(q)]
    return attend(q, torch.cat([k_cache[old], k]), torch.cat([v_cache[old], v]), mask)


run_anyway("3.3", "The capital of France is", attention="reference")

# %% [markdown]
# **Which of the three would a test of the first token find?**

# %% [markdown] folded Reading the ruins
# Only the first. The other two say ` Paris` like the right one, because the prompt is read in a single pass, and in a
# first pass the new keys are all keys. After it, the second knows nothing but the newest token. The third finds rows
# of zeros where the prompt should be; the line under its answer tells, as `write_kv` is missing there. A test of a
# cache must go past the first token.

# %% [markdown]
# And whole again. The line under the answer says whose parts ran. (If you check 3.3 now, you check the last of the
# ruins: run your own cell first.)

# %%
answer("The capital of France is")

# %% [markdown]
# ### How much time does it save?
#
# Counts are the same everywhere, seconds are not; your numbers will differ. On the real model: the whole text again,
# against the newest token alone.

# %% timed
import time


def fastest(work):
    """The best of three, in milliseconds."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - began))
    return min(times)


def compare(n):
    text, reader = (prompt * 100)[:n], Reader(model, room=n + 3)
    reader.read(text)
    again, alone = fastest(lambda: Reader(model, room=n).read(text)), fastest(lambda: reader.read([5]))
    print(f"{n:>4} tokens: all again {again:5.0f} ms, one more {alone:5.0f} ms, {again / alone:4.1f} times as long")


for n in (5, 80, 320):
    compare(n)

# %% [markdown]
# At 5 tokens the cache computes a fifth of the tokens, and it is nowhere near five times as fast. Either way the pass
# reads every weight from memory, half a gigabyte here, and for a few tokens that is what takes the time. So the
# cache pays on *long* texts. On short ones something else must be done: let the weights, once read, work for more
# than one token. That is batching, and it begins in chapter 05.
#
# ## The evidence, in five lines
#
# - **Why faster:** what nobody can change any more is not computed again. For one new token a row of scores instead
#   of a square, one token through the layers instead of n.
# - **Where it wins:** long texts, long answers. 105 token-forwards become 15; for the sixteen requests of the table
#   2,181 become 309.
# - **Where it loses:** memory. 46,080 bytes a token here, 512 KiB in Llama-2-7B, kept as long as the request lives. And
#   it saves nothing where a single token is wanted.
# - **How it could mislead:** a short prompt makes the cache look useless, a long one like a miracle: say the length.
#   "Bytes a token" in one layer or in all: say which. And a cache with wrong positions is exactly as fast.
# - **The command:** `explore(read, write, keep)` above for counts; `grow_table("naive", "cached")` for the same
#   requests.
#
# ## Exam questions
#
# 1. **Explain.** Why are keys and values kept and queries not?
# 2. **Trace.** A prompt of 4 tokens and 3 new ones, with a cache. For each pass: which positions are fed, how many
#    keys are looked at, how many slots are in use afterwards?
# 3. **Build.** A user edits the fifth word of a long conversation and asks again. Which slots may be kept, and from
#    which position on must the text be read again? Try it with a `Reader`: set its `length` back.
# 4. **Design.** Your machine has 16 GiB for the cache of Llama-2-7B, and texts of up to 4,096 tokens. How many requests
#    at the same time? Most texts are short. What would you change about the pages?

# %% [markdown] folded Answers
# 1. A query is used in its own row only, and that row belongs to the pass in which its token was new. Keys and values
#    are looked at by every later token.
# 2. Positions 0 to 3, 4 keys, 4 slots; position 4, 5 keys, 5 slots; position 5, 6 keys, 6 slots. The third new token
#    comes out of the third pass and is not read.
# 3. Positions 0 to 3 are as they were: no key depends on what follows. From position 4 on everything must be read
#    again, also the words that were not edited, because their keys depend on the fifth. `reader.length = 4`, then
#    `reader.read(text[4:])`; the slots are simply written over.
# 4. A text takes 2 GiB: eight pages, one of them the dummy, so seven requests, however short they are. With small
#    pages, handed out as a text grows, a short one takes little: that idea is called PagedAttention.

# %% [markdown]
# The third answer, by the engine:

# %%
text, edited = [3, 1, 4, 1, 5, 9, 2, 6], [3, 1, 4, 1, 8, 9, 2, 6]
reader = Reader()
reader.read(text)
reader.length = 4
print("as if read from the start:", reader.read(edited[4:]) == Reader().read(edited), "· passes:", reader.passes)

# %% [markdown]
# ## Your part in the engine

# %%
progress()

# %% [markdown]
# **Read on:** [Fast Transformer Decoding: One Write-Head is All You Need](https://arxiv.org/abs/1911.02150) is where
# fewer KV heads come from, and it says why: reading the cache takes the time ·
# [GQA](https://arxiv.org/abs/2305.13245), the compromise that most models use ·
# [RoFormer](https://arxiv.org/abs/2104.09864), section 3.2, on why only distances count ·
# [Efficient Memory Management for Large Language Model Serving with PagedAttention](https://arxiv.org/abs/2309.06180),
# section 3, on what is lost when each request gets one large page.
#
# **Next, chapter 04:** a long prompt is read in pieces, and the cache remembers where it stopped.
