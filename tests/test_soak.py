"""A small portion of the soak, and the trust in the harness itself. The large one: `make soak SEEDS=2000`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from minicb import batch, padding, scheduler
from tests.harness.case import draw_case, from_json
from tests.harness.mutants import Mutant, read_mutants
from tests.harness.soak import ENDINGS, FAULTS, TOTALS, examine, main, report, run_seeds
from tests.harness.threads import one_thread

SEEDS = 80
ROOT = Path(__file__).resolve().parents[1]
WHEN = ("while it waits", "in its prompt", "while it writes")


@pytest.fixture(autouse=True, scope="module")
def one_core() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(scope="module")
def soaked() -> Counter[str]:
    total, failures = run_seeds(range(SEEDS), seconds=20)
    assert not failures, failures[0]
    return total


def test_random_workloads_give_every_request_what_it_gets_alone(soaked: Counter[str]) -> None:
    assert soaked["seeds"] == SEEDS
    assert sum(soaked[ending] for ending in ENDINGS) == soaked["requests"]


@pytest.mark.parametrize("event", [*ENDINGS, *FAULTS, "refused", *(f"aborts {when}" for when in WHEN)])
def test_the_portion_meets_every_ending_fault_and_abort(soaked: Counter[str], event: str) -> None:
    assert soaked[event] > 0


def test_the_report_names_every_count(soaked: Counter[str]) -> None:
    text = report(soaked, 1.0)
    for name in (*TOTALS, *ENDINGS, *FAULTS):
        assert name in text


def test_a_case_is_the_same_after_a_trip_through_its_line() -> None:
    for seed in range(50):
        case = draw_case(seed)
        assert from_json(case.to_json()) == case


def test_a_fault_is_found_and_shrunk_to_a_line_that_shows_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = batch.slots_of

    def shifted(pages: list[int], page_size: int, start: int, end: int) -> list[int]:
        return right(pages, page_size, start, end)[::-1]

    monkeypatch.setattr(batch, "slots_of", shifted)
    case = next(case for seed in range(SEEDS) if len((case := draw_case(seed)).requests) > 8)
    failure = examine(case, seconds=20)
    assert failure is not None
    small = from_json(failure.case)
    assert len(small.requests) == 1
    assert len(small.requests[0].prompt) == 2, "one token cannot be in the wrong order, two can"
    assert f"seed {case.seed} fails" in str(failure)
    assert main(["--case", failure.case]) == 1
    monkeypatch.undo()
    assert main(["--case", failure.case]) == 0
    assert "clean" in capsys.readouterr().out


def test_an_engine_that_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "may_join", lambda *_: False)
    failure = examine(draw_case(1), seconds=5)
    assert failure is not None
    assert "it does not end" in failure.error


def test_a_fault_of_the_padded_baseline_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padding, "padded_positions", lambda real, start: start[:, None] + 0 * real.long())
    case = next(case for seed in range(SEEDS) if (case := draw_case(seed)).engine != "continuous")
    assert examine(case, seconds=0) is not None


@pytest.mark.parametrize("mutant", read_mutants(), ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_every_mutant_still_finds_its_lines_and_compiles(mutant: Mutant) -> None:
    source = (ROOT / "minicb" / f"{mutant.module}.py").read_text(encoding="utf-8")
    compile(mutant.plant(source), mutant.module, "exec")


def test_the_list_of_mutants_is_long_and_has_no_empty_entry() -> None:
    mutants = read_mutants()
    assert len(mutants) >= 60
    assert all(mutant.old and mutant.old != mutant.new for mutant in mutants)
    assert len({mutant.name for mutant in mutants}) == len(mutants)


def test_a_mutant_whose_line_is_gone_is_an_error() -> None:
    with pytest.raises(ValueError, match="stands 0 times"):
        Mutant("old news", "batch", ("no such line",), ()).plant("a = 1\n")
