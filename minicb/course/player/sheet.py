"""The contact sheet: the player's story as one still picture, for where no script runs.

Every run's timeline on one step axis, and under each the token strips of the steps that tell most about it.
"""

from __future__ import annotations

from minicb.course.draw.picture import Picture
from minicb.course.draw.timeline import draw_timeline
from minicb.course.player.frames import Runs


def contact_sheet(runs: Runs, *, title: str, data: str) -> Picture:
    """runs: name -> records, all of the same requests   data: the data line"""
    names = list(dict.fromkeys(name for records in runs.values() for record in records for name in record.arrived))
    return draw_timeline(runs, order=names, title=title, data=data)
