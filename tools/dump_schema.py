"""A throw-away database with the engine's schema, and what a schema holds as text that can be compared."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from mainspring.db.schema.migrate import migrate
from mainspring.embedded import VOLATILE, Cluster, find_binaries

VERSION = 18

# What changes with the version of pg_dump, or says nothing.
NOISE = re.compile(
    r"""
      ^--\n--[ ].*\n--\n               # headings: name, type, schema, owner; and the dump's own first and last words
    | ^--[ ]Dumped[ ].*\n              # versions
    | ^\\(un)?restrict[ ].*\n          # a guard with a random key
    | ^SET[ ].*;\n                     # settings of the session that restores
    | ^SELECT[ ]pg_catalog\.set_config.*\n
    """,
    re.MULTILINE | re.VERBOSE,
)


def dump(dsn: str, schema: str = "mainspring") -> str:
    """What a schema of a database holds, as stable text."""
    options = ("--schema-only", "--no-owner", "--no-privileges", f'--schema="{schema}"', f"--dbname={dsn}")
    text = subprocess.run(
        [find_binaries(VERSION) / "pg_dump", *options], check=True, capture_output=True, text=True
    ).stdout
    return re.sub(r"\n{3,}", "\n\n", NOISE.sub("", text)).strip() + "\n"


@contextmanager
def migrated() -> Iterator[str]:
    """A throw-away database with the engine's schema."""
    with tempfile.TemporaryDirectory(prefix="mainspring-schema-") as folder:
        Path(folder).chmod(0o755)  # for the account that runs PostgreSQL when we are root
        cluster = Cluster(Path(folder) / "cluster", version=VERSION, settings=VOLATILE)
        try:
            cluster.start()
            with psycopg.connect(cluster.dsn(), autocommit=True) as conn:
                migrate(conn)
            yield cluster.dsn()
        finally:
            cluster.remove()
