"""One text and its cache by hand: the same tokens as the engine, and each token computed once."""

from __future__ import annotations

import pytest

from minicb import seams
from minicb.course.reader import Reader
from minicb.course.tiny import NEW_TOKENS, PROMPTS, alone_by_reference


def cached(prompt: tuple[int, ...], reader: Reader) -> tuple[int, ...]:
    answer = [reader.read(prompt)]
    while len(answer) < NEW_TOKENS:
        answer.append(reader.read(answer[-1:]))
    return tuple(answer)


@pytest.mark.parametrize("name", PROMPTS)
@pytest.mark.parametrize("shift", [0, 100])
def test_a_reader_says_what_the_engine_says_and_only_distances_count(name: str, shift: int) -> None:
    reader = Reader(shift=shift)
    assert cached(tuple(PROMPTS[name]), reader) == alone_by_reference()[name]
    length = len(PROMPTS[name])
    assert reader.passes == [(0, length), *((length + i, 1) for i in range(NEW_TOKENS - 1))]


@pytest.mark.parametrize("pieces", [[9], [4, 5], [1] * 9, [8, 1]])
def test_the_size_of_the_pieces_does_not_matter(pieces: list[int]) -> None:
    prompt, passes = list(PROMPTS["B"]), list[tuple[int, int]]()
    reader = Reader(passes=passes)
    for count in pieces:
        token = reader.read(prompt[reader.length : reader.length + count])
    assert token == alone_by_reference()["B"][0]
    assert [count for _, count in passes] == pieces


def test_it_runs_on_the_parts_that_are_installed() -> None:
    with seams.swapped("3.5", lambda num_computed, num_new: list(range(num_new))):  # noqa: ARG005
        seams.begin_receipt()
        assert cached(tuple(PROMPTS["B"]), Reader()) != alone_by_reference()["B"]
        assert seams.SEAMS["3.5"].counts() == {"yours": NEW_TOKENS}


@pytest.mark.parametrize("ids", [[], [1] * 6])
def test_what_cannot_be_read_is_said_in_one_line(ids: list[int]) -> None:
    reader = Reader(room=8)
    reader.read([1, 2, 3])
    with pytest.raises(ValueError, match=r"cannot read \d tokens after 3: at least 1, and room is 8 in all"):
        reader.read(ids)
