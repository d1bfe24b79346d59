"""The engine map at full width: the loop drawn as a loop.

Three bands: plan (queue, scheduler, pack; rightwards), model (attention with the cache under it, then the
MLP; rightwards), answer (logits, sample, commit; leftwards), and the way back up to the queue. The user's
side, prompt in and tokens out, stands at the left.
"""

from __future__ import annotations

from minicb.course.draw.canvas import MARGIN
from minicb.course.draw.engine_board import GAP, INSET, Board
from minicb.course.draw.engine_parts import BESIDE
from minicb.course.draw.palette import SMALL_PT, TEXT_PT

LOW = 50  # pixels: room for two arrows at the side of a part without exercises


def draw_loop(board: Board, top: float) -> float:
    """Three bands: plan (rightwards), model (rightwards), answer (leftwards), and back up."""
    left, right = 150, board.canvas.width - MARGIN
    third = (right - left - 2 * GAP) // 3
    xs = [left + i * (third + GAP) for i in range(3)]
    tall = max(LOW, *(board.height(key, third) for key in ("queue", "scheduler", "pack")))
    for x, key in zip(xs, ("queue", "scheduler", "pack"), strict=True):
        board.box(key, x, top, third, tall)
    model = top + tall + 34
    end = _layer(board, left, model, right - left)
    answer = end + GAP + 4
    low = max(LOW, *(board.height(key, third) for key in ("commit", "sample", "logits")))
    for x, key in zip(xs, ("commit", "sample", "logits"), strict=True):
        board.box(key, x, answer, third, low)
    _wires(board, xs, third, (top, top + tall, model, end, answer))
    return _beside(board, answer + low + 16, left, right)


def _wires(board: Board, xs: list[int], third: int, ys: tuple[float, ...]) -> None:
    """The arrows between the bands, and what comes in and goes out at the left."""
    top, planned, model, end, answer = ys
    canvas, line, mid = board.canvas, board.theme.slate, xs[2] + third // 2 + 0.5
    up, down = top + 13.5, answer + 13.5
    for x in xs[:2]:
        canvas.arrow([(x + third + 3, up), (x + third + GAP - 3, up)], line)
        canvas.arrow([(x + third + GAP - 3, down), (x + third + 3, down)], line)
    turn, first = planned + 12.5, xs[0] + 66.5
    canvas.arrow([(mid, planned + 3), (mid, turn), (first, turn), (first, model - 3)], line)
    canvas.arrow([(mid, end + 3), (mid, answer - 3)], line)
    rail = xs[0] - 19.5
    back = planned - 12.5
    canvas.arrow([(xs[0] - 3, down), (rail, down), (rail, back), (xs[0] - 3, back)], line)
    canvas.text(MARGIN, (back + down) / 2 - 8, "once a step,", SMALL_PT, color=board.theme.muted)
    canvas.text(MARGIN, (back + down) / 2 + 8, "until all have", SMALL_PT, color=board.theme.muted)
    canvas.text(MARGIN, (back + down) / 2 + 24, "finished", SMALL_PT, color=board.theme.muted)
    _ends(board, xs[0], up, down + 24, line)


def _ends(board: Board, x: int, up: float, down: float, line: str) -> None:
    """Prompt and tokenizer in, tokens and stream out."""
    canvas = board.canvas
    for y, first, second in ((up, "prompt", "tokenizer"), (down, "stream", "tokens")):
        canvas.text(MARGIN, y, first, TEXT_PT, bold=True)
        canvas.text(MARGIN, y + 16, second, SMALL_PT, color=board.theme.muted)
    canvas.arrow([(MARGIN + 62, up), (x - 3, up)], line)
    canvas.arrow([(x - 3, down), (MARGIN + 62, down)], line)


def _layer(board: Board, x: float, y: float, w: float) -> float:
    """One layer of the model: attention from Q, K, V to mix with the cache below, then the MLP."""
    canvas, gap, line = board.canvas, 22, board.theme.slate
    room = w - 2 * INSET - 4 * gap
    cols = [round(room * share) for share in (0.195, 0.175, 0.245, 0.175, 0.21)]
    xs = [x + INSET + sum(cols[:i]) + i * gap for i in range(5)]
    canvas.text(x + INSET, y + 14, "Model", TEXT_PT, bold=True)
    note = "attention, then the MLP; the same in each layer"
    canvas.text(x + INSET + 53, y + 14, note, SMALL_PT, color=board.theme.muted)
    names, y0 = ("heads", "scores", "mask", "weights", "mix"), y + 28
    tops = [board.height(key, col) for key, col in zip(names, cols, strict=True)]
    below = {"cache": cols[0] + gap + cols[1], "mlp": x + w - INSET - xs[3]}
    low = max(board.height(key, wide) for key, wide in below.items())
    whole = max(max(tops[:2] + tops[3:]) + 28 + low, tops[2])
    low_y = y0 + whole - low
    for i, key in enumerate(names):
        board.box(key, xs[i], y0, cols[i], whole if key == "mask" else whole - low - 28)
        if i:
            canvas.arrow([(xs[i] - gap + 3, y0 + 13.5), (xs[i] - 3, y0 + 13.5)], line)
    board.box("cache", xs[0], low_y, below["cache"], low)
    board.box("mlp", xs[3], low_y, below["mlp"], low)
    middle = [left + col // 2 + 0.5 for left, col in zip(xs, cols, strict=True)]
    canvas.arrow([(middle[0], low_y - 25), (middle[0], low_y - 3)], line)
    canvas.arrow([(middle[1], low_y - 3), (middle[1], low_y - 25)], line)
    canvas.arrow([(middle[4], low_y - 25), (middle[4], low_y - 3)], line)
    for i, words in ((0, "write"), (1, "read")):
        canvas.text(middle[i] + 7, low_y - 14, words, SMALL_PT, color=board.theme.muted)
    bottom = y0 + whole + INSET
    canvas.outline(x + 0.5, y + 0.5, w - 1, bottom - y - 1, board.theme.slate)
    return bottom


def _beside(board: Board, y: float, left: float, right: float) -> float:
    """Baselines and measurements: not on the way from prompt to tokens."""
    keys = [key for key in BESIDE if board.placed[key]]
    if not keys:
        return y - 16
    half = (right - left - GAP * (len(keys) - 1)) // len(keys)
    tall = max(board.height(key, half) for key in keys)
    for i, key in enumerate(keys):
        board.box(key, left + i * (half + GAP), y, half, tall)
    board.canvas.text(MARGIN, y + 13, "beside the loop", SMALL_PT, color=board.theme.muted)
    return y + tall
