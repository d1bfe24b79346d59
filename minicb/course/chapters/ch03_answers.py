"""Wrong and right answers to the exercises of chapter 03, written as a learner would; the cache's own two are in
`ch03_cache_answers.py`.

The wrong ones (*twins*) are the well-known mistakes, named after what they do; `ch03.py` has the advice for
each. Two different right answers an exercise must pass, so that a check judges what a function does and not how.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False
# ruff: noqa: ARG001, PERF401

from __future__ import annotations

import math

import torch

# --- 3.1 generate_naive


def naive_reading_the_newest_only(next_token, prompt, max_tokens):
    text = list(prompt)
    for _ in range(max_tokens):
        text.append(next_token(text[-1:]))
    return text[len(prompt) :]


def naive_reading_the_prompt_only(next_token, prompt, max_tokens):
    answer = []
    for _ in range(max_tokens):
        answer.append(next_token(list(prompt)))
    return answer


def naive_reading_the_answer_only(next_token, prompt, max_tokens):
    answer = []
    for i in range(max_tokens):
        answer.append(next_token(list(prompt) if i == 0 else answer))
    return answer


def naive_with_the_prompt(next_token, prompt, max_tokens):
    text = list(prompt)
    for _ in range(max_tokens):
        text.append(next_token(text))
    return text


def naive_one_too_many(next_token, prompt, max_tokens):
    text = list(prompt)
    text.append(next_token(text))
    for _ in range(max_tokens):
        text.append(next_token(text))
    return text[len(prompt) :]


def naive_one_too_few(next_token, prompt, max_tokens):
    text = list(prompt)
    for _ in range(1, max_tokens):
        text.append(next_token(text))
    return text[len(prompt) :]


def naive_reading_once_too_often(next_token, prompt, max_tokens):
    text, token = list(prompt), next_token(list(prompt))
    for _ in range(max_tokens):
        text.append(token)
        token = next_token(text)
    return text[len(prompt) :]


def naive_until_the_text_is_that_long(next_token, prompt, max_tokens):
    text = list(prompt)
    while len(text) < max_tokens:
        text.append(next_token(text))
    return text[len(prompt) :]


def naive_a_token_for_each_of_the_prompt(next_token, prompt, max_tokens):
    text = list(prompt)
    for _ in prompt:
        text.append(next_token(text))
    return text[len(prompt) :]


def naive_cut_from_the_end(next_token, prompt, max_tokens):
    text = list(prompt)
    for _ in range(max_tokens):
        text.append(next_token(text))
    return text[-max_tokens:]


def naive_written_into_the_prompt(next_token, prompt, max_tokens):
    text, length = prompt, len(prompt)
    for _ in range(max_tokens):
        text.append(next_token(text))
    return text[length:]


def naive_adding_a_number_to_a_list(next_token, prompt, max_tokens):
    text = list(prompt)
    for _ in range(max_tokens):
        text = text + next_token(text)
    return text[len(prompt) :]


def naive_extending_by_a_number(next_token, prompt, max_tokens):
    text = list(prompt)
    for _ in range(max_tokens):
        text += next_token(text)
    return text[len(prompt) :]


def naive_appending_the_function(next_token, prompt, max_tokens):
    text = list(prompt)
    for _ in range(max_tokens):
        text.append(next_token)
    return text[len(prompt) :]


def naive_assigning_what_append_returns(next_token, prompt, max_tokens):
    text = list(prompt)
    for _ in range(max_tokens):
        text = text.append(next_token(text))
    return text[len(prompt) :]


def naive_without_appending(next_token, prompt, max_tokens):
    text = list(prompt)
    for _ in range(max_tokens):
        next_token(text)
    return text[len(prompt) :]


def naive_throwing_the_tokens_away(next_token, prompt, max_tokens):
    text = list(prompt)
    for _ in range(max_tokens):
        next_token(text)
    return text


def naive_putting_the_token_in_the_place_of_the_text(next_token, prompt, max_tokens):
    text = list(prompt)
    for _ in range(max_tokens):
        text = next_token(text)
    return text - prompt


def naive_subtracting_the_prompt(next_token, prompt, max_tokens):
    text = list(prompt)
    for _ in range(max_tokens):
        text.append(next_token(text))
    return text - prompt


def naive_returning_in_the_first_round(next_token, prompt, max_tokens):
    text = list(prompt)
    for _ in range(max_tokens):
        text.append(next_token(text))
        return text[len(prompt) :]
    return []


def naive_returning_the_prompt(next_token, prompt, max_tokens):
    text = list(prompt)
    for _ in range(max_tokens):
        text.append(next_token(text))
    return text[: len(prompt)]


def naive_keeping_the_newest_only(next_token, prompt, max_tokens):
    text, token = list(prompt), None
    for _ in range(max_tokens):
        token = next_token(text)
        text.append(token)
    return token


def naive_with_a_list_of_its_own(next_token, prompt, max_tokens):
    answer = []
    while len(answer) < max_tokens:
        answer.append(next_token([*prompt, *answer]))
    return answer


def naive_by_recursion(next_token, prompt, max_tokens):
    def go_on(text, left):
        if left == 0:
            return []
        token = next_token(text)
        return [token, *go_on([*text, token], left - 1)]

    return go_on(list(prompt), max_tokens)


# --- 3.4 bytes_per_token


def bytes_of_the_keys_only(num_layers, num_kv_heads, head_dim, element_bytes):
    return num_layers * num_kv_heads * head_dim * element_bytes


def bytes_in_one_layer(num_layers, num_kv_heads, head_dim, element_bytes):
    return 2 * num_kv_heads * head_dim * element_bytes


def bytes_of_one_head(num_layers, num_kv_heads, head_dim, element_bytes):
    return 2 * num_layers * head_dim * element_bytes


def bytes_as_numbers(num_layers, num_kv_heads, head_dim, element_bytes):
    return 2 * num_layers * num_kv_heads * head_dim


def bytes_as_bits(num_layers, num_kv_heads, head_dim, element_bytes):
    return 2 * num_layers * num_kv_heads * head_dim * element_bytes * 8


def bytes_taken_for_bits(num_layers, num_kv_heads, head_dim, element_bytes):
    return 2 * num_layers * num_kv_heads * head_dim * element_bytes // 8


def bytes_in_half_precision_always(num_layers, num_kv_heads, head_dim, element_bytes):
    return 2 * num_layers * num_kv_heads * head_dim * 2


def bytes_in_float32_always(num_layers, num_kv_heads, head_dim, element_bytes):
    return 2 * num_layers * num_kv_heads * head_dim * 4


def bytes_of_the_example(num_layers, num_kv_heads, head_dim, element_bytes):
    return 2 * 3 * 64 * 4 * 30


def bytes_of_the_example_in_all_layers(num_layers, num_kv_heads, head_dim, element_bytes):
    return 2 * 3 * 64 * 4 * num_layers


def bytes_with_queries_as_well(num_layers, num_kv_heads, head_dim, element_bytes):
    return 3 * num_layers * num_kv_heads * head_dim * element_bytes


def bytes_without_the_head_size(num_layers, num_kv_heads, head_dim, element_bytes):
    return 2 * num_layers * num_kv_heads * element_bytes


def bytes_with_the_size_squared(num_layers, num_kv_heads, head_dim, element_bytes):
    return 2 * num_layers * num_kv_heads * head_dim**2 * element_bytes


def bytes_in_kib(num_layers, num_kv_heads, head_dim, element_bytes):
    return 2 * num_layers * num_kv_heads * head_dim * element_bytes / 1024


def bytes_as_a_float(num_layers, num_kv_heads, head_dim, element_bytes):
    return 2.0 * num_layers * num_kv_heads * head_dim * element_bytes


def bytes_key_plus_value(num_layers, num_kv_heads, head_dim, element_bytes):
    key = value = num_kv_heads * head_dim * element_bytes
    return (key + value) * num_layers


def bytes_by_prod(num_layers, num_kv_heads, head_dim, element_bytes):
    return math.prod([2, num_layers, num_kv_heads, head_dim, element_bytes])


# --- 3.5 positions_of


def positions_restarting(num_computed, num_new):
    return list(range(num_new))


def positions_counted_from_one(num_computed, num_new):
    return list(range(num_computed + 1, num_computed + num_new + 1))


def positions_from_the_last_old_one(num_computed, num_new):
    return list(range(num_computed - 1, num_computed + num_new - 1))


def positions_all_the_same(num_computed, num_new):
    return [num_computed] * num_new


def positions_with_the_count_as_the_end(num_computed, num_new):
    return list(range(num_computed, num_new))


def positions_with_both_swapped(num_computed, num_new):
    return list(range(num_new, num_new + num_computed))


def positions_counted_twice(num_computed, num_new):
    num_computed += num_new
    return list(range(num_computed, num_computed + num_new))


def positions_of_the_whole_text(num_computed, num_new):
    return list(range(num_computed + num_new))


def positions_behind_the_new_ones(num_computed, num_new):
    return [num_computed + num_new]


def positions_of_the_newest_only(num_computed, num_new):
    return [num_computed + num_new - 1]


def positions_with_the_end_included(num_computed, num_new):
    return list(range(num_computed, num_computed + num_new + 1))


def positions_cut_from_the_end(num_computed, num_new):
    return list(range(num_computed + num_new))[-num_new:]


def positions_as_a_tensor(num_computed, num_new):
    return torch.arange(num_computed, num_computed + num_new)


def positions_by_adding(num_computed, num_new):
    return [num_computed + i for i in range(num_new)]


def positions_cut_from_the_whole(num_computed, num_new):
    everything = [*range(num_computed + num_new)]
    return everything[num_computed:]
