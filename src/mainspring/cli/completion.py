"""`mainspring completion`: let a shell complete commands and options."""

from __future__ import annotations

from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print the script that lets a shell complete commands and options.

    Args:
        shell: Your shell.
    """
    from mainspring.cli import app

    print(app.generate_completion(shell=shell))
