"""A living marketplace: companies in many zones whose people are jobs, for `make up` and `simulate staffing`.

Nothing here is special: people act through the same business events as a web application, at times that they choose by
`random`, which a simulation seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from mainspring_apps.staffing.demo import people as _tasks  # noqa: F401 (their tasks)
from mainspring_apps.staffing.demo.acts import people
from mainspring_apps.staffing.demo.seed import ODD_ZONES, PEOPLE_HERE, seed
from mainspring_apps.staffing.market import Market
from mainspring_apps.staffing.web import ABOUT, PEOPLE


def demo(zones: Sequence[str] = ODD_ZONES, **options: Any) -> Market:
    """The marketplace with people in these zones, as the environment says where its providers are."""
    here = dict.fromkeys(PEOPLE_HERE, PEOPLE)
    return Market(extra=[people], seed=partial(seed, zones=zones), about=ABOUT, demo_people=here, **options)


def __getattr__(name: str) -> Any:
    """`app`, made anew whenever it is asked for: a simulation has a database and providers of its own."""
    if name == "app":
        return demo()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
