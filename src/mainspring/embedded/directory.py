"""The directories of a cluster: made for the server's account, and cleared of what a crash left in them."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from mainspring.embedded.account import account, can
from mainspring.embedded.places import digest, shared
from mainspring.embedded.process import command
from mainspring.errors import ConfigurationError


def prepare(path: Path, data: Path) -> Path:
    """Make an empty directory beside the place of the data, which the server's account owns and can reach."""
    owner, link = account(data), path / "data"
    if owner and not link.is_symlink() and not can(owner, "/bin/sh", "-c", 'cd "$0"', str(path)):
        home = Path(tempfile.mkdtemp(prefix=f"{digest(link)}-", dir=shared()))
        home.chmod(0o755)
        link.symlink_to(home / "data")
    new = link.resolve().with_name("data.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    if owner:
        os.chown(new, *owner)
    return new


def make_socket_dir(socket_dir: Path, data: Path) -> None:
    """Make the directory of the socket, and refuse one that somebody else made first."""
    owner = account(data) or (os.geteuid(), os.getegid())
    if socket_dir != data:
        with suppress(FileExistsError):
            socket_dir.mkdir(mode=0o700)
            os.chown(socket_dir, *owner)
        if socket_dir.is_symlink() or socket_dir.stat().st_uid != owner[0]:
            raise ConfigurationError(f"{socket_dir} belongs to somebody else: remove it.")


def remove_stale_locks(*locks: Path) -> None:
    """Remove lock files that name a process which is no server.

    PostgreSQL takes over the lock of a dead process, but believes any living one, and after a reboot or in a new
    container the number soon belongs to another program.
    """
    for lock in locks:
        with suppress(FileNotFoundError, IndexError, ValueError):
            said = command(int(lock.read_text().split()[0]))
            if b"postgres" not in said or said.startswith(b"postgres: "):
                lock.unlink()
