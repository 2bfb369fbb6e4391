"""The PostgreSQL clusters of one test run, shared by its processes and removed by the last of them.

A run keeps its clusters below one directory, which is named after the run, so that all processes of pytest-xdist find
the same one. Each process holds a shared lock on it: whoever leaves and can have the lock alone was the last, and
removes everything. A directory that nobody holds belongs to a run that was killed; the next run cleans up after it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainspring.embedded import Cluster

RUN_PREFIX = "mainspring-tests-"
MEMORY = Path("/dev/shm")  # noqa: S108 - a place in memory; the directory made there has a name that nobody can guess
FREE_MEMORY = 2 * 2**30  # so much must be free there


class RunClusters:
    """The clusters of one test run: below `memory` those that may be lost, below `disk` those that write durably."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def join(cls, name: str) -> RunClusters:
        """Become one of the processes of a run, and remove what killed runs left."""
        path = Path(tempfile.gettempdir()) / f"{RUN_PREFIX}{name}"
        for other in path.parent.glob(f"{RUN_PREFIX}*"):
            with suppress(OSError):  # another process removes it just now, or it is somebody else's
                # Not where a link leads: anybody may put one there, and everything below it would be removed.
                if other != path and other.lstat().st_uid == os.geteuid() and (lock := _lock(other, fcntl.LOCK_EX)):
                    cls(other, lock)._remove()
        while True:
            try:
                lock = _lock(path, fcntl.LOCK_SH)
            except FileNotFoundError:
                lock = _make(path)
            if lock is not None:
                return cls(path, lock)
            time.sleep(0.01)  # the last process of those before us removes it

    def leave(self) -> None:
        """Stop being one of its processes; the last one ends the clusters."""
        with suppress(BlockingIOError):
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._remove()
            return
        os.close(self._lock)

    def cluster(self, name: str, *, version: int = 18, settings: Mapping[str, str] = {}) -> Cluster:
        """A running cluster: the first process to ask starts it, the others find it."""
        from mainspring.embedded import Cluster

        cluster = Cluster(self.path / name, version=version, settings=settings)
        cluster.start()
        return cluster

    def _remove(self) -> None:
        from mainspring.embedded import Cluster

        for lock in self.path.glob("*/*/lock"):
            Cluster(lock.parent).remove()
        shutil.rmtree((self.path / "memory").resolve(), ignore_errors=True)
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _make(path: Path) -> int | None:
    """Make the directory of a run, unless another process was faster; it is seen only when complete and locked."""
    new = Path(tempfile.mkdtemp(prefix="mainspring-new-"))
    lock = os.open(new, os.O_RDONLY)
    memory = new / "memory"
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        (new / "disk").mkdir()
        if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > FREE_MEMORY:
            memory.symlink_to(tempfile.mkdtemp(prefix=RUN_PREFIX, dir=MEMORY))
        else:
            memory.mkdir()
        for place in (new, memory):
            place.chmod(0o755)  # for the account that runs PostgreSQL when we are root
        new.rename(path)
    except BaseException as error:
        os.close(lock)
        shutil.rmtree(memory.resolve(), ignore_errors=True)
        shutil.rmtree(new, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            return None
        raise
    return lock


def _lock(path: Path, kind: int) -> int | None:
    """Lock a directory until this process ends; None if others hold it otherwise, or if it is gone."""
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
        if os.fstat(lock).st_nlink and path.stat().st_ino == os.fstat(lock).st_ino:
            return lock
    except BlockingIOError:
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None
