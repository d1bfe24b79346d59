"""Wrong and right answers to exercises 5.3 and 5.4, written as a learner would.

The wrong ones (*twins*) are the well-known mistakes, named after what they do; `ch05.py` has the advice for
each. Two different right answers an exercise must pass, so that a check judges what a function does and not how.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False

from __future__ import annotations

import torch

# --- 5.3 wasted_fraction


def waste_turned_round(useful, total):
    return useful / total if total else 0.0


def waste_in_per_cent(useful, total):
    return 100 * (1 - useful / total) if total else 0.0


def waste_in_whole_numbers(useful, total):
    return (total - useful) // total if total else 0


def waste_of_nothing(useful, total):
    return 1 - useful / total


def waste_per_useful(useful, total):
    return (total - useful) / useful if useful else 0.0


def waste_counted(useful, total):
    return total - useful


def waste_rounded(useful, total):
    return round(1 - useful / total, 2) if total else 0.0


def waste_of_nothing_as_one(useful, total):
    return 1 - useful / total if total else 1.0


def waste_upside_down(useful, total):
    return 1 - total / useful if useful else 0.0


def waste_by_difference(useful, total):
    wasted = total - useful
    return wasted / max(total, 1)


def waste_guarded_first(useful, total):
    if total == 0:
        return 0.0
    return 1.0 - useful / total


# --- 5.4 newest_rows


def newest_in_the_last_column(real):
    rows, width = real.shape
    last_column = torch.arange(rows) * width + width - 1
    return last_column[real.any(dim=1)]


def newest_by_counting(real):
    rows, width = real.shape
    count = real.sum(dim=1)
    return (torch.arange(rows) * width + count - 1)[count > 0]


def newest_is_the_first(real):
    rows, width = real.shape
    first = real.int().argmax(dim=1)
    return (torch.arange(rows) * width + first)[real.any(dim=1)]


def newest_column_only(real):
    width = real.shape[1]
    places = torch.where(real, torch.arange(width), -1).amax(dim=1)
    return places[places >= 0]


def newest_of_empty_rows_too(real):
    rows, width = real.shape
    return torch.arange(rows) * width + real.int().cumsum(dim=1).argmax(dim=1)


def newest_from_behind(real):
    rows, width = real.shape
    steps_back = real.int().flip(1).argmax(dim=1)
    return torch.arange(rows) * width + width - 1 - steps_back


def newest_of_the_row_before(real):
    rows, width = real.shape
    found, last = [], 0
    for i in range(rows):
        for j in range(width):
            if real[i, j]:
                last = j
        found.append(i * width + last)
    return torch.tensor(found)


def newest_of_a_neighbour(real):
    rows, width = real.shape
    places = torch.where(real, torch.arange(width), -1).amax(dim=1)
    return torch.arange(rows) * width + places


def newest_by_index(real):
    rows, width = real.shape
    places = torch.stack([row.nonzero().flatten()[-1] for row in real])
    return torch.arange(rows) * width + places


def newest_every_token(real):
    return real.flatten().nonzero().flatten()


def newest_as_a_mask(real):
    count = real.int().cumsum(dim=1)
    return real & (count == count[:, -1:])


def newest_in_a_list(real):
    rows, width = real.shape
    return [i * width + max(j for j in range(width) if real[i, j]) for i in range(rows) if real[i].any()]


def newest_times_the_rows(real):
    rows, width = real.shape
    places = torch.where(real, torch.arange(width), -1).amax(dim=1)
    return (torch.arange(rows) * rows + places)[places >= 0]


def newest_by_cumsum(real):
    width = real.shape[1]
    busy = real.any(dim=1).nonzero().flatten()
    return busy * width + real[busy].int().cumsum(dim=1).argmax(dim=1)


def newest_row_by_row(real):
    rows, width = real.shape
    found = []
    for i in range(rows):
        for j in reversed(range(width)):
            if real[i, j]:
                found.append(i * width + j)
                break
    return torch.tensor(found, dtype=torch.int64)
