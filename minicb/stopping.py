"""Ids to text as they come, and the stop texts. Nothing is shown that could still have to be taken back.

Two things are held back: the bytes of a character that is not whole yet, and a tail that may yet become a
stop text. What was shown, joined, is always the beginning of the final text, and at the end all of it.
This module knows one answer's ids; it does not know the model, the batch or the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]
HALF = "\ufffd"  # what a decoder prints for bytes that do not make a character


class Detokeniser:
    """Decode a growing list of ids piece by piece, in the context of the ids just before."""

    __slots__ = ("context", "decode", "given", "ids", "whole")

    def __init__(self, decode: Decode) -> None:
        self.decode = decode
        self.ids: list[int] = []
        self.context = 0  # decoding starts here, so that a piece keeps its leading space
        self.whole = 0  # ids before this end with a whole character
        self.given = 0  # characters of the text from `context` on that were given out

    def push(self, token_id: int) -> str:
        """The text that this id completes, but for a character at its end that is still in pieces."""
        self.ids.append(token_id)
        text = self.decode(self.ids[self.context :])
        end = len(text.rstrip(HALF))
        piece = text[self.given : end]
        self.given = max(self.given, end)
        if end == len(text):
            self.context, self.whole = self.whole, len(self.ids)
            self.given = len(self.decode(self.ids[self.context : self.whole]))
        return piece

    def flush(self) -> str:
        """What is still held: the cut-off bytes of a last character, once, as the decoder prints them."""
        text, given = self.decode(self.ids[self.context :]), self.given
        self.given = max(given, len(text))
        return text[given:]


class StopChecker:
    """The text of one answer, watched for its stop texts."""

    __slots__ = ("detokeniser", "include", "released", "stops", "text")

    def __init__(self, decode: Decode, stops: Sequence[str] = (), include: bool = False) -> None:
        self.detokeniser = Detokeniser(decode)
        self.stops, self.include = tuple(stops), include
        self.text = ""  # the answer so far, cut at the stop text once one is found
        self.released = 0  # characters of it that were handed out

    def push(self, token_id: int, *, armed: bool = True) -> str | None:
        """Take the next id; returns the stop text that is now complete, if any.

        armed: False before `min_tokens` are reached: the text then counts as written, and matches no stop.
        """
        before = len(self.text)
        self.text += self.detokeniser.push(token_id)
        if not armed or not self.stops:
            return None
        # A match must end in the new piece: an earlier one was passed by before `min_tokens`, and has been shown.
        starts = ((max(0, before - len(stop) + 1), stop) for stop in self.stops)
        found = [(at, stop) for start, stop in starts if (at := self.text.find(stop, start)) >= 0]
        if not found:
            return None
        at, stop = min(found)  # the earliest in the text; of those the shorter
        self.text = self.text[: at + len(stop) if self.include else at]
        return stop

    def release(self) -> str:
        """The text that may be shown now: all but a tail that could still become a stop text."""
        held = max((overlap(self.text, stop) for stop in self.stops), default=0)
        return self.hand_out(len(self.text) - held)

    def finish(self, *, stopped: bool) -> str:
        """The rest of the text. Unless a stop text ended it, the held bytes of a last character belong to it."""
        if not stopped:
            self.text += self.detokeniser.flush()
        return self.hand_out(len(self.text))

    def hand_out(self, end: int) -> str:
        piece = self.text[self.released : end]
        self.released = max(self.released, end)
        return piece


def overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a proper beginning of `stop`."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
