"""`mainspring staffing`: the story of a booking, who comes in over HTTP, and the settings, in a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from itertools import groupby
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

import mainspring as ms
from mainspring.contrib.money import Money
from mainspring.text.texts import line
from mainspring_apps.frame.cli import FLAG, both, command_settings, connected, print_json, table
from mainspring_apps.staffing import bookings, show
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.imports import run
from mainspring_apps.staffing.imports.report import RowReport, counted
from mainspring_apps.staffing.imports.source import read
from mainspring_apps.staffing.market import Market
from mainspring_apps.staffing.payments.escrow import Ledger
from mainspring_apps.staffing.people import SYSTEM
from mainspring_apps.staffing.store import Conn

app = App(name="staffing", help="Look into the staffing marketplace.", help_format="plaintext")
booking = App(name="booking", help="See bookings, and the story of one.", help_format="plaintext")
app.command(booking)
operator = App(name="operator", help="Say who runs the marketplace.", help_format="plaintext")
app.command(operator)
user = App(name="user", help="Say as whom people come in over HTTP.", help_format="plaintext")
app.command(user)

AHEAD = ("Scheduled", "Cancelled")
LEDGER = ("CHARGED", "HELD", "FROZEN", "RELEASED", "REFUNDED", "CHARGED BACK")
PROGRESS_ROWS = 1000  # after so many an import says how far it is
SHOWN_SHIFTS = 5  # shifts to come that are shown
_MANY = 3  # as many more of a kind are told together
NUMBERED = re.compile(r"(?<=^shift )\d+")


@booking.command(name="show")
def show_booking(
    booking_id: int,
    /,
    *,
    whole: Annotated[bool, Parameter(name="--all", negative="", show_default=False)] = False,
    dsn: str | None = None,
    json: Annotated[bool, FLAG] = False,
) -> None:
    """Show what has happened to a booking and what will happen next, in project time and UTC, with its money.

    Args:
        booking_id: Its number.
        whole: Show every shift and moment, and not only those that have begun and the next few.
        dsn: The database; else MAINSPRING_DSN, DATABASE_URL, or the one of `mainspring up` here.
        json: Print one JSON document and nothing else.
    """
    with _connected(dsn) as (desk, conn):
        story = show.story(desk, conn, booking_id)
    print_json(story) if json else print("\n".join(lines(story, whole=whole)))


@booking.command(name="list")
def list_bookings(
    *, after: int = 0, limit: int = show.BOOKINGS_PAGE, dsn: str | None = None, json: Annotated[bool, FLAG] = False
) -> None:
    """Show bookings by number.

    Args:
        after: Those after this one.
        limit: At most so many.
        dsn: The database; else MAINSPRING_DSN, DATABASE_URL, or the one of `mainspring up` here.
        json: Print one JSON document and nothing else.
    """
    if limit < 1:
        raise ms.ValidationError("limit: must be at least 1", field="limit")
    with _connected(dsn) as (_, conn):
        found = show.bookings(conn, after=after, limit=limit)
    if json:
        print_json(found)
        return
    rows = [
        (str(b.id), b.status, b.zone, f"{b.start_date} to {b.end_date}", _funded(b.funded_period_end, b.zone))
        for b in found
    ]
    print("\n".join(table(("ID", "STATUS", "ZONE", "DATES", "FUNDED UNTIL"), rows)))


@operator.command(name="add")
def add_operator(
    name: str, /, *, email: str | None = None, phone: str | None = None, dsn: str | None = None
) -> None:  # fmt: skip
    """Add somebody who runs the marketplace, such as the first one, who lets the others in. Prints their number.

    Args:
        name: What they are called.
        email: Where mail reaches them.
        phone: Where SMS reach them, such as +15550000001.
        dsn: The database; else MAINSPRING_DSN, DATABASE_URL, or the one of `mainspring up` here.
    """
    with _connected(dsn) as (desk, conn):
        print(bookings.add_operator(desk, conn, name=name, email=email, phone=phone, by=SYSTEM))


@user.command(name="let-in")
def let_in(user_id: int, principal: str, /, *, dsn: str | None = None) -> None:
    """Let a user of the marketplace in as somebody whom the engine's access knows.

    That is a user who signs in, `user:NAME`, or an access token, `token:NAME`. Make one that sees nothing but the
    marketplace:

        mainspring staffing user let-in 9 token:welder-9
        mainspring token create welder-9 --org staffing

    Args:
        user_id: Their number.
        principal: The user of the engine, `user:NAME`, or the token, `token:NAME`.
        dsn: The database; else MAINSPRING_DSN, DATABASE_URL, or the one of `mainspring up` here.
    """
    with _connected(dsn) as (desk, conn):
        bookings.let_in(desk, conn, user_id, principal=principal, by=SYSTEM)


@user.command(name="shut-out")
def shut_out(user_id: int, /, *, dsn: str | None = None) -> None:
    """Let nobody in any more as a user of the marketplace.

    Args:
        user_id: Their number.
        dsn: The database; else MAINSPRING_DSN, DATABASE_URL, or the one of `mainspring up` here.
    """
    with _connected(dsn) as (desk, conn):
        bookings.let_in(desk, conn, user_id, principal=None, by=SYSTEM)


command_settings(app, Market, Market)


@app.command(name="import")
def import_theirs(
    *,
    schema: Annotated[str, Parameter(name="--from")],
    dry_run: Annotated[bool, FLAG] = False,
    dsn: str | None = None,
    json: Annotated[bool, FLAG] = False,
) -> int:
    """Import companies, people and running bookings from views over your own tables, each row once.

    Says what became of each row. Its exit code is 1 if a row was refused, or has changed since it was imported.

    Args:
        schema: Where the views are: companies, users, policies, projects, workers, bookings and shifts.
        dry_run: Check and say everything, and change nothing.
        dsn: The database; else MAINSPRING_DSN, DATABASE_URL, or the one of `mainspring up` here.
        json: Print one JSON document and nothing else; how far it is goes to standard error.
    """

    def tell(report: RowReport, number: int, size: int) -> None:
        if not json:
            print(row_line(report), flush=True)
        elif number % PROGRESS_ROWS == 0:
            print(f"{number} of {size} rows", file=sys.stderr, flush=True)

    with _connected(dsn) as (desk, conn):
        reports = run.run(desk, conn, read(conn, schema), dry_run=dry_run, tell=tell)
    if json:
        document = {"dry_run": dry_run, "counts": counted(reports), "rows": reports}
        print_json(document)
    else:
        counts = ", ".join(f"{count} {became}" for became, count in counted(reports).items())
        print(f"{counts or 'there are no rows'}{'; nothing was changed: a dry run' if dry_run else ''}")
    return int(any(report.wrong for report in reports))


def row_line(report: RowReport) -> str:
    """What became of a row, in one line."""
    why = f"{report.field}: {report.reason}" if report.field else report.reason or ""
    return line(f"{report.became:9}  {report.view:9}  {report.external_id or '(none)'}  {why}".rstrip())


def _connected(dsn: str | None) -> AbstractContextManager[tuple[Desk, Conn]]:
    return connected(Market(dsn=dsn))


def _funded(until: datetime | None, zone: str) -> str:
    return both(until, zone) if until is not None else "not yet"


def lines(story: show.Story, *, whole: bool = False) -> Iterator[str]:
    """A story for people; of the shifts that are still to come the next few, unless they want them all."""
    b = story.booking
    yield f"Booking {b.id}: {b.status}, {b.payment_type}, {b.project} ({b.zone}), {b.start_date} to {b.end_date}"
    yield f"worker {b.worker_id}, supervisor {b.supervisor_id or 'none'}, {Money(b.rate_minor, b.currency)} an hour"
    yield f"funded until: {_funded(b.funded_period_end, b.zone)}; now: {both(story.now, b.zone)}"
    yield from ("", "ESCROW", *table(LEDGER, [money(story.ledger)]))
    yield from ("", "SHIFTS")
    begun = sum(s.status not in AHEAD or s.scheduled_start_time < story.now for s in story.shifts)
    shown = story.shifts if whole else story.shifts[: begun + SHOWN_SHIFTS]
    yield from table(("ID", "STATUS", "STARTS", "HOURS", "MONEY", "WHY"), [shift(s, b) for s in shown])
    if len(shown) < len(story.shifts):
        last = both(story.shifts[-1].scheduled_start_time, b.zone)
        yield f"and {len(story.shifts) - len(shown)} more, up to {last}: --all"
    for title, moments in (("HAPPENED", story.happened), ("NEXT", story.next)):
        yield from ("", title)
        told = moments if whole else together(moments)
        rows = [(f"{m.local:%a %Y-%m-%d %H:%M:%S}", f"{m.utc:%Y-%m-%d %H:%M:%S}Z", m.what, m.about) for m in told]
        yield from table((f"IN {b.zone.upper()}", "UTC", "WHAT", "ABOUT"), rows)


def together(moments: Iterable[show.Moment]) -> Iterator[show.Moment]:
    """What happened to many things in a row, such as the shifts of a booking that ends, as one moment."""

    def alike(moment: show.Moment) -> tuple[str, str]:
        return moment.what, NUMBERED.sub("", moment.about)

    for _, group in groupby(moments, alike):
        first, *others = group
        if len(others) >= _MANY:
            first = msgspec.structs.replace(first, about=f"{first.about} (and {len(others)} more like it)")
            others = []
        yield from (first, *others)


def shift(s: show.ShiftView, b: show.BookingView) -> tuple[str, ...]:
    """A shift as a row of a table."""
    parts = ", ".join(f"{Money(part.amount_minor, b.currency)} {part.status}" for part in s.money)
    return str(s.id), s.status, both(s.scheduled_start_time, b.zone), hours(s), parts, s.cancel_reason or ""


def hours(s: show.ShiftView) -> str:
    """What was worked of a shift, as it is paid: `7:30`, and what came on top."""
    if s.paid_minutes is None:
        return ""
    paid, extra = (f"{minutes // 60}:{minutes % 60:02}" for minutes in (s.paid_minutes, s.extra_minutes or 0))
    if not s.extra_minutes:
        return paid
    return f"{paid}, {extra} more {'confirmed' if s.extra_confirmed_at else 'to be confirmed'}"


def money(ledger: Ledger) -> tuple[str, ...]:
    """The ledger as people write money."""
    parts = (
        ledger.charged, ledger.held, ledger.frozen, ledger.released, ledger.refunded, ledger.charged_back,
    )  # fmt: skip
    return tuple(str(Money(part, ledger.currency)) for part in parts)
