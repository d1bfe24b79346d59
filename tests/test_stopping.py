"""Ids to text as they come, and the stop texts: nothing leaks, nothing is missed, nothing has to be taken back.

Everything is held to two plain sentences. The text of an answer is what the decoder makes of all its ids, cut at the
first stop text. What is shown after each id is as much of it as cannot change any more.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import real_checkpoint
from stand_ins import Bytes, Pieces, Scripted, drain, outputs, reciting, small_engine
from torch import Tensor

from minicb.checkpoint import Tokenizer
from minicb.outputs import Event, RequestOutput
from minicb.sampling import SamplingParams
from minicb.stopping import HALF, Detokeniser, StopChecker

pytestmark = pytest.mark.usefixtures("one_thread")

ALPHABET = ["a", "b", "c", " ", "\n", "é", "漢", "😀", "e\u0301", "🇩🇪", "👨‍👩‍👧", HALF]
Decode = Callable[[Sequence[int]], str]


def shown(
    decode: Decode, ids: Sequence[int], stops: Sequence[str] = (), **options: bool
) -> tuple[list[str], str | None]:
    """What is shown after each id, with the rest as the last entry; and the stop text, if one was met."""
    checker = StopChecker(decode, stops, **options)
    texts: list[str] = []
    for token in ids:
        stop = checker.push(token)
        if stop is not None:
            texts.append(checker.finish(stopped=True))
            return texts, stop
        texts.append(checker.release())
    texts.append(checker.finish(stopped=False))
    assert "".join(texts) == checker.text
    return texts, None


def whole(text: str) -> str:
    """Without a character at the end that is still in pieces."""
    return text.rstrip(HALF)


def expected(decode: Decode, ids: Sequence[int], stops: Sequence[str]) -> tuple[str, str | None]:
    """The final text and the stop that ends it: the first to be complete; of several the earliest, the shortest."""
    for n in range(1, len(ids) + 1):
        text = whole(decode(ids[:n]))
        found = [(text.index(stop), len(stop), stop) for stop in stops if stop in text]
        if found:
            at, _, stop = min(found)
            return text[:at], stop
    return decode(ids), None


def settled(text: str, stops: Sequence[str]) -> str:
    """The part that cannot become a stop text any more."""
    held = [n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])]
    return text[: len(text) - max(held, default=0)]


def splits(data: bytes) -> Iterator[list[bytes]]:
    """Every way to cut these bytes into pieces."""
    for cuts in itertools.product([False, True], repeat=len(data) - 1):
        places = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(data)]
        yield [data[a:b] for a, b in itertools.pairwise(places)]


def random_split(rng: random.Random, data: bytes) -> list[bytes]:
    pieces = []
    while data:
        n = rng.randint(1, 4)
        pieces.append(data[:n])
        data = data[n:]
    return pieces


# ---- stop texts


def texts(pieces: Sequence[str], stops: Sequence[str], **options: bool) -> tuple[list[str], str | None]:
    return shown(Pieces([piece.encode() for piece in pieces]), range(len(pieces)), stops, **options)


def test_a_stop_text_over_three_pieces_is_found_and_never_shown() -> None:
    assert texts(["Hel", "lo w", "or", "ld!"], ["wor"]) == (["Hel", "lo ", ""], "wor")


def test_a_near_miss_is_shown_as_soon_as_it_is_one() -> None:
    assert texts(["wo", "x"], ["wor"]) == (["", "wox", ""], None)
    assert texts(["a", "wo"], ["wor"]) == (["a", "", "wo"], None)


def test_a_stop_text_inside_a_piece_takes_its_tail_along() -> None:
    assert texts(["one STOP two", "three"], ["STOP"]) == (["one "], "STOP")


def test_of_two_stop_texts_the_earlier_wins_and_of_two_at_one_place_the_shorter() -> None:
    assert texts(["xaby"], ["ab", "a"]) == (["x"], "a")
    assert texts(["xab", "cd"], ["abc", "b"]) == (["xa"], "b")
    assert texts(["x", "ab", "c"], ["abc", "abd"]) == (["x", "", ""], "abc")
    assert texts(["cd ab"], ["ab", "cd"]) == ([""], "cd")


def test_a_repeated_beginning_is_not_lost() -> None:
    """At the miss the text still ends with a beginning of the stop text: a counter that starts again fails here."""
    assert texts(["aab", "aab", "aac", "x"], ["aabaac"]) == (["", "aab", ""], "aabaac")


def test_the_stop_text_is_included_exactly_once_if_asked_for() -> None:
    for pieces in (["Hel", "lo w", "or", "ld!"], ["Hello world"], list("Hello world")):
        shown_texts, stop = texts(pieces, ["wor"], include=True)
        assert ("".join(shown_texts), stop) == ("Hello wor", "wor")


@pytest.mark.parametrize("text", ["\n\n", "é", "😀", "e\u0301", "ß stop"])
def test_a_stop_text_of_any_characters_is_found_however_its_bytes_are_cut(text: str) -> None:
    for pieces in splits(f"x{text}y".encode()):
        shown_texts, stop = shown(Pieces(pieces), range(len(pieces)), [text])
        assert ("".join(shown_texts), stop) == ("x", text), pieces


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_text_and_what_is_shown_of_it_follow_the_two_sentences(data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(ALPHABET), min_size=1, max_size=10), label="text"))
    stops = data.draw(
        st.lists(st.text(st.sampled_from("abc é😀\n"), min_size=1, max_size=4), max_size=3), label="stops"
    )
    pieces = random_split(random.Random(data.draw(st.integers(0, 999))), text.encode())
    decode, ids = Pieces(pieces), list(range(len(pieces)))
    final, stop = expected(decode, ids, stops)
    shown_texts, met = shown(decode, ids, stops)
    assert ("".join(shown_texts), met) == (final, stop)
    for n in range(1, len(shown_texts)):
        assert "".join(shown_texts[:n]) == settled(whole(decode(ids[:n])), stops), n


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=1, max_size=12), st.integers(0, 999))
def test_bytes_that_make_no_text_are_shown_once_as_the_decoder_prints_them(data: bytes, seed: int) -> None:
    pieces = random_split(random.Random(seed), data)
    shown_texts, _ = shown(Pieces(pieces), range(len(pieces)))
    assert "".join(shown_texts) == data.decode("utf-8", errors="replace")


# ---- stop texts and the rest of a request


def run(
    pieces: Sequence[str | bytes], prompt: Sequence[int] = (0,), **params: object
) -> tuple[list[Event], RequestOutput]:
    """A request whose answer is these pieces, through an engine. Ids count from 1; id 0 is "." and comes after them."""
    coded = [b".", *(piece if isinstance(piece, bytes) else piece.encode() for piece in pieces)]
    model = Scripted(reciting(len(prompt), range(1, len(coded))), vocab=100, end_ids=[99])
    engine = small_engine(model, Pieces({**dict(enumerate(coded)), 98: b"", 99: b""}))
    engine.add_request(prompt, SamplingParams(**params), "r")
    events = drain(engine)
    return events["r"], outputs(events)["r"]


def test_a_stop_text_completed_by_the_last_allowed_token_is_a_stop() -> None:
    _, output = run(["Hel", "lo w", "or", "ld"], max_tokens=3, stop="wor")
    assert (output.text, output.finish_reason, output.stop_reason) == ("Hello ", "stop", "wor")


def test_a_stop_text_before_half_a_character_counts_at_the_last_allowed_token_too() -> None:
    _, output = run(["Hel", b"lo wor\xf0\x9f", "x"], max_tokens=2, stop="wor")
    assert (output.text, output.finish_reason) == ("Hello ", "stop")


def test_a_beginning_of_a_stop_text_is_shown_when_the_answer_ends_for_another_reason() -> None:
    for params, reason in (({"max_tokens": 2}, "length"), ({"max_tokens": 9, "stop_token_ids": [3]}, "stop")):
        events, output = run(["a", "wo", "x"], stop="wor", **params)
        assert (output.text, output.finish_reason) == ("awo", reason)
        assert "".join(event.text for event in events) == "awo"


def test_a_stop_text_across_the_border_of_prompt_and_answer_does_not_count() -> None:
    _, output = run(["b", "c"], prompt=(0, 0), max_tokens=2, stop=".b")
    assert (output.text, output.finish_reason) == ("bc", "length")


def test_the_tokens_of_the_stop_text_stay_among_the_ids_and_logprobs() -> None:
    for include in (False, True):
        _, output = run(["a", "wo", "r", "x"], stop="wor", logprobs=0, include_stop_str_in_output=include)
        assert output.token_ids == (1, 2, 3)
        assert output.logprobs is not None
        assert len(output.logprobs) == output.metrics.num_output_tokens == 3
        assert output.text == ("awor" if include else "a")


def test_before_min_tokens_a_stop_text_is_plain_text() -> None:
    _, output = run(["a", "STOP", "b", "STOP", "c"], max_tokens=5, min_tokens=3, stop="STOP")
    assert (output.text, output.token_ids) == ("aSTOPb", (1, 2, 3, 4))


def test_a_stop_text_completed_by_the_last_of_min_tokens_counts() -> None:
    _, output = run(["a", "ST", "OP", "c"], max_tokens=4, min_tokens=3, stop="STOP")
    assert (output.text, output.finish_reason) == ("a", "stop")


def test_a_stop_text_that_min_tokens_passed_by_is_not_found_again_behind_a_longer_one() -> None:
    events, output = run(["x", "b", "y", "z", "b"], max_tokens=6, min_tokens=3, stop=["b", "qqqqqq"])
    assert (output.text, output.token_ids) == ("xbyz", (1, 2, 3, 4, 5))
    assert "".join(event.text for event in events) == "xbyz"


def test_min_tokens_gives_exactly_so_many_tokens_before_an_end_that_wants_to_come_at_once() -> None:
    """Whatever wants to end it: one of several end ids, an id of the user's."""
    for end, params in ((99, {}), (98, {"stop_token_ids": [98]})):
        for prompt_length in (1, 3, 50):
            for minimum in (0, 1, 4):
                # The second best token is 5; the model would rather end than anything else.
                model = Scripted(lambda _, end=end: wish(end), vocab=100, end_ids=[97, 99])
                engine = small_engine(model, Pieces([b"t"] * 97 + [b""] * 3))
                engine.add_request([1] * prompt_length, SamplingParams(min_tokens=minimum, max_tokens=9, **params), "r")
                output = outputs(drain(engine))["r"]
                assert output.token_ids == (*[5] * minimum, end)
                assert (output.text, output.finish_reason, output.stop_reason) == ("t" * minimum, "stop", end)


