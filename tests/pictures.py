"""What the tests of drawings ask of a picture."""

from __future__ import annotations

import minicb.course.draw as d


def words_outside(picture: d.Picture) -> list[str]:
    """The words that run off the sheet."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(picture.figure).get_renderer()
    picture.figure.draw(renderer)
    sheet = picture.figure.bbox
    boxes = {text.get_text(): text.get_window_extent(renderer) for text in picture.figure.axes[0].texts}
    return [
        words
        for words, box in boxes.items()
        if box.x0 < sheet.x0 or box.x1 > sheet.x1 or box.y0 < sheet.y0 or box.y1 > sheet.y1
    ]
