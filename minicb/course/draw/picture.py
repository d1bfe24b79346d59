"""What every drawing function returns: a figure, its data line and its alt text.

The data line is printed under the figure in a notebook and stands in small grey letters under its
title: a test can compare it where it cannot compare pixels. Saving is reproducible to the byte: a
fixed salt for the ids, no dates, no version numbers, a bundled font.
"""

from __future__ import annotations

import base64
import io
import re
import warnings
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from minicb.course.draw.palette import DPI

FONT = "DejaVu Sans"  # matplotlib's default, and shipped with it: the same letters on every machine


@dataclass(slots=True, repr=False)
class Picture:
    """A finished drawing. As the last line of a notebook cell it shows itself, as `show()` does."""

    figure: Any
    data: str
    alt: str

    def png(self) -> bytes:
        from PIL import Image  # comes with matplotlib

        # At most 256 colours, which flat cells and small letters never miss: a third of the size in every notebook.
        drawn = Image.open(io.BytesIO(self._render("png", {"Software": None}))).convert("RGB")
        buffer = io.BytesIO()
        drawn.quantize(256, dither=Image.Dither.NONE).save(buffer, "png", optimize=True, dpi=(DPI, DPI))
        return buffer.getvalue()

    def svg(self) -> str:
        drawn = self._render("svg", dict.fromkeys(("Date", "Creator", "Format", "Type"))).decode()
        drawn = re.sub(r"<!-- .*? -->\n?|[ \t]+$", "", drawn, flags=re.MULTILINE)
        # A thousandth of a point is finer than any screen; the rest of the digits is half of the file.
        drawn = re.sub(r"\d+\.\d{4,}", lambda number: f"{float(number[0]):.3f}".rstrip("0").rstrip("."), drawn)
        return drawn.replace("<svg ", f'<svg role="img" aria-label="{escape(self.alt, quote=True)}" ', 1)

    def save(self, folder: str | Path, name: str) -> list[Path]:
        """Write name.svg and name.png into the folder, which is made if need be."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{name}.svg", folder / f"{name}.png"]
        paths[0].write_text(self.svg(), encoding="utf-8")
        paths[1].write_bytes(self.png())
        return paths

    def show(self) -> None:
        """In a notebook: the PNG with its alt text, then the data line. In a terminal: the words."""
        try:
            from IPython import get_ipython
            from IPython.display import display
        except ImportError:
            get_ipython = None
        if get_ipython is None or get_ipython() is None:
            print(self.alt)
        else:
            bundle = {"image/png": base64.b64encode(self.png()).decode(), "text/plain": self.alt}
            display(bundle, raw=True, metadata={"image/png": {"alt": self.alt}})
        print(self.data)

    _ipython_display_ = show

    def __repr__(self) -> str:
        return f"<picture: {self.alt}>"

    def _render(self, kind: str, metadata: dict[str, None]) -> bytes:
        import matplotlib as mpl

        settings = {"svg.hashsalt": "minicb", "svg.fonttype": "path", "path.simplify": False, "savefig.bbox": None}
        buffer = io.BytesIO()
        with mpl.rc_context(settings), warnings.catch_warnings():
            # A token may be in a script that the font lacks; a box in the picture is enough said.
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            self.figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata)
        return buffer.getvalue()
