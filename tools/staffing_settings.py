"""Prints the settings of staffing: `python -m tools.staffing_settings > docs/apps/staffing-settings.md`."""

from __future__ import annotations

from mainspring_apps.frame.settings import shown
from mainspring_apps.staffing.settings import Settings

INTRO = """\
# Staffing: settings

Printed from the code by `python -m tools.staffing_settings`; a test compares. Code says
`Market(settings=Settings(auto_approval=timedelta(hours=5)))`; what the environment says, `STAFFING_AUTO_APPROVAL=5h`,
wins. `mainspring staffing settings` shows what holds, and what has set it.

Days and times of day are those of the project's clocks, where nothing else is said. What makes no sense is refused at
the start, and so is what is almost a setting: `STAFFING_AUTOAPPROVAL` asks whether you meant `auto_approval`.

| variable | default | meaning |
| --- | --- | --- |
"""


def page() -> str:
    """The whole page."""
    rows = (f"| `{one.variable}` | {one.default} | {one.about} |" for one in shown(Settings(), {}))
    return INTRO + "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(page(), end="")
