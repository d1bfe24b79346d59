"""What `minicb bench` asks of every engine: the same token ids, and an answer of a fixed length for each.

Ids are random, as nobody reads the answers; lengths are what matters. `chat` has the demo's real prompts.
"""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from minicb.bench.chat import chat_workload
from minicb.checkpoint import Tokenizer

LENGTH_COLUMNS = (("prompt_tokens", "output_tokens"), ("ContextTokens", "GeneratedTokens"))


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests that all arrive at once. Lengths in tokens."""

    name: str
    prompts: list[list[int]]
    max_tokens: list[int]

    @property
    def longest(self) -> int:
        """Tokens of the longest request, prompt and answer."""
        return max(len(p) + n for p, n in zip(self.prompts, self.max_tokens, strict=True))

    def __str__(self) -> str:
        read, write = sum(map(len, self.prompts)), sum(self.max_tokens)
        return f"{self.name}: {len(self.prompts)} requests, {read:,} tokens to read, {write:,} to write"


def ragged_32(dice: random.Random) -> list[tuple[int, int]]:
    """Lognormal prompts of 16-400 and answers of 4-128 tokens: as uneven as chat is."""
    return [(lognormal(dice, 4.3, 0.8, 16, 400), lognormal(dice, 3.6, 0.7, 4, 128)) for _ in range(32)]


def long_prompts(dice: random.Random) -> list[tuple[int, int]]:
    """Much to read, little to write: summaries."""
    return [(dice.randint(400, 1200), dice.randint(8, 32)) for _ in range(16)]


def uniform_256(dice: random.Random) -> list[tuple[int, int]]:
    """256 requests, both lengths uniform 100-1024: the script that small engines are usually measured with."""
    return [(dice.randint(100, 1024), dice.randint(100, 1024)) for _ in range(256)]


LENGTHS: dict[str, Callable[[random.Random], list[tuple[int, int]]]] = {
    "ragged-32": ragged_32, "long-prompts": long_prompts, "uniform-256": uniform_256,
}  # fmt: skip
NAMES = (*LENGTHS, "chat")


def find_workload(name: str, vocab_size: int, tokenizer: Tokenizer, seed: int = 0) -> Workload:
    """A workload by its name, or from a file of lengths.

    Raises ValueError for what is neither, or for a file without lengths.
    """
    if name == "chat":
        chat = chat_workload()
        return Workload(name, [tokenizer.chat(p.messages) for p in chat], [p.max_tokens for p in chat])
    dice = random.Random(seed)
    if name in LENGTHS:
        lengths = LENGTHS[name](dice)
    elif Path(name).is_file():
        lengths = read_lengths(Path(name))
    else:
        raise ValueError(f"{name!r} is no workload and no file: choose one of {', '.join(NAMES)}, or a CSV of lengths")
    prompts = [[dice.randrange(vocab_size) for _ in range(read)] for read, _ in lengths]
    return Workload(Path(name).stem, prompts, [write for _, write in lengths])


def lognormal(dice: random.Random, mean: float, deviation: float, low: int, high: int) -> int:
    """mean, deviation: of the logarithm of the length"""
    return min(max(round(math.exp(dice.gauss(mean, deviation))), low), high)


def read_lengths(path: Path) -> list[tuple[int, int]]:
    """Pairs of lengths from a CSV with the columns prompt_tokens,output_tokens (or an Azure trace's names)."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = next((pair for pair in LENGTH_COLUMNS if rows and set(pair) <= set(rows[0])), None)
    if columns is None:
        raise ValueError(f"{path}: a file of lengths needs rows under the columns prompt_tokens,output_tokens")
    return [read_row(path, number, row, columns) for number, row in enumerate(rows, start=2)]


def read_row(path: Path, number: int, row: dict[str, str], columns: Sequence[str]) -> tuple[int, int]:
    try:
        read, write = (int(row[column]) for column in columns)
    except (TypeError, ValueError):
        read = write = 0
    if read < 1 or write < 1:
        raise ValueError(f"{path} line {number}: both lengths must be whole numbers of at least 1")
    return read, write
