"""The step player: any run, step by step, forward and back, in one page that needs no network.

    show_player({"padded": records("padded"), "continuous": records("continuous")})   in a notebook
    make_player({...}).save("steps.html")                                             a file to open in a browser
    minicb play trace.jsonl                                                           the same from a terminal

It plays what an engine has recorded, one `StepRecord` a step, and several runs of the same requests side by side.
"""

from minicb.course.player.page import Player, make_player
from minicb.course.player.show import show_player

__all__ = ["Player", "make_player", "show_player"]
