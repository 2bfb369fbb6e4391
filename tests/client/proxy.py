"""A TCP proxy before PostgreSQL that loses what it is told to lose."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class Proxy:
    """Forwards connections; cuts those whose client says one of the words of `fatal`, when the server has answered."""

    def __init__(self, dsn: str) -> None:
        target = conninfo_to_dict(dsn)
        self._address = f"{target['host']}/.s.PGSQL.{target['port']}"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.dsn = make_conninfo(dsn, host="127.0.0.1", port=self._listener.getsockname()[1], sslmode="disable")
        self.fatal: list[bytes] = []  # each word cuts one connection
        self.cuts = 0
        self.down = False  # refuse new connections
        self.refusal: bytes | None = None  # a SQLSTATE: answer new connections with this error
        self._closed = False
        self.came: list[float] = []  # when connections were tried
        self.frozen = False  # take new connections, as the kernel does for a process that stands still, and say nothing
        self._flows = threading.Event()
        self._flows.set()
        self._mute: set[socket.socket] = set()  # clients that hear nothing more, and are not heard
        self._deaf: set[socket.socket] = set()  # clients that hear nothing more, but are heard
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Lose every connection at once."""
        for pair in self._pairs:
            self._cut(*pair)
        self._pairs.clear()

    def mute(self) -> None:
        """Fall silent on every connection there is, without closing it."""
        self._mute.update(client for client, _ in self._pairs)

    def freeze(self) -> None:
        """Stand still, as a server under SIGSTOP: connections stay open, new ones are taken, nobody is answered."""
        self.frozen = True
        self.mute()

    def swallow(self) -> None:
        """Forward what clients say, on every connection there is, and never an answer."""
        self._deaf.update(client for client, _ in self._pairs)

    def hold(self) -> None:
        """The network is gone: nothing arrives, on old connections or new ones, until `flow`."""
        self._flows.clear()

    def flow(self) -> None:
        """The network is back, and what was sent meanwhile arrives."""
        self._flows.set()

    def close(self) -> None:
        self._closed = True
        self.flow()
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self._flows.wait()
                self.came.append(time.monotonic())
                if self.refusal is not None:
                    self._refuse(client, self.refusal)
                    continue
                if self.down:
                    client.close()
                    continue
                if self.frozen:
                    self._pairs.append((client, client))
                    if self._closed:  # meanwhile
                        self.cut()
                    continue
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._address)
                self._pairs.append((client, server))
                doomed = threading.Event()
                threading.Thread(target=self._forward, args=(client, server, doomed), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client, doomed), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket, doomed: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                word = next((word for word in self.fatal if word in data), None)
                if word is not None:
                    self.fatal.remove(word)
                    doomed.set()
                self._flows.wait()
                if client not in self._mute:
                    server.sendall(data)
        self._cut(client, server)

    def _answer(self, server: socket.socket, client: socket.socket, doomed: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if doomed.is_set():  # the server has done it, the client will never know
                    self.cuts += 1
                    break
                self._flows.wait()
                if client not in self._mute | self._deaf:
                    client.sendall(data)
        self._cut(client, server)

    @classmethod
    def _refuse(cls, client: socket.socket, state: bytes) -> None:
        """What a server says that cannot take anybody now."""
        said = b"SFATAL\0VFATAL\0C" + state + b"\0Mno connection now\0\0"
        with suppress(OSError):
            client.recv(65536)
            client.sendall(b"E" + (len(said) + 4).to_bytes(4, "big") + said)
        cls._cut(client)

    @staticmethod
    def _cut(*pair: socket.socket) -> None:
        for side in pair:
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)  # else the reset is not sent while the other thread reads
            side.close()


@contextmanager
def proxied(dsn: str) -> Iterator[Proxy]:
    proxy = Proxy(dsn)
    try:
        yield proxy
    finally:
        proxy.close()
