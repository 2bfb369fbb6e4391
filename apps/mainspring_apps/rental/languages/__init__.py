"""The languages in which a rental company speaks, with their catalogues beside this module."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mainspring_apps.frame.catalogue import Languages
from mainspring_apps.frame.values import day, money

SPOKEN: Final = Languages(Path(__file__).parent, {"Total": money, "First day": day, "Last day": day})
