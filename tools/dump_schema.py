"""Write src/mainspring/db/schema.sql: what the migrations produce, to read and to compare.

`make schema` runs this after a migration was added; a test compares the file with what the migrations really produce.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from mainspring.db.migrate import migrate
from mainspring.embedded import VOLATILE, Cluster, find_binaries

TARGET = Path(__file__).parent.parent / "src/mainspring/db/schema.sql"
VERSION = 18

HEAD = """\
-- The schema as all migrations leave it, for reading: `make schema` writes this file, nothing runs it.

"""

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
    return HEAD + re.sub(r"\n{3,}", "\n\n", NOISE.sub("", text)).strip() + "\n"


@contextmanager
def migrated() -> Iterator[str]:
    """A throw-away database with all migrations applied."""
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


def main() -> None:
    with migrated() as dsn:
        TARGET.write_text(dump(dsn))
    print(f"{TARGET.name}: {len(TARGET.read_text().splitlines())} lines")


if __name__ == "__main__":
    main()
