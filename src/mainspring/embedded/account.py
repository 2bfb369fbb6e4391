"""The account that runs the server: PostgreSQL refuses to run as root.

For root it is the owner of the data, else `postgres` or `nobody`; for anybody else, themselves.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from mainspring.errors import ConfigurationError

#: Where programs and libraries are, the language, and the zone.
INHERITED = frozenset({"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR"})


def account(data: Path) -> tuple[int, int] | None:
    """The user and group that run the server of a data directory, or None for our own."""
    if os.geteuid() != 0:
        return None
    if data.is_dir() and (owner := data.stat()).st_uid != 0:
        return owner.st_uid, owner.st_gid
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)[2:4]
    raise ConfigurationError("PostgreSQL refuses to run as root: add a user named postgres, or run as another user.")


def can(who: tuple[int, int] | None, *command: str | Path) -> bool:
    """Whether an account can run a command; our own is not asked."""
    with suppress(PermissionError):
        return who is None or call(who, subprocess.DEVNULL, *command) == 0
    return False


def surroundings(env: Mapping[str, str]) -> dict[str, str]:
    """What PostgreSQL needs to know of ours: its functions could read the rest, secrets of an application among it.

    >>> surroundings({"PATH": "/bin", "LC_ALL": "C", "STRIPE_API_KEY": "sk_live", "PGOPTIONS": "-c fsync=off"})
    {'PATH': '/bin', 'LC_ALL': 'C'}
    """
    return {name: value for name, value in env.items() if name in INHERITED or name.startswith("LC_")}


def call(who: tuple[int, int] | None, output: int, *command: str | Path) -> int:
    """Run a command as an account, in a session of its own: Ctrl-C in our terminal must not reach the server."""
    user, group = who or (None, None)
    return subprocess.run(  # noqa: S603 - our own binaries, no shell
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd="/",
        env=surroundings(os.environ),
        user=user,
        group=group,
        extra_groups=None if user is None else [],
        umask=0o077,
        start_new_session=True,
        check=False,
    ).returncode
