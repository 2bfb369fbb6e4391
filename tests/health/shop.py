"""An application with measures, for the command line."""

from __future__ import annotations

import mainspring as ms

app = ms.App(
    ms.Registry("shop"),
    measures=[
        ms.measure("cases_open", "Open cases", "select kind, 2 from (values ('late'), ('lost')) v (kind)"),
        ms.measure("waits", "How long", "values (1), (2), (3)", kind="histogram", buckets=(1, 2)),
        ms.measure("broken", "Nothing", "select nothing"),
    ],
)