def wish(end: int) -> Tensor:
    logits = torch.zeros(100)
    logits[end], logits[5] = 9.0, 5.0
    return logits


def test_ignore_eos_goes_on_after_the_models_end_ids_but_not_after_the_users() -> None:
    pieces = ["a", "b", "c"]
    coded = {i + 1: piece.encode() for i, piece in enumerate(pieces)} | {99: b"", 0: b".", 98: b""}
    model = Scripted(reciting(1, [1, 99, 2, 98, 3]), vocab=100, end_ids=[99])
    for params, ids, text in (
        ({"ignore_eos": True}, (1, 99, 2, 98, 3), "abc"),
        ({"ignore_eos": True, "stop_token_ids": [98]}, (1, 99, 2, 98), "ab"),
        ({"stop_token_ids": [98]}, (1, 99), "a"),
    ):
        engine = small_engine(model, Pieces(coded))
        engine.add_request([0], SamplingParams(max_tokens=5, **params), "r")
        output = outputs(drain(engine))["r"]
        assert (output.token_ids, output.text) == (ids, text)


def test_200_random_splits_stop_the_same_interleaved_in_one_engine() -> None:
    """One text, 200 ways to cut it, all in flight at once with different stop texts; each is what it is by itself."""
    rng, text = random.Random(5), "Der Bär aß 😀 und 漢字, dann e\u0301 STOP und mehr"
    pieces: list[bytes] = [b""] * 200  # ids below 200 are the prompts: the number of the request
    answers: list[list[int]] = []
    for _ in range(200):
        own = random_split(rng, text.encode())
        answers.append([len(pieces) + i for i in range(len(own))])
        pieces += own
    model = Scripted(lambda h: ([*answers[h[0]], 0])[len(h) - 1], vocab=len(pieces), max_position=80)
    engine = small_engine(model, Pieces(pieces), max_num_seqs=16, max_num_batched_tokens=16)
    stops: list[list[str]] = [
        rng.sample(["STOP", "aß", "😀 u", "e\u0301", "字", "mehr", "nie", " und"], 2) for _ in answers
    ]
    for number, (answer, stop) in enumerate(zip(answers, stops, strict=True)):
        engine.add_request([number], SamplingParams(max_tokens=len(answer), stop=stop), str(number))
    events = drain(engine, limit=2_000)
    for number, output in ((int(name), output) for name, output in outputs(events).items()):
        final, met = expected(Pieces(pieces), answers[number], stops[number])
        assert (output.text, output.stop_reason) == (final, met)
        assert "".join(event.text for event in events[str(number)]) == final


