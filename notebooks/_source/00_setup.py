# ruff: noqa: F821 - the names come from the set-up cell

# %% [markdown]
# # 00 · Check your set-up, meet the loop
#
# **CPU** · no network needed · 10 minutes in a workshop, 15 on your own
#
# A language model does one thing. It reads tokens and gives every token of its vocabulary a number, its **logit**.
# A loop around it picks a token, appends it, and asks again.
#
# In this course you write the parts of that loop, and the engine then runs *yours*. At the end your engine serves
# many people at once, on a real model, on this machine.

# %% setup

# %%
start(0)

# %% [markdown]
# ## What you should know already
#
# Answer in your head, then open the fold. Every chapter begins like this. Remembering is work, and that work is
# what makes things stay.
#
# 1. A tensor has shape `[2, 4]`. What shape has `x.argmax(dim=-1)`, and what is in it?
# 2. `a` has shape `[7, 4]` and `b` has shape `[5, 4]`. What shape has `a @ b.T`, and what does its cell `[2, 3]`
#    hold?
# 3. What is true of every row that comes out of a softmax?

# %% [markdown] folded Answers
# 1. Shape `[2]`: for each row the place of its largest number, not the number.
# 2. Shape `[7, 5]`. Cell `[2, 3]` is the dot product of row 2 of `a` and row 3 of `b`: multiply number by number,
#    add up.
# 3. No number is negative, and they add up to 1.
#
# If two of three were new to you, read PyTorch's page "Tensors" first (20 minutes). You need no more than that.

# %% [markdown]
# ## Is everything here?
#
# The next cell loads a real model, SmolLM2 with 135 million parameters, and lets it go on from a prompt. It takes a
# few seconds, on the CPU. If it stops with an error, the error says which command is missing.

# %%
answer("The capital of France is")

# %% [markdown]
# The answer is in quotes. Under it stands **whose code has run**: so far nothing is yours. Once a session a note
# tells you that what you have not written is played by the *reference*, the engine's own version. Nothing is
# locked, ever.
#
# ## What you will build
#
# Here is the whole engine, as it looks at the end of chapter 07. Read it once and do not try to understand it.
#
# ```python
# def step(self):
#     plan = self.scheduler.schedule()                        # who runs, how many tokens each
#     if not plan:
#         return []
#     batch  = pack(plan, self.pool, self.device)             # tokens of all requests in one row
#     hidden = self.model(batch, self.cache, self.attention)  # everybody looks around and thinks
#     logits = self.model.logits(hidden[batch.sample_at])     # only the rows that somebody will read
#     tokens = self.sampler(logits, plan)                     # one new token each
#     return self.scheduler.commit(plan, tokens)              # append, finish, make room
# ```
#
# The real one is `Engine.step` in `minicb/engine.py`: the same calls, and guards around them. The four lines in the
# middle stand in a function of their own, `run_plan`, because you write it in chapter 07.
#
# And this is what it is for. Three people ask at the same time. Their requests are A, B and C, and they will stay
# with you through all chapters.

# %%
from minicb.course.draw import draw_bars, draw_timeline
from minicb.course.table import THREE, grow_table, records

for name, (prompt, length) in THREE.requests.items():
    print(f"{name}: {len(prompt)} tokens to read, {length} to write")

# %%
runs = {
    "One after the other (now)": records("naive"),
    "Continuous batching (chapter 07)": records("continuous"),
}
draw_timeline(runs, title="The same three requests").show()

# %% [markdown]
# A row is a request, a column is one step of the engine. A grey line is somebody who waits. A number is how many
# tokens were computed for that request in that step; a pale cell is one token. Full colour means that text is being
# read, pale colour that only the newest token of an answer is.
#
# Both pictures are drawn from what the engine recorded, not by hand. Above, the whole text is read again for every
# new token, the answer so far included. Below, no token is computed twice and all three share a step.
#
# **Before you run on.** Request B has a prompt of 9 tokens and gets 5 new ones. In the upper run, how many tokens
# are computed for B in all? The first step reads 9, the second 10.

# %%
predict("0.P1", None)  # your number instead of None; a wrong guess teaches more than no guess

