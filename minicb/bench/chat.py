"""The `chat` workload: 24 real prompts of very different lengths, with very different answers asked for.

Short questions, a text to summarise, code, a list to go on with. Written for this project. Each has its own
`max_tokens`, so that a batch that waits for its longest answer pays for it, as it does in life.
"""

from __future__ import annotations

from dataclasses import dataclass

from minicb.checkpoint import Message

HARBOUR = """\
The harbour of Lindholm was built in the twelfth century by fishermen who dragged the first stones across the ice
in winter, when sledges could carry what no cart could. For three hundred years it sheltered herring boats, and the
town grew rich enough to pay for a church with a copper roof. Then the herring went elsewhere. Nobody knew why: some
blamed the cold summers, others the nets, and the priest blamed the town. The boats were sold one by one, and the
warehouses were turned into stables. In 1787 a surveyor noticed that the basin was deep enough for merchant ships,
and a company from the capital dredged the entrance. Within a decade timber, tar and iron left from quays where
sheep had grazed. The copper roof was mended, a school was opened, and the first newspaper was printed in a former
smokehouse. Steam brought a railway, and the railway brought visitors, who came for the sea air and stayed for the
cheap rooms. The two wars closed the harbour twice, and each time it opened again a little smaller, because the big
ships had learnt to go to the big ports. Today a ferry calls twice a day, the fish market sells mostly coffee, and
children jump from the old stones into water that is clean again. The herring, as it happens, have come back."""

MINUTES = """\
Minutes of the allotment society. Present: eleven members, two dogs. The chair reported that the new water pump
works but is loud, and that the neighbours have written a letter about it, the third this year. It was agreed to
run the pump only between nine and noon. The treasurer said that the fees of four plots are still unpaid and that
the roof of the shed will not survive another winter; repairs would cost about as much as the four unpaid fees.
Mrs Albers offered to speak to the four. Mr Okafor proposed a day of shared work in October, with soup. This was
accepted without a vote. The compost question was postponed again."""

CODE = """\
def mean(values):
    total = 0
    for i in range(1, len(values)):
        total += values[i]
    return total / len(values)"""

PROMPTS: tuple[tuple[str, str, int], ...] = (
    ("capital", "What is the capital of France?", 16),
    ("harbour", f"Summarise this text in three sentences.\n\n{HARBOUR}", 96),
    ("sky", "Why is the sky blue? Answer in one sentence.", 48),
    ("story", "Write a short story about a lighthouse keeper who is afraid of the dark.", 128),
    ("sum", "What is 17 plus 25?", 16),
    ("bug", f"This Python function should return the mean, but it is wrong. What is the mistake?\n\n{CODE}", 72),
    ("yes", "Is a whale a fish? Answer yes or no.", 8),
    ("list", "Continue this list with five more: apple, pear, plum, cherry,", 40),
    ("email", "Write a polite email to a neighbour whose dog barks at night.", 112),
    ("water", "At what temperature does water boil at sea level?", 24),
    ("minutes", f"Who offered to speak to the members who have not paid?\n\n{MINUTES}", 24),
    ("haiku", "Write a haiku about rain on a tin roof.", 32),
    ("gravity", "Explain gravity to a child of six.", 80),
    ("french", "Translate into French: Good morning, how are you?", 20),
    ("recipe", "Give me a simple recipe for tomato soup, step by step.", 120),
    ("planet", "Which planet is the largest in the solar system?", 16),
    ("rename", "Suggest a better name for a variable called `x2tmp` that holds a user's age.", 28),
    ("history", f"In which year did a surveyor notice that the basin was deep enough?\n\n{HARBOUR}", 20),
    ("pros", "What are the advantages and disadvantages of working from home?", 104),
    ("opposite", "What is the opposite of cold?", 8),
    ("regex", "Write a regular expression that matches a date such as 2024-05-31, and explain it.", 72),
    ("colours", "Name three colours.", 12),
    ("plan", "Plan a one-day visit to a small town by the sea, hour by hour.", 116),
    ("thanks", "How do you say thank you in Japanese?", 16),
)


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """One prompt of the workload."""

    name: str
    messages: list[Message]
    max_tokens: int


def chat_workload() -> list[ChatPrompt]:
    """The 24 prompts in their order of arrival; all arrive at once."""
    return [ChatPrompt(name, [{"role": "user", "content": text}], limit) for name, text, limit in PROMPTS]