# ---- characters in pieces


@pytest.mark.parametrize("text", ["😀", "漢", "é!", "e\u0301", "🇩🇪", "a\u0308\u0323"])
def test_a_character_in_pieces_is_shown_when_it_is_whole_however_it_was_cut(text: str) -> None:
    for pieces in splits(text.encode()):
        decode, ids = Pieces(pieces), list(range(len(pieces)))
        shown_texts, _ = shown(decode, ids)
        assert "".join(shown_texts) == text, pieces
        assert not any(HALF in one for one in shown_texts), pieces
        for n in range(1, len(ids) + 1):
            assert "".join(shown_texts[:n]) == whole(decode(ids[:n])), (pieces, n)


def test_a_family_with_its_joiners_is_one_text_in_any_random_cut() -> None:
    text, rng = "x👨‍👩‍👧‍👦 👩🏽‍🚀y", random.Random(1)
    for _ in range(300):
        pieces = random_split(rng, text.encode())
        shown_texts, _ = shown(Pieces(pieces), range(len(pieces)))
        assert "".join(shown_texts) == text
        assert not any(HALF in one for one in shown_texts)


def test_an_answer_cut_inside_a_character_ends_with_its_mark_once() -> None:
    for cut in (1, 2, 3):
        events, output = run(["a", *(bytes([b]) for b in "😀".encode())], max_tokens=1 + cut)
        assert output.text == "a" + HALF
        assert [event.text for event in events] == ["a", *[""] * (cut - 1), HALF]


