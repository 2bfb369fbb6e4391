"""`mainspring`, and `python -m mainspring`: the command line, or what to install for it."""

from __future__ import annotations

import sys

from mainspring.errors import ConfigurationError
from mainspring.extras import needs


def main() -> int:
    """Run one command and return its exit code."""
    try:
        needs("the command line needs", "cli", "cyclopts", "rich")
    except ConfigurationError as error:
        sys.stderr.write(f"mainspring: {error}\n")
        return 2  # as for whatever else is not set up: `mainspring.cli.exits`
    from mainspring.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
