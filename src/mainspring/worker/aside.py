"""Reading what a handler raised beside the event loop: code of an exception's own may take as long as it likes.

One exception is read at a time, so that texts that are huge or never end share one part of the machine. An exception
that is not read within its second, its turn included, is judged by what can be seen without running its code.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections import Counter
from contextlib import suppress
from weakref import WeakKeyDictionary

from mainspring.outcome import Outcome
from mainspring.text.raised import Enough, name_of, tame
from mainspring.text.stack import sources_known
from mainspring.worker.classify import classify, unreadable
from mainspring.worker.service import log

ASIDE_PATIENCE_S = 1.0  # seconds that an exception may take to say what it is, from when it is to be asked
ASIDE_GRACE_S = 0.05  # seconds in which a thread that loops has ended; only one that hangs takes them
MOST_HANGING_THREADS = 4  # threads that hang, beyond which nothing is read aside until one of them ends

#: How many exceptions were not read in time in this process.
counts: Counter[str] = Counter()
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
_hanging: set[threading.Thread] = set()


async def judge(error: BaseException) -> Outcome:
    """The outcome of an attempt that raised, as `classify` says it, however long the exception takes to be read."""
    if tame(error) and sources_known(error):
        return classify(error)
    turn = _turns.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(1))
    with suppress(TimeoutError, asyncio.CancelledError):  # the attempt has ended, whoever stops it now
        async with asyncio.timeout(ASIDE_PATIENCE_S), turn:
            if not _full():
                return await _aside(error)
    counts["unread"] += 1
    return unreadable(error)


async def _aside(error: BaseException) -> Outcome:
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Outcome] = loop.create_future()

    def read() -> None:
        with suppress(Enough, RuntimeError):  # nobody waits any more, or the loop has ended
            loop.call_soon_threadsafe(answer, classify(error))

    def answer(outcome: Outcome) -> None:
        if not found.done():
            found.set_result(outcome)

    thread = threading.Thread(target=read, name="mainspring aside", daemon=True)
    thread.start()
    try:
        return await found
    except asyncio.CancelledError:
        _end(thread)
        thread.join(ASIDE_GRACE_S)  # a loop ends now, before the next one is read
        before = len(_hanging)
        _hanging.add(thread)
        if before < MOST_HANGING_THREADS and _full():
            log.error(
                "%d exceptions hang when they are asked for their text, the last a %s: until one of them ends, or the "
                "process, exceptions with code of their own are kept without their text",
                MOST_HANGING_THREADS, name_of(error),
            )  # fmt: skip
        raise


def _full() -> bool:
    _hanging.difference_update([thread for thread in _hanging if not thread.is_alive()])
    return len(_hanging) >= MOST_HANGING_THREADS


def _end(thread: threading.Thread) -> None:
    """Raise in a thread, so that a loop in it ends; what waits inside of a call in C ends when that returns."""
    if thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Enough))