def test_an_end_id_inside_a_character_ends_with_its_mark_once() -> None:
    _, output = run(["a", b"\xf0\x9f", "b"], max_tokens=9, stop_token_ids=[3])
    assert (output.text, output.stop_reason) == ("a" + HALF, 3)


def test_a_mark_that_the_model_itself_writes_is_kept() -> None:
    shown_texts, _ = texts(["a", HALF, "b", HALF], [])
    assert shown_texts == ["a", "", HALF + "b", "", HALF]


def test_two_streams_in_one_engine_do_not_share_their_bytes() -> None:
    """Two answers, one of them always in the middle of a character while the other is not."""
    said = {1: [*"😀é".encode(), ord("a")], 2: [ord("b"), *"漢😀".encode()]}
    model = Scripted(lambda h: [*said[h[0]], 0][len(h) - 1])
    engine = small_engine(model)
    for first in (1, 2):
        engine.add_request([first], SamplingParams(max_tokens=len(said[first])), str(first))
    events = drain(engine)
    assert "".join(e.text for e in events["1"]) == outputs(events)["1"].text == "😀éa"
    assert "".join(e.text for e in events["2"]) == outputs(events)["2"].text == "b漢😀"


def test_special_ids_are_hidden_and_swallow_no_neighbour() -> None:
    shown_texts, _ = shown(Bytes, [ord("a"), 256, ord("b"), 0xC3, 257, 0xA9, 258])
    assert "".join(shown_texts) == "abé"


