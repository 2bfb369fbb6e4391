"""A simulation reaches nobody beyond this machine, whatever an application was told of real providers."""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg.conninfo import conninfo_to_dict

log = logging.getLogger("mainspring.simulate")


@contextmanager
def loopback_only(dsn: str) -> Iterator[None]:
    """Inside the block Python's sockets connect to this machine alone, and to the server of the scratch database."""
    given = conninfo_to_dict(dsn)
    known = {host for name in ("host", "hostaddr") for host in str(given.get(name) or "").split(",")}
    find, connect, connect_ex = socket.getaddrinfo, socket.socket.connect, socket.socket.connect_ex
    told: set[str] = set()

    def refused(host: str) -> str:
        if host not in told:
            told.add(host)
            log.warning("a simulation reaches nobody beyond this machine: %s was refused", host)
        return f"a simulation reaches nobody beyond this machine, such as {host}"

    def found(host: Any, *args: Any, **how: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name is not None and name not in known and not is_this_machine(name):
            raise socket.gaierror(socket.EAI_NONAME, refused(name))
        places = find(host, *args, **how)
        known.update(str(place[4][0]) for place in places if name in known)
        return places

    def connected(self: socket.socket, address: Any) -> None:
        if not (self.family == socket.AF_UNIX or address[0] in known or is_this_machine(address[0])):
            raise ConnectionRefusedError(errno.ECONNREFUSED, refused(address[0]))
        connect(self, address)

    def connected_ex(self: socket.socket, address: Any) -> int:
        try:
            connected(self, address)
        except OSError as error:
            return error.errno or errno.ECONNREFUSED
        return 0

    _patch(found, connected, connected_ex)
    try:
        yield
    finally:
        _patch(find, connect, connect_ex)


def is_this_machine(host: str) -> bool:
    """Whether a host is this machine, by its letters.

    >>> [is_this_machine(host) for host in ("127.0.0.1", "::1", "localhost", "api.stripe.com", "10.0.0.1")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host in ("", "localhost") or host.endswith(".localhost")


def _patch(find: Any, connect: Any, connect_ex: Any) -> None:
    socket.getaddrinfo = find
    socket.socket.connect = connect  # type: ignore[method-assign] # every library connects by it, asyncio's too
    socket.socket.connect_ex = connect_ex  # type: ignore[method-assign] # as above
