"""Three ways to compute one step, and what each costs: a rectangle, one dense mask, request by request. (Chapter 6)

    three_ways(new=[3, 9, 4], context=[3, 9, 4])      three prompts, nothing cached

Every way gives the same tokens. What differs is how many token slots go through the model and how many scores
attention works out for nothing; both are counted from the masks themselves, and `draw_areas` shows them to scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minicb.reference import mask_of_chunk, ragged_mask

WAYS = ("padded", "one dense mask", "request by request")
Counted = tuple[int, int]  # computed, and how many of them somebody needed


@dataclass(frozen=True, slots=True)
class Block:
    """Scores that are computed in one piece: True where somebody needs them. owners: whose each column is."""

    needed: Tensor  # bool [rows, columns]
    owners: Sequence[str]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to compute a step."""

    name: str
    slots: Counted  # rows that go through the model
    blocks: Sequence[Block]

    @property
    def cells(self) -> Counted:
        """Scores per head and layer."""
        computed = sum(block.needed.numel() for block in self.blocks)
        return computed, sum(int(block.needed.sum()) for block in self.blocks)

    def __str__(self) -> str:
        (slots, tokens), (cells, needed) = self.slots, self.cells
        share = f"{100 * needed / cells:.1f} %" if cells else "-"
        return (
            f"{self.name:<20}{slots:>6,} slots, {tokens:>4,} useful{cells:>10,} cells, {needed:>6,} useful: {share:>7}"
        )


def three_ways(new: Sequence[int], context: Sequence[int]) -> list[Way]:
    """new: tokens of each request in this step   context: its keys after the step, the new ones included"""
    names = [chr(65 + i) if i < 26 else str(i) for i in range(len(new))]
    alone = [mask_of_chunk(total - count, count) for count, total in zip(new, context, strict=True)]
    width, longest, tokens = max(new, default=0), max(context, default=0), sum(new)
    padded = []
    for name, mask in zip(names, alone, strict=True):
        needed = torch.zeros(width, longest, dtype=torch.bool)
        needed[width - mask.shape[0] :, longest - mask.shape[1] :] = mask
        padded.append(Block(needed, [name] * longest))
    columns = [name for name, total in zip(names, context, strict=True) for _ in range(total)]
    ragged = [Block(mask, [name] * mask.shape[1]) for name, mask in zip(names, alone, strict=True)]
    return [
        Way(WAYS[0], (len(new) * width, tokens), padded),
        Way(WAYS[1], (tokens, tokens), [Block(ragged_mask(new, context), columns)]),
        Way(WAYS[2], (tokens, tokens), ragged),
    ]


def costs(workloads: Mapping[str, tuple[Sequence[int], Sequence[int]]]) -> dict[str, dict[str, dict[str, Counted]]]:
    """For `draw_costs`: workload -> "token slots" and "score cells" -> way -> (computed, useful)."""
    ways = {name: three_ways(new, context) for name, (new, context) in workloads.items()}
    return {
        name: {
            "token slots": {way.name: way.slots for way in three},
            "score cells, per head and layer": {way.name: way.cells for way in three},
        }
        for name, three in ways.items()
    }