def test_a_piece_keeps_the_leading_space_that_a_decoder_strips_from_a_first_word() -> None:
    """Like sentencepiece: the space before the first word of a text is not printed."""
    words = ["▁Hello", "▁world", ",", "▁▁twice", "▁", "x"]

    def decode(ids: Sequence[int]) -> str:
        return "".join(words[i] for i in ids).replace("▁", " ").removeprefix(" ")

    shown_texts, _ = shown(decode, range(len(words)))
    assert shown_texts == ["Hello", " world", ",", "  twice", " ", "x", ""]
    assert shown(decode, range(len(words)), ["o w"])[0] == ["Hell", ""]


def test_each_id_is_decoded_in_a_short_window() -> None:
    """Decoding the whole answer for each new id would make a long answer quadratic."""
    lengths: list[int] = []

    def decode(ids: Sequence[int]) -> str:
        lengths.append(len(ids))
        return "a" * len(ids)

    detokeniser = Detokeniser(decode)
    assert "".join(detokeniser.push(0) for _ in range(500)) == "a" * 500
    assert max(lengths) <= 3


# ---- the real tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(real_checkpoint())


SAMPLES = [
    "The capital of France is Paris.", "  two leading spaces", "1234567890 3.14", "naïve café Ünïcödé ß",
    "漢字とかな交じり文", "🙂🙃👨‍👩‍👧‍👦🇩🇪👩🏽‍🚀", "e\u0301 a\u0308\u0323",
    "line\n\n\ttab\r\n", "\u200b\u200d\ufeff", "<|im_start|>x", "def f(x):\n    return x**2  # ½", "мир 🌍 שלום",
]  # fmt: skip


@pytest.mark.parametrize("text", SAMPLES)
def test_the_real_tokenizer_streams_what_it_decodes(text: str, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(text)
    shown_texts, _ = shown(tokenizer.decode, ids)
    assert "".join(shown_texts) == tokenizer.decode(ids)
    assert not any(HALF in one for one in shown_texts)


def test_the_real_tokenizer_streams_random_ids_as_it_decodes_them(tokenizer: Tokenizer) -> None:
    """Among them pieces of characters that never become whole, special ids, and ids above its table."""
    rng = random.Random(3)
    small = [i for i in range(700) if HALF in tokenizer.decode([i])]  # pieces of characters
    assert small
    for _ in range(150):
        ids = [rng.choice((rng.randrange(49_152), rng.choice(small), 2, 60_000)) for _ in range(rng.randint(1, 14))]
        shown_texts, _ = shown(tokenizer.decode, ids)
        assert "".join(shown_texts) == tokenizer.decode(ids), ids


@pytest.mark.parametrize("stop", ["Paris", "France is P", " ", "🙃", "字と", "\n\n", "return x**2  # ½"])
def test_the_real_tokenizer_stops_where_the_text_does(stop: str, tokenizer: Tokenizer) -> None:
    met = 0
    for text in SAMPLES:
        ids = tokenizer.encode(text)
        shown_texts, found = shown(tokenizer.decode, ids, [stop])
        decoded = tokenizer.decode(ids)
        assert "".join(shown_texts) == decoded.partition(stop)[0]
        assert (found is not None) == (stop in decoded)
        met += found is not None
    assert met
