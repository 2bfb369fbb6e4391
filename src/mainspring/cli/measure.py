"""`mainspring measure`: the numbers of an application, as Prometheus would read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cyclopts import App

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions

if TYPE_CHECKING:
    from mainspring.health.measure import MeasureKind

app = App(name="measure", help="See an application's own numbers.", help_format="plaintext")

COLUMNS = ("MEASURE", "KIND", "LABELS", "VALUE", "PROBLEM")


@app.command(name="list")
def list_measures(*, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Ask every measure that the application declares, and show what it answers.

        mainspring measure list --app shop:app

    Args:
        connection: The database and the application.
    """
    from mainspring.db.measures import Measures

    app = connection.needed_application()
    found = Measures(connection.address(app), app.measures, connection.schema_of(app))()
    rows: list[tuple[str, MeasureKind, dict[str, str], float | None, str | None]] = [
        (name, one.measure.kind, labels, value, None) for one in found for name, labels, value in one.samples()
    ]
    rows += [(one.measure.name, one.measure.kind, {}, None, one.error) for one in found if one.error is not None]
    if connection.json:
        return output.as_json([
            dict(zip(("measure", "kind", "labels", "value", "error"), row, strict=True)) for row in rows
        ])  # fmt: skip
    cells = (
        (name, kind, " ".join(f"{k}={v}" for k, v in labels.items()), _number(value), error)
        for name, kind, labels, value, error in rows
    )
    return output.table(COLUMNS, cells, "The application declares no measure, or none has a value.")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.15g}"
