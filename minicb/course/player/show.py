"""The player inside a notebook: the still, the page, and where the page was saved."""

from __future__ import annotations

import re
from collections.abc import Sequence

from minicb.course import work
from minicb.course.player.page import make_player
from minicb.course.player.payload import Runs, Texts
from minicb.metrics import StepRecord


def show_player(runs: Runs | Sequence[StepRecord], *, title: str = "Step by step", texts: Texts | None = None) -> None:
    """Show the still, and under it the player; save the page; print one data line.

    The page is saved under `.minicb/player`, which git ignores, named after its title. In a terminal: the words only.
    """
    player = make_player(runs, title=title, texts=texts)
    name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "player"
    player.save(work.folder("player") / f"{name}.html")
    still = player.sheet()
    still.data = f"{player.line}; saved as .minicb/player/{name}.html"
    still.show()
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        return
    if get_ipython() is not None:
        display({"text/html": player._repr_html_(), "text/plain": repr(player)}, raw=True)
