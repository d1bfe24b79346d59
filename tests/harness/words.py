"""A decoder for made-up vocabularies: short pieces of text, and characters whose bytes lie in several ids.

Like a byte-level tokenizer it joins the bytes of all ids and prints U+FFFD for what makes no character. The pieces
are chosen so that stop texts come together in many ways: inside an id, over two, over three, from either side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PIECES = (
    b"a", b"b", b"ab", b" ", b"ba", b"c", b"\xc3", b"\xa9", b"\xf0\x9f", b"\x98\x80", b"abc", b"a\xc3", b"\xa9b",
    b" a", b"x", b"\xf0", b"\x9f", b"\x98", b"\x80", b"\xcc\x81", b"b\xf0\x9f\x98", b"\x80a", b"\n", b"cab",
)  # fmt: skip
STOPS = (
    "a",
    "b",
    "ab",
    "ba",
    "abab",
    "aba",
    "c a",
    "\u00e9",
    "\u00e9b",
    "b\U0001f600",
    "\U0001f600a",
    " ",
    "aab",
    "bc",
)


class UndecodableId(ValueError):  # noqa: N818 - reads as what happened
    """This id has no text: the fault of one request."""


@dataclass(frozen=True, slots=True)
class Words:
    """`decode` of an engine."""

    hidden_ids: frozenset[int] = frozenset()  # special ids: no text
    bad_id: int | None = None  # decoding it raises

    def __call__(self, ids: Sequence[int]) -> str:
        if self.bad_id is not None and self.bad_id in ids:
            raise UndecodableId(f"id {self.bad_id} has no text")
        return b"".join(self.piece(i) for i in ids).decode("utf-8", errors="replace")

    def piece(self, token_id: int) -> bytes:
        return b"" if token_id in self.hidden_ids else PIECES[token_id % len(PIECES)]
