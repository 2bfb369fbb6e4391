"""A TCP proxy before PostgreSQL that loses what it is told to lose."""

from __future__ import annotations

import socket
import threading
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
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Lose every connection at once."""
        for pair in self._pairs:
            self._cut(*pair)
        self._pairs.clear()

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                if self.down:
                    client.close()
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
                server.sendall(data)
        self._cut(client, server)

    def _answer(self, server: socket.socket, client: socket.socket, doomed: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if doomed.is_set():  # the server has done it, the client will never know
                    self.cuts += 1
                    break
                client.sendall(data)
        self._cut(client, server)

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
