# ruff: noqa: F821 - the names come from the set-up cell

# %% [markdown]
# # 00 · Check your set-up, meet the loop
#
# A language model does one thing: it reads tokens and gives every token of its vocabulary a number, its **logit**. A
# loop around it picks a token, appends it, and asks again. In this course you write the parts of that loop, and the
# engine then runs yours.

# %% setup

# %%
start(0)

# %% [markdown]
# ## 0.1 Which token comes next?
#
# The model has read the prompts of two requests. For each it gives a row of logits, one for every token; here the
# vocabulary has four. The simplest choice is the **greedy** one: the token with the largest logit.
#
# **Before you run anything.** The first row is `[2, 7, 7, 1]`. Which index should win?

# %%
predict("0.P1", None)  # your index instead of None

# %%
import minicb.sampling

logits = torch.tensor([[2.0, 7.0, 7.0, 1.0], [5.0, 3.0, 0.0, 4.0]])
measured("0.P1", minicb.sampling.greedy_pick(logits)[0])

# %% [markdown] folded Why must a tie always fall the same way?
# Because the same prompt must give the same answer, today and tomorrow, alone and beside others.

# %% [markdown] heading 0.1
# Write `greedy_pick`: for each row the index of the largest logit, and of equal ones the lowest index.

# %% exercise 0.1

# %% check 0.1

# %% [markdown]
# ## Your part in the engine
#
# A tiny model with random weights says nothing useful, but it shows whose code runs. These are token ids.

# %%
from minicb.weights import random_model

answer([3, 1, 4, 1, 5], model=random_model(), max_tokens=4)

# %%
progress()
