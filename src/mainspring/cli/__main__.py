"""`python -m mainspring.cli`: the same as `mainspring`."""

import sys

from mainspring.cli import main

if __name__ == "__main__":
    sys.exit(main())