# %%
of_b = [entry.num_new for step in records("naive") for entry in step.entries if entry.request_id == "B"]
print(of_b)
measured("0.P1", sum(of_b))

# %% [markdown]
# ## Which token comes next?
#
# Now your first part. The model has read the prompts of two requests. For each it gives a row of logits, one for
# each token of a vocabulary of four. The simplest choice is the **greedy** one: the token with the largest logit.
#
# **Before you run anything.** The first row is `[2, 7, 7, 1]`. Which index should win?

# %%
predict("0.P2", None)  # your index instead of None

# %%
logits = torch.tensor([[2.0, 7.0, 7.0, 1.0], [5.0, 3.0, 0.0, 4.0]])
measured("0.P2", int(logits[0].argmax()))

# %% [markdown] folded Why must a tie always fall the same way?
# Because the same prompt must give the same answer, today and tomorrow, alone and beside others. If a tie could
# fall either way, you could never show that batching changed nothing.

# %% [markdown]
# ### First wrong, on purpose
#
# An exercise has two cells. In the first you write the function, below `@exercise`. In the second you check it.
# Here both are in one cell, with a mistake that many people make. Run it and read what the check says.


# %%
@exercise("0.1")
def greedy_pick(logits):
    return logits.max(dim=-1).values


check("0.1")

# %% [markdown]
# `[x]` means wrong. The first line says for which small case, what was expected and what yours gave; where numbers
# differ, both are drawn side by side. If the mistake is a known one, the last line names its cause. There are
# four outcomes:
#
# | mark | meaning |
# |---|---|
# | `[ ]` | not written yet: there is still a `...` |
# | `[!]` | your code stopped; the line is yours, not ours |
# | `[x]` | wrong, with the most likely cause |
# | `[ok]` | right: saved, and from now on part of the engine |
#
# Stuck? `hint("0.1")` asks you a question. Call it again for the steps, and again for the lines in shuffled order.
# `solution("0.1")` shows the engine's own version. Nobody counts.

# %% [markdown] heading 0.1
# Now yours. Each row of `logits` belongs to one request. Return a tensor with one index for each row: the place of
# the largest logit, and of equal ones the lowest.
#
# Replace the `...` and run the cell, then run the check.

# %% exercise 0.1

# %% check 0.1

# %% [markdown]
# ## Your part in the engine
#
# When the check has said `[ok]`, the engine calls your function, and the real model speaks with it. Compare the
# last line with the one at the top of this notebook.

# %%
answer("The capital of France is")

# %% [markdown]
# Eight new tokens came out. **Before you run on:** how often does the loop call `greedy_pick` if you ask for 20
# tokens?

# %%
predict("0.P3", None)  # your number instead of None

# %%
from minicb import seams

answer("The capital of France is", max_tokens=20)
measured("0.P3", sum(line.calls for line in seams.receipt() if line.name == "greedy_pick"))

# %% [markdown]
# One call for each new token, and each call needs the model once. Writing the answer is called **decoding** (reading
# the prompt is **prefill**). That is why decoding is slow: the steps come one
# after the other, because each needs the token before it. Nothing in this course changes that. What we change is
# *for how many requests* one step works.
#
# `receipt()` lists every part that has just run, whose it was and how often it was called. Parts of later chapters
# are in the list already, because the engine needs them today.

# %%
receipt()

# %% [markdown]
# ## Change a number
#
# Take the row `[2, 7, 7, 1]` and make the last logit larger, a bit at a time. When does the choice flip?

# %%
from minicb.sampling import greedy_pick as pick_in_engine


def show_choice(a=2.0, b=7.0, c=7.0, d=1.0):
    """The shares that the logits stand for, and the token that the engine picks."""
    row = torch.tensor([a, b, c, d])
    shares = torch.softmax(row, dim=0).tolist()
    picked = int(pick_in_engine(row[None]))
    bars = {f"index {i}, logit {row[i]:g}": share for i, share in enumerate(shares)}
    draw_bars(bars, digits=2, title="Share of each token", data=f"the engine picks index {picked}").show()


