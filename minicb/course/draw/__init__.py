"""The one drawing vocabulary of the course: every picture of tokens, masks, caches and steps comes from here.

Each function takes plain data or the tensors that the engine used and returns a `Picture`: a figure, its
data line and its alt text, with `show()` for notebooks and `save(folder, name)` for files. Hue says whose,
shade says what: `palette.py`. All pictures fit 8 inches or 4, whichever the content needs; `width=` decides.

Nothing here computes a schedule or an attention: it draws what it is given. matplotlib is imported when
the first picture is drawn, not before.
"""

from minicb.course.draw.areas import draw_areas, draw_costs
from minicb.course.draw.attention import draw_attention
from minicb.course.draw.batch import draw_batch, draw_cache
from minicb.course.draw.chunks import draw_chunks
from minicb.course.draw.engine_map import engine_map
from minicb.course.draw.engine_parts import engine_map_text
from minicb.course.draw.mask import draw_mask, draw_matrix
from minicb.course.draw.palette import DARK, FULL, HALF, HUES, LIGHT, Theme
from minicb.course.draw.passes import draw_passes
from minicb.course.draw.picture import Picture
from minicb.course.draw.plots import draw_bars, draw_lines
from minicb.course.draw.timeline import draw_timeline
from minicb.course.draw.tokens import draw_padding, draw_tokens

__all__ = [
    "DARK",
    "FULL",
    "HALF",
    "HUES",
    "LIGHT",
    "Picture",
    "Theme",
    "draw_areas",
    "draw_attention",
    "draw_bars",
    "draw_batch",
    "draw_cache",
    "draw_chunks",
    "draw_costs",
    "draw_lines",
    "draw_mask",
    "draw_matrix",
    "draw_padding",
    "draw_passes",
    "draw_timeline",
    "draw_tokens",
    "engine_map",
    "engine_map_text",
]
