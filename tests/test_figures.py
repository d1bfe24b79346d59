"""The figures of the repository: their numbers, their words, their files.

Pixels are not compared: another version of matplotlib may place a letter a hair to the left. What is
compared is each figure's data line and alt text, and that one code makes the same bytes twice.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("matplotlib")

from pictures import words_outside

import minicb.course.draw as d
from minicb.masks import block_mask, causal_mask, chunk_mask

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "figures"


def load_make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("figures_make", FOLDER / "make.py")
    assert spec
    assert spec.loader
    sys.path.insert(0, str(FOLDER))  # as for a script, which finds its neighbours
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
    return module


make = load_make()
STORED = json.loads(make.DATA_LINES.read_text(encoding="utf-8"))


@cache
def drawn(name: str) -> d.Picture:
    picture: d.Picture = make.draw(name)
    return picture


@pytest.mark.parametrize("name", make.FIGURES)
def test_a_figure_says_what_its_stored_data_line_says(name: str) -> None:
    picture = drawn(name)
    assert {"data": picture.data, "alt": picture.alt} == STORED[name], "run: python figures/make.py " + name


def test_every_figure_is_stored_as_svg_and_png() -> None:
    files = {path.name for path in FOLDER.iterdir() if path.suffix in (".svg", ".png")}
    assert {f"{name}.{kind}" for name in make.FIGURES for kind in ("svg", "png")} <= files
    assert set(STORED) == set(make.FIGURES)


def test_the_stored_figures_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in FOLDER.iterdir() if path.suffix in (".svg", ".png")}
    assert max(sizes.values()) < 200_000, max(sizes, key=sizes.__getitem__)
    assert sum(sizes.values()) < 2_000_000


@pytest.mark.parametrize("name", STORED)
def test_alt_text_is_a_sentence_with_a_number_and_stands_in_the_svg(name: str) -> None:
    alt = STORED[name]["alt"]
    assert len(alt) > 40
    assert alt.endswith(".")
    assert any(letter.isdigit() for letter in alt)
    assert "aria-label=" in (FOLDER / f"{name}.svg").read_text(encoding="utf-8")[:2000]


@pytest.mark.parametrize("name", ["mask-causal", "timeline-compared", "engine-map"])
def test_drawing_twice_gives_the_same_bytes(name: str) -> None:
    first, second = drawn(name), make.draw(name)
    assert first.svg() == second.svg()
    assert first.png() == second.png()
    assert "<dc:date>" not in first.svg()


def test_the_numbers_of_the_course_come_out_of_the_pictures() -> None:
    assert "28 visible" in d.draw_mask(causal_mask(7)).data
    assert "18 visible" in d.draw_mask(chunk_mask(3, 7)).data
    assert "9 visible" in d.draw_mask(block_mask([3, 2])).data
    assert "11 padding (41 %)" in STORED["padding-left"]["data"]
    assert "693 padding" in STORED["padding-join"]["data"]
    assert "10 steps" in STORED["timeline-compared"]["data"]
    assert "6 steps" in STORED["timeline-compared"]["data"]


@pytest.mark.parametrize("name", make.FIGURES)
def test_no_word_runs_off_the_sheet(name: str) -> None:
    picture = drawn(name)
    assert words_outside(picture) == []
