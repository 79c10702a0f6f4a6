"""Call sites as stack frames, as torch writes them."""

from __future__ import annotations

import re
from typing import TypedDict

__all__ = ["Frame", "frames_of"]

_FRAME = re.compile(r"(?P<file>.*):(?P<line>\d+)(?: (?P<name>.*))?", re.DOTALL)


class Frame(TypedDict):
    name: str
    filename: str
    line: int


def frames_of(site: str) -> list[Frame]:
    """``file:line function < file:line function``, innermost first, as frames; empty text: none."""
    frames: list[Frame] = []
    for part in site.split(" < ") if site else ():
        found = _FRAME.fullmatch(part)
        if found is None:
            frames.append(Frame(name=part, filename="", line=0))
        else:
            line = int(found["line"][-9:])
            frames.append(Frame(name=found["name"] or "", filename=found["file"], line=line))
    return frames
