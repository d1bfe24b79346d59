"""The graduation: strictly the learner's parts, on the real model, with transformers as the judge."""

from __future__ import annotations

import importlib

import pytest
from learner import hand_in, out, right

import minicb.course as course
from minicb import seams
from minicb.course.answer import packaged_model
from minicb.course.graduate import NEW_TOKENS, PROMPTS, packaged_peer, parts_on_the_way, serve
from minicb.seams import SEAMS

graduation = importlib.import_module("minicb.course.graduate")  # in the package the name is the verb's
OFF_THE_WAY = {"3.1", "5.1", "5.2", "5.3", "5.4", "7.5"}  # what came before the engine, and a policy to choose


def everything_is_mine() -> None:
    for id, point in SEAMS.items():
        seams.install(id, point.reference)


@pytest.fixture
def no_real_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is found on the tiny model; only the tokenizer is the real one's."""

    def refuse() -> None:
        raise AssertionError("the real model was served")

    monkeypatch.setattr(graduation, "packaged_peer", refuse)


def test_every_part_up_to_chapter_8_is_on_the_way_but_for_the_baselines_and_a_policy() -> None:
    early = {id for id, point in SEAMS.items() if point.chapter <= 8}
    assert {line.id for line in parts_on_the_way()} == early - OFF_THE_WAY


@pytest.mark.usefixtures("no_real_model")
def test_what_is_missing_is_named_with_its_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    everything_is_mine()
    seams.uninstall("2.2")
    seams.install("6.1", SEAMS["6.1"].reference, "catch-up")
    result = course.graduate()
    assert result.missing == ("2.2", "6.1")
    assert not result.passed
    said = out(capsys)
    assert said.startswith("Not yet. Of 28 parts on the way 26 are yours; these are not:\n")
    assert "    notebooks/02  2.2 chunk_mask\n    notebooks/06  6.1 concatenate (copied)\n" in said


def test_a_part_that_is_off_the_way_may_be_missing() -> None:
    everything_is_mine()
    for id in OFF_THE_WAY:
        seams.uninstall(id)
    assert {line.owner for line in parts_on_the_way()} == {"yours"}


def test_whoever_has_all_parts_graduates(capsys: pytest.CaptureFixture[str]) -> None:
    everything_is_mine()
    result = course.graduate()
    assert result.passed
    assert result.calls > 10_000
    said = out(capsys)
    assert "4 of 4 are, token for token, what transformers gives each prompt alone." in said
    assert f"calls of your parts: {result.calls:,}, of others: 0." in said
    assert "This engine is yours." in said


@pytest.mark.parametrize("id", ["7.2", "7.3", "8.2"])
def test_strict_means_strict(id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Had the search for missing parts overlooked one, the run itself would stop there."""
    everything_is_mine()
    lines = parts_on_the_way()
    seams.uninstall(id)
    monkeypatch.setattr(graduation, "parts_on_the_way", lambda: lines)
    with pytest.raises(RuntimeError, match=f"{SEAMS[id].name} is not yours yet"):
        course.graduate()


def test_an_engine_with_other_tokens_does_not_graduate(capsys: pytest.CaptureFixture[str]) -> None:
    everything_is_mine()
    seams.install("0.1", lambda logits: logits.topk(2).indices[:, 1])  # always the second best
    result = course.graduate()
    assert not result.passed
    assert "This engine is yours" not in out(capsys)


def test_a_rehearsal_lets_the_reference_play_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    hand_in("2.2", right("2.2"))
    out(capsys)
    result = course.graduate(rehearse=True)
    assert all(result.same)
    assert not result.passed, "a rehearsal is no graduation"
    assert "A rehearsal: of 28 parts on the way 1 are yours." in out(capsys)


def test_transformers_own_continuous_batching_gives_the_same_tokens() -> None:
    model, tokenizer = packaged_model()
    ids = [tokenizer.encode(prompt) for prompt in PROMPTS]
    ours, _, _ = serve(model, ids)
    assert packaged_peer().continuous(ids, NEW_TOKENS) == ours
