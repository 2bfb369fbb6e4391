"""Prints the settings of an application: `python -m tools.app_settings staffing > docs/apps/staffing-settings.md`."""

from __future__ import annotations

import sys

from tools.apps import APPS

from mainspring_apps.frame.settings import shown


def page(name: str) -> str:
    """The whole page."""
    about = APPS[name]
    intro = (
        f"# {about.title}: settings\n\nPrinted from the code by `python -m tools.app_settings {name}`; a test compares."
    )
    rows = [f"| `{one.variable}` | {one.default} | {one.about} |" for one in shown(about.settings, {})]
    table = "\n".join(["| variable | default | meaning |", "| --- | --- | --- |", *rows])
    return f"{intro}\n{about.settings_intro}\n{table}\n"


if __name__ == "__main__":
    print(page(sys.argv[1]), end="")
