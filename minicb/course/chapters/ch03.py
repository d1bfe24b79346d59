"""Exercises of chapter 03: every token once. The two that touch the cache are in `ch03_cache.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from minicb import request  # noqa: F401 - its seam is an exercise
from minicb.cache import KVCache
from minicb.course.chapters import ch03_answers as answers
from minicb.course.chapters.ch03_cache import ATTEND_WITH_CACHE, WRITE_KV
from minicb.course.reader import Reader
from minicb.course.spec import Case, Chapter, Dice, Exercise, MismatchError, Twin
from minicb.course.tiny import NEW_TOKENS, PROMPTS, alone_by_reference, model, same_tokens
from minicb.engine import Engine
from minicb.naive import generate_naive


class Adder:
    """Stands in for the model: the next token is the sum of all tokens, without the hundreds.

    texts_read: a copy of each text that it was given; reading is what costs
    """

    def __init__(self) -> None:
        self.texts_read: list[list[int]] = []

    def __call__(self, ids: Sequence[int]) -> int:
        if isinstance(ids, int):
            raise TypeError(f"next_token reads a list of ids, and was given the number {ids}")
        self.texts_read.append(list(ids))
        return sum(ids) % 100


def naive_cases(dice: Dice) -> Iterator[Case]:
    for max_tokens in dice.lengths(high=7):
        prompt = [dice.number(1, 9) for _ in range(dice.number(1, 6))]
        yield Case((Adder(), prompt, max_tokens), f"prompt of {len(prompt)} tokens, max_tokens {max_tokens}")


def bytes_cases(dice: Dice) -> Iterator[Case]:
    for layers in dice.lengths(low=1, high=40):
        heads, size, element = dice.number(1, 32), dice.number(3, 32), dice.number(0, 2)
        sizes = (layers, heads, 4 * size, (1, 2, 4)[element])
        yield Case(sizes, "{} layers, {} KV heads of size {}, {} bytes a number".format(*sizes))


def position_cases(dice: Dice) -> Iterator[Case]:
    for new in dice.lengths(high=6):
        computed = dice.number(0, 9)
        yield Case((computed, new), f"{computed} tokens in the cache, {new} new")


def run_the_baseline() -> str:
    """The three requests of the checks, one after the other; each pass begins with an empty cache."""
    expected, passes = alone_by_reference(), list[tuple[int, int]]()
    for name, prompt in PROMPTS.items():
        yours = generate_naive(lambda text: Reader(passes=passes).read(text), prompt, NEW_TOKENS)
        if tuple(yours) != expected[name]:
            said, wanted = " ".join(map(str, yours)), " ".join(map(str, expected[name]))
            raise MismatchError(f"request {name} got the tokens {said} instead of {wanted}.")
    computed = sum(count for _, count in passes)
    return f"{len(PROMPTS)} requests, {computed} tokens computed, the same tokens as the engine"


def fill_the_memory() -> str:
    """An engine must get as many requests into its memory as there is room for, and not one more."""
    counts, length = (1, 3, 5), 32
    one = KVCache(model().config, 1, length, torch.device("cpu"), model().dtype).nbytes
    for count in counts:
        budget = (count + 1) * one  # and one for the dummy page
        engine = Engine(
            model(), attention="reference", max_num_seqs=8, max_model_len=length, kv_cache_memory_bytes=budget
        )
        if engine.pool.num_pages != count:
            raise MismatchError(
                f"{budget:,} bytes are enough for {count} requests; the engine made room for "
                f"{engine.pool.num_pages} and took {engine.cache.nbytes:,}."
            )
    return f"caches for {', '.join(map(str, counts))} requests, each as large as its memory"


GENERATE_NAIVE = Exercise(
    id="3.1",
    kind="C",
    minutes=6,
    importance="the loop that everything else is measured against",
    tiny=Case((Adder(), [3, 1, 4], 3), "prompt [3, 1, 4], 3 new tokens, a model that adds up what it reads"),
    cases=naive_cases,
    twins=(
        Twin(
            answers.naive_reading_the_newest_only,
            "the model is given the newest token only. It keeps nothing yet, so it must read the whole text.",
        ),
        Twin(
            answers.naive_reading_the_prompt_only,
            "the model reads the prompt again and again, and never what it has said: append before you ask again.",
        ),
        Twin(
            answers.naive_reading_the_answer_only,
            "after the first token the prompt is forgotten: the text is the prompt *and* the answer so far.",
        ),
        Twin(answers.naive_with_the_prompt, "the prompt is still in front: return the new tokens only."),
        Twin(
            answers.naive_one_too_many,
            "one token too many: the first new token comes out of reading the prompt and counts as well.",
        ),
        Twin(answers.naive_one_too_few, "one token too few: how often does range(1, n) go round?"),
        Twin(
            answers.naive_reading_once_too_often,
            "the tokens are right, but the model is asked once more than needed: nobody reads its last answer.",
        ),
        Twin(
            answers.naive_until_the_text_is_that_long,
            "you stop when the whole text has max_tokens tokens; that many *new* ones are wanted.",
        ),
        Twin(
            answers.naive_a_token_for_each_of_the_prompt,
            "you write as many tokens as the prompt has; max_tokens says how many are wanted.",
        ),
        Twin(
            answers.naive_cut_from_the_end,
            "with max_tokens 0 [-0:] takes everything: cut the prompt off at the front instead.",
        ),
        Twin(
            answers.naive_written_into_the_prompt,
            "a second name is not a copy: you append to the caller's prompt. Begin with list(prompt).",
        ),
        Twin(
            answers.naive_adding_a_number_to_a_list,
            "next_token gives one number, and text + ... wants a list: append it.",
        ),
        Twin(
            answers.naive_extending_by_a_number,
            "+= on a list wants another list, and next_token gives one number: append it.",
        ),
        Twin(
            answers.naive_appending_the_function,
            "you append the function itself: next_token has to be called, with the text.",
        ),
        Twin(
            answers.naive_assigning_what_append_returns,
            "append changes the list and returns nothing: do not assign its result.",
        ),
        Twin(answers.naive_without_appending, "the text never grows: append each new token to it."),
        Twin(
            answers.naive_throwing_the_tokens_away,
            "next_token only *says* which token comes next, and you let it go: append it. Return only the new ones.",
        ),
        Twin(
            answers.naive_putting_the_token_in_the_place_of_the_text,
            "text = next_token(text) throws the text away: one number is left, and the next round cannot read it. "
            "Append the number to the text.",
        ),
        Twin(
            answers.naive_subtracting_the_prompt,
            "a list cannot be subtracted from a list: cut the prompt off, it is the first len(prompt) tokens.",
        ),
        Twin(
            answers.naive_returning_in_the_first_round,
            "you return in the first round: the return belongs behind the loop, not inside it.",
        ),
        Twin(answers.naive_returning_the_prompt, "you return the prompt; the answer is what comes after it."),
        Twin(answers.naive_keeping_the_newest_only, "you return one token; all the new ones are wanted, in a list."),
    ),
    right=(answers.naive_with_a_list_of_its_own, answers.naive_by_recursion),
    question="The prompt has 3 tokens and 3 new ones are wanted. Which three texts does the model read?",
    steps=(
        "Begin with a copy of the prompt; it is the text so far.",
        "max_tokens times: let the model read the whole text, and append what it says.",
        "Return the text without its first len(prompt) tokens.",
    ),
    why="the text grows by one token a pass, and each pass reads all of it: n passes read about n * n / 2 tokens.",
    mutates=(0,),
    in_engine=run_the_baseline,
)

BYTES_PER_TOKEN = Exercise(
    id="3.4",
    kind="W",
    minutes=4,
    importance="it decides how many requests fit into a machine",
    tiny=Case((3, 5, 7, 4), "3 layers, 5 KV heads of size 7, 4 bytes a number"),
    cases=bytes_cases,
    twins=(
        Twin(answers.bytes_of_the_keys_only, "the factor 2 is missing: a token leaves a key *and* a value."),
        Twin(
            answers.bytes_in_one_layer,
            "that is one layer. Every layer has keys and values of its own: multiply by num_layers.",
        ),
        Twin(answers.bytes_of_one_head, "that is one KV head: multiply by num_kv_heads."),
        Twin(answers.bytes_as_numbers, "those are numbers, not bytes: each takes element_bytes."),
        Twin(answers.bytes_as_bits, "those are bits. element_bytes is in bytes already: no 8."),
        Twin(answers.bytes_taken_for_bits, "element_bytes is in bytes already: do not divide by 8."),
        Twin(
            answers.bytes_in_half_precision_always,
            "you take 2 bytes a number, whatever the type; element_bytes says how many.",
        ),
        Twin(
            answers.bytes_in_float32_always,
            "you take 4 bytes a number, as in the example; element_bytes says how many.",
        ),
        Twin(
            answers.bytes_of_the_example,
            "that is SmolLM2, whatever the model: put the names in the place of its numbers.",
        ),
        Twin(
            answers.bytes_of_the_example_in_all_layers,
            "the layers have their name now, and the numbers before it are still SmolLM2's: each has a name, too.",
        ),
        Twin(answers.bytes_with_queries_as_well, "you keep three rows a token; queries are not kept: 2, not 3."),
        Twin(answers.bytes_without_the_head_size, "each head has head_dim numbers: they are missing."),
        Twin(answers.bytes_with_the_size_squared, "head_dim is in it twice: a key of one head is head_dim numbers."),
        Twin(answers.bytes_in_kib, "you divide by 1024: bytes are wanted, and as a whole number."),
        Twin(answers.bytes_as_a_float, "the number is right, but a float: bytes are counted in whole numbers."),
    ),
    right=(answers.bytes_key_plus_value, answers.bytes_by_prod),
    question="What does one token leave behind in one layer, and how many layers are there?",
    steps=(
        "In one layer and one KV head: a key of head_dim numbers and a value of as many.",
        "Times the KV heads, times the layers.",
        "Times the bytes of one number.",
    ),
    pieces=("2", "* num_layers", "* num_kv_heads", "* head_dim", "* element_bytes", "return"),
    why="the KV heads count and not the query heads: that is what grouped-query attention was made for.",
    in_engine=fill_the_memory,
)

POSITIONS_OF = Exercise(
    id="3.5",
    kind="D",
    minutes=6,
    importance="a right mask with wrong positions is silently wrong",
    tiny=Case((4, 3), "4 tokens in the cache, 3 new"),
    cases=position_cases,
    twins=(
        Twin(
            answers.positions_restarting,
            "positions restart at 0 in every step. The new tokens stand behind those in the cache: go on counting.",
        ),
        Twin(
            answers.positions_counted_from_one,
            "one too far: positions count from 0, so behind 4 tokens comes position 4.",
        ),
        Twin(
            answers.positions_from_the_last_old_one,
            "one too low: your first new token stands where the last old one stands already.",
        ),
        Twin(answers.positions_all_the_same, "all new tokens stand at the same place; each is one further."),
        Twin(
            answers.positions_with_the_count_as_the_end,
            "range takes a first and an end, not a first and a count: num_new is how many.",
        ),
        Twin(answers.positions_with_both_swapped, "the two are swapped: start at num_computed, count num_new."),
        Twin(
            answers.positions_counted_twice,
            "the new tokens are counted twice: you advance the counter before you use it.",
        ),
        Twin(
            answers.positions_of_the_whole_text,
            "those are the positions of the whole text; only the new tokens are asked for.",
        ),
        Twin(
            answers.positions_behind_the_new_ones,
            "that is the place behind the new tokens. The first of them stands at num_computed, and each has its own.",
        ),
        Twin(answers.positions_of_the_newest_only, "one position only; each of the num_new tokens needs one."),
        Twin(answers.positions_with_the_end_included, "one position too many: range leaves its end out by itself."),
        Twin(
            answers.positions_cut_from_the_end,
            "with no new token [-0:] takes everything: count from the front instead.",
        ),
        Twin(answers.positions_as_a_tensor, "a list of whole numbers is wanted, not a tensor."),
    ),
    right=(answers.positions_by_adding, answers.positions_cut_from_the_whole),
    question="Four tokens are in the cache, at positions 0 to 3. Where does the next one stand?",
    steps=(
        "The tokens in the cache have the positions 0 to num_computed - 1.",
        "The first new one has the next position, the second the one after it.",
        "num_new positions in all.",
    ),
    pieces=("range(", "num_computed,", "num_computed + num_new", ")", "list(", ")", "return"),
    why="a position belongs to a token and its text, not to the pass that computes it. Chapter 06 needs just that.",
    in_engine=same_tokens,
)

CHAPTER = Chapter(
    3,
    "One token at a time, and the KV cache",
    (45, 55),
    (GENERATE_NAIVE, WRITE_KV, ATTEND_WITH_CACHE, BYTES_PER_TOKEN, POSITIONS_OF),
)
