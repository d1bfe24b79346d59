"""Wrong and right answers to exercises 6.1 and 6.3 of chapter 06, written as a learner would.

The wrong ones (*twins*) are the well-known mistakes, named after what they do; `ch06.py` has the advice for
each. Two different right answers an exercise must pass, so that a check judges what a function does and not how.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False
# ruff: noqa: ARG001, B905, PERF401

from __future__ import annotations

import torch

# --- 6.1 concatenate


def row_without_the_total(chunks):
    items, starts = [], []
    for chunk in chunks:
        starts.append(len(items))
        items.extend(chunk)
    return items, starts


def row_with_ends_for_starts(chunks):
    items, starts = [], []
    for chunk in chunks:
        items.extend(chunk)
        starts.append(len(items))
    return items, starts


def row_behind_its_starts(chunks):
    items, starts = [], [0]
    for chunk in chunks:
        items.extend(chunk)
        starts.append(len(items))
    return starts, items


def row_with_lengths_for_starts(chunks):
    return [item for chunk in chunks for item in chunk], [len(chunk) for chunk in chunks]


def row_with_zero_and_lengths(chunks):
    return [item for chunk in chunks for item in chunk], [0] + [len(chunk) for chunk in chunks]


def row_of_lists(chunks):
    items, starts = [], [0]
    for chunk in chunks:
        items.append(list(chunk))
        starts.append(starts[-1] + len(chunk))
    return items, starts


def row_counting_chunks(chunks):
    items, starts = [], [0]
    for chunk in chunks:
        items.append(list(chunk))
        starts.append(len(items))
    return items, starts


def row_counting_chunks_from_one(chunks):
    items, starts = [], []
    for chunk in chunks:
        items.append(list(chunk))
        starts.append(len(items))
    return items, starts


def row_padded_to_the_longest(chunks):
    width = max((len(chunk) for chunk in chunks), default=0)
    items = [item for chunk in chunks for item in list(chunk) + [0] * (width - len(chunk))]
    return items, [i * width for i in range(len(chunks) + 1)]


def row_a_token_each_in_turn(chunks):
    width = max((len(chunk) for chunk in chunks), default=0)
    items = [chunk[i] for i in range(width) for chunk in chunks if i < len(chunk)]
    starts = [0]
    for chunk in chunks:
        starts.append(starts[-1] + len(chunk))
    return items, starts


def row_alone(chunks):
    return [item for chunk in chunks for item in chunk]


def row_without_empty_chunks(chunks):
    items, starts = [], [0]
    for chunk in chunks:
        if chunk:
            items.extend(chunk)
            starts.append(len(items))
    return items, starts


def row_looking_the_chunk_up(chunks):
    items, starts = [], []
    for chunk in chunks:
        starts.append(sum(len(other) for other in chunks[: chunks.index(chunk)]))
        items.extend(chunk)
    return items, [*starts, len(items)]


def row_growing_the_first_chunk(chunks):
    items, starts = chunks[0], [0, len(chunks[0])]
    for chunk in chunks[1:]:
        items += chunk
        starts.append(len(items))
    return items, starts


def row_as_a_sum_of_lists(chunks):
    items, starts = sum(chunks), [0]
    for chunk in chunks:
        starts.append(starts[-1] + len(chunk))
    return items, starts


def row_adding_a_number_to_starts(chunks):
    items, starts = [], [0]
    for chunk in chunks:
        items += chunk
        starts += len(items)
    return items, starts


def row_in_tensors(chunks):
    items, starts = [], [0]
    for chunk in chunks:
        items.extend(chunk)
        starts.append(len(items))
    return torch.tensor(items, dtype=torch.int64), torch.tensor(starts)


def row_by_sums(chunks):
    starts = [sum(len(chunk) for chunk in chunks[:i]) for i in range(len(chunks) + 1)]
    return [item for chunk in chunks for item in chunk], starts


def row_by_slices(chunks):
    lengths = torch.tensor([0] + [len(chunk) for chunk in chunks])
    starts = lengths.cumsum(0).tolist()
    items = [None] * starts[-1]
    for chunk, start, end in zip(chunks, starts, starts[1:]):
        items[start:end] = chunk
    return items, starts


# --- 6.3 rows_to_sample


def rows_at_the_beginnings(q_start, samples):
    return [start for start, wanted in zip(q_start, samples) if wanted]


def rows_one_too_far(q_start, samples):
    return [end for end, wanted in zip(q_start[1:], samples) if wanted]


def rows_one_before_the_beginnings(q_start, samples):
    return [start - 1 for start, wanted in zip(q_start, samples) if wanted]


def rows_of_everybody(q_start, samples):
    return [end - 1 for end in q_start[1:]]


def rows_of_the_others(q_start, samples):
    return [end - 1 for end, wanted in zip(q_start[1:], samples) if not wanted]


def rows_by_the_number_of_the_request(q_start, samples):
    return [i for i, wanted in enumerate(samples) if wanted]


def rows_counted_within_the_chunk(q_start, samples):
    return [end - start - 1 for start, end, wanted in zip(q_start, q_start[1:], samples) if wanted]


def rows_counted_from_the_end(q_start, samples):
    return [-1 for wanted in samples if wanted]


def rows_with_a_place_for_everybody(q_start, samples):
    return [end - 1 if wanted else -1 for end, wanted in zip(q_start[1:], samples)]


def rows_with_zero_for_the_others(q_start, samples):
    return [(end - 1) * wanted for end, wanted in zip(q_start[1:], samples)]


def rows_whole_chunks(q_start, samples):
    return [row for start, end, wanted in zip(q_start, q_start[1:], samples) if wanted for row in range(start, end)]


def rows_as_yes_and_no(q_start, samples):
    ends = [end - 1 for end, wanted in zip(q_start[1:], samples) if wanted]
    return [row in ends for row in range(q_start[-1])]


def rows_in_a_tensor(q_start, samples):
    return torch.tensor([end - 1 for end, wanted in zip(q_start[1:], samples) if wanted], dtype=torch.int64)


def rows_with_the_total_taken_for_a_chunk(q_start, samples):
    return [end - 1 for end, wanted in zip(q_start, samples, strict=True) if wanted]


def rows_by_number(q_start, samples):
    rows = []
    for i in range(len(samples)):
        if samples[i]:
            rows.append(q_start[i + 1] - 1)
    return rows


def rows_by_mask(q_start, samples):
    ends = torch.tensor(list(q_start[1:]), dtype=torch.int64)
    return (ends[torch.tensor(samples, dtype=torch.bool)] - 1).tolist()
