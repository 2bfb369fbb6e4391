"""One broker for all processes of a test run: the first starts it, the last ends it.

Each process holds a shared lock as long as it may need the broker; whoever leaves and can have the lock alone was the
last. A directory that nobody holds belongs to a run that was killed: the next run cleans up after it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.contrib.rabbitmq.server import RabbitMQServer

PREFIX = "mainspring-broker-"


@contextmanager
def locked(path: Path, kind: int) -> Iterator[None]:
    """Hold a file's lock for a while: shared by those who use the broker, alone by who kills it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, kind)
        yield
    finally:
        os.close(lock)


@contextmanager
def shared(name: str) -> Iterator[RabbitMQServer]:
    """The broker of a run, for one of its processes."""
    place = Path(tempfile.gettempdir())
    for left in place.glob(f"{PREFIX}*.users"):
        if left != place / f"{PREFIX}{name}.users" and left.lstat().st_uid == os.geteuid():
            _end_if_last(left)
    users = place / f"{PREFIX}{name}.users"
    server = RabbitMQServer(users.with_suffix(""))
    with locked(users, fcntl.LOCK_SH):
        server.folder.mkdir(mode=0o700, exist_ok=True)
        with locked(server.folder / "starting", fcntl.LOCK_EX):
            if not server.running:
                server.start()
        yield server
    _end_if_last(users)


def _end_if_last(users: Path) -> None:
    with suppress(BlockingIOError), locked(users, fcntl.LOCK_EX | fcntl.LOCK_NB):
        RabbitMQServer(users.with_suffix("")).stop()
        shutil.rmtree(users.with_suffix(""), ignore_errors=True)
        users.unlink(missing_ok=True)
