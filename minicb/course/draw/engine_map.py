"""The engine map: the engine as it really is, the learner's parts filled in.

Data flows from the prompt through queue, scheduler and pack into the layers of the model, and from the
logits back over sampling to the queue: a loop, once a step. Each exercise is a cell inside its part:
filled when it is yours, outlined when the reference does the work, pale when its chapter comes later.
At full width the loop is drawn as a loop; at half width the same parts stand in a column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minicb.course.draw.canvas import MARGIN, Canvas
from minicb.course.draw.engine_board import INSET, Board
from minicb.course.draw.engine_loop import draw_loop
from minicb.course.draw.engine_parts import BESIDE, LAYER, PARTS, Exercise, count_yours, place
from minicb.course.draw.palette import FULL, LIGHT, Theme
from minicb.course.draw.picture import Picture


def engine_map(
    parts: Iterable[Sequence[str]],
    *,
    title: str = "The engine, and whose it is",
    data: str | None = None,
    width: float = FULL,
    theme: Theme = LIGHT,
) -> Picture:
    """The engine with its exercises.

    parts: (exercise id, name, owner), owner "yours", "catch-up", "reference" or "later"
    """
    exercises = [Exercise(*one) for one in parts]
    data = data or count_yours(exercises)
    canvas = Canvas(width, theme)
    top = canvas.header(title, data)
    board = Board(canvas, place(exercises))
    bottom = draw_loop(board, top) if width > 6 else draw_column(board, top)
    bottom = board.key(bottom + 12)
    yours = ", ".join(f"{one.id} {one.name}" for one in exercises if one.owner == "yours") or "none yet"
    alt = f"{title}: prompt, queue, scheduler, pack, model, logits, sample, commit in a loop; {data}: {yours}."
    return canvas.picture(bottom, data, alt)


def draw_column(board: Board, top: float) -> float:
    """The same parts one under the other; the rail at the left is the way back."""
    canvas, x, line = board.canvas, 38, board.theme.slate
    w = canvas.width - MARGIN - x
    board.end(x, top + 4, "prompt", "tokenizer")
    y, first, last, begin = top + 30, 0.0, 0.0, 0.0
    for key in [part.key for part in PARTS if part.key not in BESIDE]:
        inner = key in LAYER
        if key == LAYER[0]:
            board.end(x + INSET, y + 13, "Model", "the same in each layer")
            begin, y = y, y + 26
        if not inner or key == LAYER[0]:
            canvas.arrow([(x + 19.5, (begin if inner else y) - 15), (x + 19.5, (begin if inner else y) - 3)], line)
        tall = board.strip(key, x + INSET if inner else x, y, w - 2 * INSET if inner else w)
        if not inner:
            first, last = first or y + 13.5, y + 13.5
        y += tall + (4 if inner else 18)
        if key == LAYER[-1]:
            canvas.outline(x + 0.5, begin + 0.5, w - 1, y + 2 - begin, line)
            y += 21
    canvas.arrow([(x - 3, last), (20.5, last), (20.5, first), (x - 3, first)], line)
    canvas.arrow([(x + 19.5, y - 15), (x + 19.5, y - 3)], line)
    board.end(x, y + 8, "stream", "tokens; once a step, until all have finished")
    y += 30
    for key in (key for key in BESIDE if board.placed[key]):
        y += board.strip(key, x, y, w) + 6
    return y - 6
