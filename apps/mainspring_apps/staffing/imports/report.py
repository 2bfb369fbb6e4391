"""What became of each row that was read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

import msgspec

from mainspring_apps.staffing.imports.columns import Noun

#: `changed`: it was imported before, and says something else since; what was imported stays as it is.
Became = Literal["imported", "unchanged", "changed", "refused"]


class RowReport(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a view, and what became of it."""

    view: Noun
    external_id: str | None
    became: Became
    id: int | None = None  # of the row here
    field: str | None = None
    reason: str | None = None

    @property
    def wrong(self) -> bool:
        """Whether somebody should look at it."""
        return self.became in ("changed", "refused")


def counted(rows: Iterable[RowReport]) -> dict[str, int]:
    """How many rows became what."""
    return dict(sorted(Counter(row.became for row in rows).items()))
