"""In bfloat16 an answer may leave float32's only where rounding could choose.

The whole report: `python -m tests.harness.precision`.
"""

from __future__ import annotations

import pytest
from oracle import real_checkpoint

from minicb.weights import load
from tests.harness.precision import BOUND, PROMPTS, Report, compare
from tests.harness.threads import one_thread

TOKENS = 16


@pytest.fixture(scope="module")
def report() -> Report:
    folder = real_checkpoint()
    wide, tokenizer = load(folder, "cpu", "float32")
    narrow, _ = load(folder, "cpu", "bfloat16")
    with one_thread():
        return compare(wide, narrow, tokenizer, TOKENS, PROMPTS[:8])


def test_where_bfloat16_prefers_another_token_float32_was_nearly_undecided(report: Report) -> None:
    assert report.tokens == 8 * TOKENS
    assert len(report.flips) < report.tokens / 10
    assert max(report.flips, default=0.0) < BOUND


def test_where_two_answers_part_either_token_was_nearly_as_good(report: Report) -> None:
    assert all(abs(fork.margin) < BOUND for fork in report.forks)


def test_the_comparison_is_not_of_one_model_with_itself(report: Report) -> None:
    assert report.largest_error > 0.01
