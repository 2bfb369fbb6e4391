"""A way to PostgreSQL that is long, breaks, falls silent, and loses answers; one thread with a loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from psycopg.conninfo import conninfo_to_dict, make_conninfo

#: What a server says when it is done and no transaction is open: all that was asked is committed.
DONE = b"Z\x00\x00\x00\x05I"


class Line:
    """One connection through the proxy."""

    def __init__(self, *ends: asyncio.StreamWriter) -> None:
        self.ends = ends
        self.doomed = False  # its next answer is lost, and so is the connection

    def cut(self) -> None:
        for end in self.ends:
            if (transport := end.transport) is not None:
                transport.abort()


class Proxy:
    """Forwards connections to a server on a Unix socket. Faults may be set from any thread."""

    def __init__(self, dsn: str) -> None:
        target = conninfo_to_dict(dsn)
        self._address = f"{target['host']}/.s.PGSQL.{target['port']}"
        self.delay = 0.0  # seconds, each way
        self.counts: Counter[str] = Counter()
        self._lines: set[Line] = set()
        self._drops = 0  # so many answers are still to be lost
        self._loop = asyncio.new_event_loop()
        self._speaking = asyncio.Event()  # clear: nothing passes
        self._speaking.set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        serving = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop)
        self._server = serving.result(10)
        port = self._server.sockets[0].getsockname()[1]
        self.dsn = make_conninfo(dsn, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable")

    # -- faults

    def cut(self) -> None:
        """Lose every connection at once."""
        self._do(self._cut)

    def silence(self) -> None:
        """Let nothing pass, and close nothing: the kernel goes on acknowledging."""
        self._do(self._speaking.clear)

    def speak(self) -> None:
        """Let everything pass again; those who were silent for so long are cut off, as a router would do it."""

        def speak() -> None:
            self._cut()
            self._speaking.set()

        self._do(speak)

    def drop(self, answers: int) -> None:
        """Lose the next answers that say that something is committed, with their connections."""

        def arm() -> None:
            self._drops += answers

        self._do(arm)

    def spare(self) -> None:
        """Lose no more answers."""

        def disarm() -> None:
            self._drops = 0

        self._do(disarm)

    def close(self) -> None:
        async def close() -> None:
            self._server.close()
            self._cut()
            mine = asyncio.current_task()
            others = [task for task in asyncio.all_tasks() if task is not mine]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(close(), self._loop).result(10)
        self._do(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _do(self, act: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(act)

    def _cut(self) -> None:
        self.counts["cut"] += len(self._lines)
        for line in self._lines:
            line.cut()

    # -- forwarding

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(writer)
        with suppress(OSError, EOFError, asyncio.CancelledError):  # either end is gone, or the proxy is closed
            await self._speaking.wait()
            there, back = await asyncio.open_unix_connection(self._address)
            line = Line(writer, back)
            self._lines.add(line)
            await asyncio.gather(self._pass(line, reader, back, asks=True), self._pass(line, there, writer, asks=False))
        self._lines.discard(line)
        line.cut()

    async def _pass(self, line: Line, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asks: bool) -> None:
        """One direction. What is under way is not waited for before more is taken: a long way is not a narrow one."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                at, data = await under_way.get()
                await asyncio.sleep(max(0.0, at - self._loop.time()))
                await self._speaking.wait()
                if not asks and line.doomed and DONE in data:
                    self.counts["dropped"] += 1
                    raise EOFError
                writer.write(data)
                await writer.drain()

        delivering = asyncio.create_task(deliver())
        try:
            while True:
                reading = asyncio.create_task(reader.read(65536))
                await asyncio.wait([reading, delivering], return_when=asyncio.FIRST_COMPLETED)
                if delivering.done():
                    reading.cancel()
                    return delivering.result()
                if not (data := reading.result()):
                    raise EOFError
                if asks and self._drops and len(data) > 100:  # more than a begin, a ping or a sync
                    self._drops -= 1
                    line.doomed = True
                under_way.put_nowait((self._loop.time() + self.delay, data))
        finally:
            delivering.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await delivering
            line.cut()