show_choice()
for d in (1.0, 6.9, 7.0, 7.1):
    print(f"last logit {d}: index {int(pick_in_engine(torch.tensor([[2.0, 7.0, 7.0, d]])))}")

# %% [markdown]
# The bars are softmax of the logits. Greedy looks only at who is first. By how much does not matter to it.
#
# If your notebook shows sliders, move them. If it does not, nothing is lost: the picture above is the same.

# %% widget
from ipywidgets import FloatSlider, interact

sliders = [FloatSlider(value, min=-2, max=10, step=0.1) for value in (2, 7, 7, 1)]
_ = interact(show_choice, **dict(zip("abcd", sliders, strict=True)))

# %% [markdown]
# ## The table that will grow
#
# Each chapter serves the same requests in a better way and adds a row. All numbers are counts, so yours are the
# same as everybody's.

# %%
grow_table("naive", workloads=(THREE,))

# %% [markdown]
# *Tokens identical?* compares every answer with what the request gets alone, by the reference. *Useful share* is
# the part of the computed tokens that had to be computed at all: here 28 of 112, each token once; the last of each
# answer is never read. The *longest gap* is the most
# tokens computed between two tokens of one request: what somebody has to wait in the middle of an answer.
#
# The table has a blind spot: the wait *before* the first token is in none of its columns. Here C waits for 9 steps,
# and its gaps look harmless. Keep that in mind when a row looks good.
#
# ## The evidence line
#
# Each chapter says of its idea when it helps and when it does not. For the greedy choice:
#
# - **Why**: one comparison, no chance in it. The same prompt gives the same tokens, so every proof in this course
#   can compare token ids.
# - **Where it wins**: facts, code, tests.
# - **Where it loses**: free text. The likeliest token again and again soon goes round in circles; the next cell
#   shows it.
# - **How a measurement could mislead**: where two logits are nearly equal, rounding decides. In half precision a
#   token may flip without any mistake in the code, and everything after it differs.
# - **The command**: `answer(prompt, max_tokens=40)`.

# %%
answer("Hello! How are you?", max_tokens=40)

# %% [markdown]
# ## Could you explain it?
#
# Four questions, from easy to open. Say the answer aloud before you open the fold.
#
# 1. *Explain.* What is a logit, and what does greedy do with it?
# 2. *Trace.* A prompt of 3 tokens, 4 new ones, everything read again each time. Which lengths does the model read?
# 3. *Build.* How would you pick the second best token of each row?
# 4. *Design.* Your service must show that a faster engine changed nothing. What would you compare, and what must be
#    fixed first?

# %% [markdown] folded Answers
# 1. A number for each token of the vocabulary; the larger, the likelier. Greedy takes the place of the largest, and
#    of equal ones the first.
# 2. 3, 4, 5, 6: 18 in all. The fourth new token is never read, because nobody asks for a fifth.
# 3. `logits.topk(2, dim=-1).indices[:, 1]`, if you say what happens to ties; `topk` does not promise which of two
#    equal ones comes first.
# 4. Token ids, for the same prompts, alone and beside others, in any order of arrival. The choice must be without
#    chance (or its seed a part of the request), ties must be settled, and the precision must be the same.

# %% [markdown]
# ## Stop here, go on tomorrow
#
# What you have written is a small file in the folder `.minicb/work`, and that file is the only state there is.
# Close the notebook, restart the kernel, clear all outputs: it stays. The next notebook finds it by itself.

# %%
mine()

# %% [markdown]
# `mine("0.1")` prints one of them. `reset("0.1")` starts afresh and moves the old one to `.minicb/attic`; nothing
# is deleted. In a terminal there are `minicb progress`, `minicb mine` and `minicb reset`.
#
# And this is the engine map. It shows every part of the engine, and in blue those that are yours.

# %%
progress()

# %% [markdown]
# **What to read next.** The source of this course's derivation is "Continuous batching from first principles"
# (Hugging Face, 25 November 2025). Read it now if you like to see the road before you walk it. The chapters say
# where they differ from it.
#
# Next: `01_attention.ipynb`, three small functions that are most of what a model does with its past.
