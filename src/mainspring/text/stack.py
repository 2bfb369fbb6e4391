"""Where an exception was raised: the last frames, each with its line of source where that is known.

Sources are read once, and never by the event loop: a file may be a pipe, or lie on a disk that does not answer, and a
loader is anybody's code. A traceback may be as long as it likes.
"""

from __future__ import annotations

import linecache
import os
import stat
from collections import deque
from types import TracebackType
from typing import Final

from mainspring.text.raised import text, traceback_of

SHOWN_FRAMES: Final = 12
MOST_FRAMES: Final = 10_000  # that are walked through; so far the last ones can be found
MOST_SOURCES: Final = 1_000  # files whose lines are kept
LARGEST_SOURCE: Final = 10_000_000  # bytes
_WIDEST_TEXT: Final = 300  # characters of a path, a name or a line

_sources: dict[str, list[str]] = {}


def stack_of(error: BaseException, *, reading: bool) -> str:
    """Its last frames, without values; sources that nobody has read yet are read, or left out."""
    shown = []
    for frame in _frames(error):
        code = frame.tb_frame.f_code
        path, name, number = text(code.co_filename) or "", text(code.co_name) or "", frame.tb_lineno
        lines = _read(path, frame) if reading and not _known(path) else _lines(path)
        shown.append(f'  File "{path[-_WIDEST_TEXT:]}", line {number}, in {name[:_WIDEST_TEXT]}\n')
        if number is not None and 0 < number <= len(lines) and (line := lines[number - 1].strip()):
            shown.append(f"    {line[:_WIDEST_TEXT]}\n")
    return "".join(shown)


def sources_known(error: BaseException) -> bool:
    """Whether `stack_of` has nothing to read."""
    return all(_known(text(frame.tb_frame.f_code.co_filename) or "") for frame in _frames(error))


def _frames(error: BaseException) -> deque[TracebackType]:
    last: deque[TracebackType] = deque(maxlen=SHOWN_FRAMES)
    frame, count = traceback_of(error), 0
    while frame is not None and count < MOST_FRAMES:
        last.append(frame)
        frame, count = frame.tb_next, count + 1
    return last


def _known(path: str) -> bool:
    return path in _sources or path.startswith("<")  # no file, and no loader is asked for it


def _lines(path: str) -> list[str]:
    if path.startswith("<"):
        entry = linecache.cache.get(path, ())
        return entry[2] if len(entry) == 4 else []  # else somebody's code has to make it
    return _sources.get(path, [])


def _read(path: str, frame: TracebackType) -> list[str]:
    while len(_sources) >= MOST_SOURCES:
        _sources.pop(next(iter(_sources)), None)
    _sources[path] = []  # whoever hangs in it is the only one
    try:
        found = os.stat(path)
        readable = stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST_SOURCE
    except (OSError, ValueError):
        readable = True  # inside of an archive, perhaps: its loader knows
    if readable:
        _sources[path] = linecache.getlines(path, frame.tb_frame.f_globals)
    return _sources.get(path, [])
