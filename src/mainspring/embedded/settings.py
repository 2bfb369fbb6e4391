"""PostgreSQL's settings for the servers that we start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SERVER_DEFAULTS: Final[Mapping[str, str]] = {
    "listen_addresses": "",
    "port": "5432",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

#: For clusters that are thrown away: faster, and a crash may lose or corrupt everything.
VOLATILE: Final[Mapping[str, str]] = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "checkpoint_timeout": "1h",
    "autovacuum": "off",
    "jit": "off",  # compiling costs more than it saves where a table has a handful of rows
    "shared_preload_libraries": "plpgsql",  # once, instead of in each of the many sessions that tests open
    "temp_file_limit": "1GB",  # their files may lie in memory
}
