"""The drawing vocabulary: hue says whose, shade says what, and everybody can read it."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("matplotlib")

from pictures import words_outside

import minicb.course.draw as d
from minicb.course.draw.palette import DARK, FADE, HUES, LIGHT, blend, contrast, grey, hue, ink_on, letter, shade
from minicb.course.draw.timeline import lane, read_steps
from minicb.masks import block_mask, causal_mask, chunk_mask

B_STEPS = [
    {"entries": [{"request_id": "B", "num_new": 2, "num_computed": 0, "num_prompt": 2, "padding": 1}], "waiting": []},
    {"entries": [{"request_id": "B", "num_new": 1, "num_computed": 2, "num_prompt": 2, "padding": 0}], "waiting": []},
]
B_BATCH = SimpleNamespace(q_start=[0, 2], positions=[4, 5], slots=[20, 21], sample_at=[1], tokens=[7, 8])
ONLY_B = {  # request B, alone, in every picture that has owners
    "tokens": lambda: d.draw_tokens({"B": ["a", "b", "c"]}, {"B": ["cached", "prompt", "generated"]}),
    "mask": lambda: d.draw_mask(chunk_mask(1, 2), row_owners="B", col_owners="BB", col_roles=["cached", "new"]),
    "chunks": lambda: d.draw_chunks([(0, 2), (2, 3)], owner="B"),
    "cache": lambda: d.draw_cache([("B", 2, 1)], 4),
    "passes": lambda: d.draw_passes([(0, 2), (0, 3), (3, 1)], owner="B"),
    "batch": lambda: d.draw_batch(B_BATCH, ["B"], roles=["prompt", "generated"]),
    "padding": lambda: d.draw_padding([[False, True, True]], ["B"]),
    "timeline": lambda: d.draw_timeline(B_STEPS),
}  # fmt: skip


def fills(picture: d.Picture) -> set[str]:
    """The colours of all filled shapes of a figure."""
    from matplotlib.colors import to_hex

    patches = [patch for axes in picture.figure.axes for patch in axes.patches if patch.get_fill()]
    return {to_hex(patch.get_facecolor()).upper() for patch in patches}


# -- hue says whose ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ONLY_B)
def test_a_request_has_the_same_hue_in_every_picture(kind: str) -> None:
    family = {shade(HUES[1], role) for role in FADE}
    neutral = {shade(LIGHT.slate, role) for role in FADE} | {LIGHT.ink, LIGHT.rule, LIGHT.paper}
    colours = fills(ONLY_B[kind]())
    assert colours & family
    assert colours <= family | neutral


def test_a_prompt_in_chunks_counts_what_each_rectangle_computes() -> None:
    assert d.draw_chunks([(0, 4), (4, 8), (8, 10)]).data == (
        "10 tokens in 3 chunks: 68 of 100 cells computed, 55 visible"
    )
    assert d.draw_chunks([(0, 10)]).data == "10 tokens in 1 chunk: 100 of 100 cells computed, 55 visible"


def test_passes_count_what_is_computed_again() -> None:
    naive, cached = [(0, n) for n in range(6, 16)], [(0, 6), *((n, 1) for n in range(6, 15))]
    assert d.draw_passes(naive).data == "10 passes, 105 tokens computed, 90 of them again"
    assert d.draw_passes(cached).data == "10 passes, 15 tokens computed, 0 of them again"


def test_letters_and_numbers_name_the_same_hues_and_an_order_can_decide() -> None:
    assert [hue(name) for name in "ABCDEF"] == list(HUES)
    assert [hue(f"req-{i}") for i in range(8)] == [*HUES, *HUES[:2]]
    assert hue("x9", ["q", "x9"]) == HUES[1]
    assert hue(None) == HUES[0]


def test_a_mask_that_leaks_shows_the_strange_hue_and_counts_it() -> None:
    mask = block_mask([2, 1])
    mask[2, 0] = True
    picture = d.draw_mask(mask, row_owners="AAB", col_owners="AAB")
    assert picture.data == "3 queries, 3 keys, 5 visible cells, 1 of them in another request"


# -- shade says what, for everybody -----------------------------------------------------------------


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("color", HUES)
def test_roles_differ_in_greyscale(color: str, theme: d.Theme) -> None:
    """Generated and cached are two names of one pale shade: no picture tells them apart by shade alone."""
    full, paper = shade(color, "prompt", theme), theme.paper
    for role in ("generated", "cached"):
        pale = shade(color, role, theme)
        assert abs(grey(full) - grey(pale)) > 0.1, role
        assert abs(grey(pale) - grey(paper)) > 0.07, role


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_hatch_and_hairline_are_seen_on_paper_and_differ(theme: d.Theme) -> None:
    steps = sorted(abs(grey(color) - grey(theme.paper)) for color in (theme.hairline, theme.hatch))
    assert steps[0] > 0.05
    assert steps[1] - steps[0] > 0.1


def test_words_can_be_read_on_every_cell_and_on_paper() -> None:
    for color in HUES:
        for role in FADE:
            assert contrast(ink_on(shade(color, role)), shade(color, role)) >= 3, (color, role)
        for theme in (LIGHT, DARK):
            assert contrast(letter(color, theme), theme.paper) >= 4.5


def test_blend_meets_its_ends() -> None:
    assert blend("#0072B2", "#FFFFFF", 0) == "#0072B2"
    assert blend("#0072B2", "#FFFFFF", 1) == "#FFFFFF"


# -- sizes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [d.HALF, d.FULL])
@pytest.mark.parametrize("kind", ONLY_B)
def test_both_widths_are_kept(kind: str, width: float) -> None:
    wide = {
        "tokens": lambda: d.draw_tokens(["word"] * 30, width=width),
        "mask": lambda: d.draw_mask(causal_mask(40), width=width),
        "chunks": lambda: d.draw_chunks([(0, 20), (20, 40)], width=width),
        "cache": lambda: d.draw_cache([("A", 30, 2)], 64, width=width),
        "passes": lambda: d.draw_passes([(0, n) for n in range(1, 41)], width=width),
        "batch": lambda: d.draw_batch(B_BATCH, ["B"], width=width),
        "padding": lambda: d.draw_padding([[False] * 60 + [True]] * 4, width=width),
        "timeline": lambda: d.draw_timeline(B_STEPS * 100, width=width),
    }[kind]()
    assert wide.figure.get_size_inches()[0] == pytest.approx(width)
    assert words_outside(wide) == []


# -- the timeline's records -------------------------------------------------------------------------


def test_waiting_follows_from_arrivals_as_well_as_from_a_list() -> None:
    def entry(name: str) -> SimpleNamespace:
        return SimpleNamespace(request_id=name, num_new=1, num_computed=0, num_prompt=1, padding=0)

    records = [
        SimpleNamespace(entries=[entry("A")], arrived=("A", "B"), finished=(("A", "length"),)),
        SimpleNamespace(entries=[entry("B")], arrived=(), finished=(("B", "length"),)),
    ]
    assert [step.waiting for step in read_steps(records)] == [["B"], []]


def test_a_row_is_prompt_then_generated_then_padding() -> None:
    cells = lane(read_steps([*B_STEPS, {"entries": [{"request_id": "B", "num_new": 0, "padding": 1}]}]), "B")
    assert [cell and cell.kind for cell in cells] == ["prompt", "generated", "padding"]
    assert cells[0] is not None
    assert cells[0].useful == pytest.approx(2 / 3)


@pytest.mark.parametrize("width", [d.HALF, d.FULL])
def test_a_roof_is_named_along_its_two_pieces_and_carries_a_readable_scale(width: float) -> None:
    limits = {"memory": ((1, 16), (25, 400)), "arithmetic": ((16, 64), (400, 400))}
    look = {"x_label": "requests", "y_label": "tokens/s", "log_x": True, "log_y": True, "width": width}
    picture = d.draw_lines({"measured": ((1, 8, 64), (20, 90, 300))}, limits=limits, **look)
    axes = picture.figure.axes[1]
    turns = {text.get_text(): text.get_rotation() for text in axes.texts}
    assert turns["memory"] > 20 > turns["arithmetic"] == 0
    assert {20.0, 50.0, 100.0, 200.0} <= set(axes.get_yticks())


# -- the engine map ---------------------------------------------------------------------------------


PARTS = [("1.1", "scores", "yours"), ("2.2", "chunk_mask", "reference"), ("7.2", "plan_step", "reference"),
         ("99.1", "from_the_future", "later")]  # fmt: skip


@pytest.mark.parametrize("width", [d.HALF, d.FULL])
def test_the_engine_map_fills_what_is_yours(width: float) -> None:
    nobody = [(id, name, "reference") for id, name, _ in PARTS]
    some, none = d.engine_map(PARTS, width=width), d.engine_map(nobody, width=width)
    assert some.data == "1 of 3 parts yours, 1 in later chapters"
    assert "1.1 scores" in some.alt
    assert len(boxes(some)) == len(boxes(none)) + 1


def boxes(picture: d.Picture) -> list[object]:
    """The rectangles of the learner's hue: five points each."""
    from matplotlib.colors import to_hex

    found = [p for p in picture.figure.axes[0].patches if p.get_fill() and to_hex(p.get_facecolor()).upper() == HUES[0]]
    return [None] * (sum(len(p.get_path().vertices) for p in found) // 5)


def test_the_engine_map_as_text_is_plain_and_complete() -> None:
    text = d.engine_map_text(PARTS)
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 79
    assert "[ok] 1.1 scores" in text
    assert all(name in text for _, name, _ in PARTS)


# -- laziness ---------------------------------------------------------------------------------------


def test_matplotlib_is_imported_with_the_first_picture_and_not_before() -> None:
    code = "import sys, minicb, minicb.course.draw; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_showing_without_a_notebook_prints_the_words(capsys: pytest.CaptureFixture[str]) -> None:
    picture = d.draw_tokens(["a", "b"])
    picture.show()
    assert capsys.readouterr().out == f"{picture.alt}\n{picture.data}\n"
    assert repr(picture) == f"<picture: {picture.alt}>"
