"""Draws every figure of the repository from the running code: `python figures/make.py [name ...]`.

To add one: write a function that returns a `Picture`, put `@figure` above it, run this file. It writes
name.svg and name.png beside itself and the figure's data line and alt text into data_lines.json, which
the tests compare with what the code says now. Whoever uses a figure copies its alt text from there.

What the pictures show is computed in `figure_runs.py`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from figure_runs import FOUR, SIZES, TOKENS, continuous, head, many_runs, padded, second_step

import minicb.course.draw as d
import minicb.course.table  # noqa: F401 - with it every module that has a seam
from minicb.bench.charts import draw_growth, draw_race
from minicb.bench.page import stored_reports
from minicb.bench.receipts import r4
from minicb.masks import block_mask, causal_mask, chunk_mask, visible
from minicb.padding import PAD_ID, left_pad
from minicb.seams import SEAMS, references_only

HERE = Path(__file__).parent
DATA_LINES = HERE / "data_lines.json"
FIGURES: dict[str, Callable[[], d.Picture]] = {}


def figure(make: Callable[[], d.Picture]) -> Callable[[], d.Picture]:
    """Register a figure under its function's name."""
    FIGURES[make.__name__.replace("_", "-")] = make
    return make


@figure
def tokens() -> d.Picture:
    return d.draw_tokens(TOKENS, positions=True, title="The running example")


@figure
def mask_causal() -> d.Picture:
    note = "this row: what \u201cam\u201d may look at"
    return d.draw_mask(causal_mask(7), TOKENS, TOKENS, frame_row=2, note=note, title="Causal mask")


@figure
def mask_chunk() -> d.Picture:
    roles = ["cached"] * 4 + ["new"] * 3
    return d.draw_mask(chunk_mask(3, 7), TOKENS[4:], TOKENS, col_roles=roles, title="Second chunk of a prefill")


@figure
def mask_packed() -> d.Picture:
    return d.draw_mask(block_mask([3, 2]), row_owners="AAABB", col_owners="AAABB", title="Two requests in one row")


@figure
def mask_ragged() -> d.Picture:
    """A reads 3 tokens, B writes one after 4 in the cache, C reads 4."""
    q_pos, q_seq = torch.tensor([0, 1, 2, 4, 0, 1, 2, 3]), torch.tensor([0, 0, 0, 1, 2, 2, 2, 2])
    k_pos, k_seq = torch.tensor([0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 3]), torch.tensor([0] * 3 + [1] * 5 + [2] * 4)
    return d.draw_mask(
        visible(q_pos, q_seq, k_pos, k_seq),
        row_owners="AAABCCCC",
        col_owners="AAABBBBBCCCC",
        col_roles=["new"] * 3 + ["cached"] * 4 + ["new"] * 5,
        title="One ragged row, three requests",
    )


@figure
def scores_matrix() -> d.Picture:
    return d.draw_matrix(head()["scores"], TOKENS, TOKENS, title="Scores")


@figure
def weights_matrix() -> d.Picture:
    data = "each row adds up to 1 over the keys that it may see"
    return d.draw_matrix(
        head()["weights"], TOKENS, TOKENS, mask=head()["mask"], totals=True, title="Weights", data=data
    )


@figure
def attention() -> d.Picture:
    return d.draw_attention(**head(), rows=TOKENS, cols=TOKENS, frame_row=3)


@figure
def batch() -> d.Picture:
    _, plan, row = second_step()
    roles = ["prompt" if c.start < c.request.num_prompt_tokens else "generated" for c in plan for _ in range(c.num_new)]
    return d.draw_batch(
        row, [c.request.request_id for c in plan], roles=roles, title="The second step of the three requests"
    )


@figure
def cache_slots() -> d.Picture:
    engine, plan, _ = second_step()
    pages: list[tuple[object, int, int]] = [(None, 0, 0)] * (engine.pool.num_pages + 1)
    for chunk in plan:
        (page,) = engine.pool.pages(chunk.request.request_id)
        pages[page] = (chunk.request.request_id, chunk.start, chunk.num_new)
    return d.draw_cache(pages, engine.pool.page_size, dummy=0, title="The cache in the same step")


