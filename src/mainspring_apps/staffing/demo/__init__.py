"""A living marketplace: companies in many zones whose people are jobs, for `make up` and `simulate staffing`.

Nothing here is special: people act through the same business events as a web application, at times that they choose by
`random`, which a simulation seeds.
"""

from __future__ import annotations

from typing import Any

import mainspring as ms
from mainspring_apps.staffing.demo.people import people
from mainspring_apps.staffing.demo.seed import seed
from mainspring_apps.staffing.market import market
from mainspring_apps.staffing.web import ABOUT


def demo(**options: Any) -> ms.App:
    """The marketplace with people in it, as the environment says where its providers are."""
    return market(registries=[people], prepare=[seed], about=ABOUT, **options)


def __getattr__(name: str) -> Any:
    """`app`, made anew whenever it is asked for: a simulation has a database and providers of its own."""
    if name == "app":
        return demo()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
