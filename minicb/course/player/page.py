"""The page: one HTML file that needs nothing else, put together from its parts beside this module.

`player.html` is the frame, `player.css` the look, `player.js` what happens, `panels.js` what is drawn. They can be
read as they are. Here they become one file, with the steps inside it as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from minicb.course.draw.palette import DARK, HUES, LIGHT, ink_on, letter
from minicb.course.draw.picture import Picture
from minicb.course.player.payload import Runs, Texts, payload
from minicb.metrics import StepRecord, write_whole

HERE = Path(__file__).parent
PAPERS = {"light": LIGHT, "dark": DARK}


@dataclass(slots=True, repr=False)
class Player:
    """Runs to step through. As the last line of a notebook cell it shows itself.

    data: what the page embeds (see `payload.py`)   line: the data line, in words
    """

    data: Mapping[str, Any]
    line: str
    runs: Runs

    def html(self) -> str:
        """The whole page."""
        parts = {name: (HERE / name).read_text(encoding="utf-8") for name in ("player.css", "panels.js", "player.js")}
        parts["player.css"] = colours() + parts["player.css"]
        parts["trace.json"] = json.dumps(self.data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
        parts["title"] = escape(str(self.data["title"]))
        page = (HERE / "player.html").read_text(encoding="utf-8")
        return re.sub(r"\{\{ ([\w.]+) \}\}", lambda name: parts[name[1]], page)

    def save(self, path: str | Path) -> Path:
        """Write the page. The folder is made if need be."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, self.html())
        return target

    def sheet(self) -> Picture:
        """The same as one still picture, for where no script runs."""
        from minicb.course.player.sheet import contact_sheet

        return contact_sheet(self.runs, self.data["requests"], title=str(self.data["title"]), data=self.line)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, which cannot reach the notebook around it."""
        rows, modes = len(self.data["requests"]), len(self.data["modes"])
        lane = next(high for most, high in ((4, 26), (8, 21), (16, 16), (200, 13)) if rows <= most)
        height = 455 + 37 * modes + rows * lane + max(570, 24 * rows + rows * lane + 140)  # at a notebook's usual width
        srcdoc = self.html().replace("&", "&amp;").replace("'", "&#39;")  # fewer escapes than with double quotes
        return (
            f'<iframe title="{escape(str(self.data["title"]), quote=True)}" sandbox="allow-scripts" '
            f"style=\"width: 100%; height: {min(height, 1700)}px; border: 0\" srcdoc='{srcdoc}'></iframe>"
        )

    def __repr__(self) -> str:
        return f"<player: {self.line}>"


def make_player(
    runs: Runs | Sequence[StepRecord], *, title: str = "Step by step", texts: Texts | None = None
) -> Player:
    """A player of one run, or of several that served the same requests.

    runs: name -> its records, one a step; or just the records   texts: request -> its words, or the list of its tokens
    Raises ValueError if a run has no steps, or if the runs did not serve the same requests.
    """
    runs = {name: list(records) for name, records in (runs if isinstance(runs, Mapping) else {"run": runs}).items()}
    data = payload(runs, title, texts)
    totals = {mode["name"]: mode["total"] for mode in data["modes"]}
    line = "; ".join(
        f"{n}: {t['steps']} steps, {t['slots']:,} slots, {t['padding']:,} padding" for n, t in totals.items()
    )
    return Player(data, f"{len(data['requests'])} requests; {line}", runs)


def colours() -> str:
    """The palette as CSS: a class a hue, and the papers."""

    def theme(kind: str) -> str:
        paper = PAPERS[kind]
        names = {"paper": paper.paper, "ink": paper.ink, "rule": paper.rule, "hairline": paper.hairline}
        names |= {"hatch": paper.hatch, "slate": paper.slate, "muted": letter(paper.muted, paper)}
        names |= {f"name{i}": letter(hue, paper) for i, hue in enumerate(HUES)}
        return "; ".join(f"--{name}: {value}" for name, value in names.items())

    hues = "\n".join(
        f".h{i} {{ --hue: {hue}; --on: {ink_on(hue)}; --name: var(--name{i}) }}" for i, hue in enumerate(HUES)
    )
    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {theme('dark')} }} }}"
    return f":root {{ {theme('light')} }}\n{dark}\n{hues}\n"