@figure
def padding_left() -> d.Picture:
    _, real = left_pad([[1] * prompt for prompt, _ in SIZES.values()], PAD_ID)
    return d.draw_padding(real, list(SIZES), title="Left padding")


@figure
def padding_join() -> d.Picture:
    _, real = left_pad([[1] * 100] + [[1]] * 7, PAD_ID)
    return d.draw_padding(real, title="A prompt of 100 joins seven requests that decode")


@figure
def timeline_three() -> d.Picture:
    return d.draw_timeline(continuous(SIZES, seqs=3, budget=8), title="Three requests, 8 tokens a step")


@figure
def timeline_compared() -> d.Picture:
    runs = {"Static batching": padded(FOUR, 3), "Continuous batching": continuous(FOUR, 3, 16)}
    return d.draw_timeline(runs, title="Four requests, three at a time")


@figure
def timeline_many() -> d.Picture:
    return d.draw_timeline(many_runs(), title="The same 24 requests")


@figure
def slots_compared() -> d.Picture:
    slots = {name: sum(r.token_slots for r in records) for name, records in many_runs().items()}
    waste = {name: slots[name] - sum(r.useful_slots for r in records) for name, records in many_runs().items()}
    return d.draw_bars(slots, waste, unit="token slots", title="Token slots for the same 24 requests")


@figure
def chunk_cells() -> d.Picture:
    sizes = [32, 64, 128, 256, 512]
    steps = {n: [chunk_mask(n, end).numel() / 1000 for end in range(n, 513, n)] for n in sizes}
    series = {"all steps": (sizes, [sum(cells) for cells in steps.values()])}
    series["largest step"] = (sizes, [max(cells) for cells in steps.values()])
    look = {"x_label": "chunk, tokens", "y_label": "score cells, thousands", "log_x": True}
    return d.draw_lines(series, **look, title="A prompt of 512 tokens in chunks", width=d.HALF)


def stored(receipt: str) -> dict[str, Any]:
    """What `minicb receipts` measured: on a trace that is not in the repository, and for minutes."""
    results: dict[str, Any] = json.loads((HERE / "receipts.json").read_text(encoding="utf-8"))[receipt]
    return results


@figure
def tail_latency() -> d.Picture:
    return r4.pictures(stored("R4"))["tail"]


@figure
def aging_frontier() -> d.Picture:
    return r4.pictures(stored("R4"))["frontier"]


@figure
def bench() -> d.Picture:
    return draw_race(stored_reports(HERE)[0])


@figure
def bench_growth() -> d.Picture:
    return draw_growth(stored_reports(HERE)[0])


@figure
def engine_map() -> d.Picture:
    return d.engine_map([(s.id, s.name, s.owner) for s in SEAMS.values()])


def draw(name: str) -> d.Picture:
    """One figure, always by the reference functions, whatever this reader has written."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for a model this small more threads only wait for one another
    try:
        with references_only():
            return FIGURES[name]()
    finally:
        torch.set_num_threads(threads)


def main(names: list[str]) -> None:
    """Draw the named figures, or all of them."""
    unknown = set(names) - set(FIGURES)
    if unknown:
        sys.exit(f"no figure named {', '.join(sorted(unknown))}; there are: {', '.join(FIGURES)}")
    lines = json.loads(DATA_LINES.read_text(encoding="utf-8")) if names and DATA_LINES.exists() else {}
    for name in names or FIGURES:
        picture = draw(name)
        picture.save(HERE, name)
        lines[name] = {"data": picture.data, "alt": picture.alt}
        print(f"{name}: {picture.data}")
    ordered = {name: lines[name] for name in FIGURES if name in lines}
    DATA_LINES.write_text(json.dumps(ordered, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
