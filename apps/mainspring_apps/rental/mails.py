"""The three mails of a booking: each reserved before it is sent, sent under one key, stamped with its job's success."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal

import mainspring as ms
from mainspring.codes import register
from mainspring.contrib.notify import Outgoing, Undeliverable
from mainspring_apps.rental import rounds, store
from mainspring_apps.rental.booking_table import MailKind, sent_at
from mainspring_apps.rental.desk import Desk, log
from mainspring_apps.rental.registry import BOOKING_JOBS, CHECKOUTS, desk_tasks, tasks
from mainspring_apps.rental.rules import documents, links
from mainspring_apps.rental.rules.documents import Facts
from mainspring_apps.rental.rules.letters import flags, letter
from mainspring_apps.rental.store import Conn
from mainspring_apps.rental.texts import TEMPLATES, said

register("INVOICE_NOT_READY", "retryable", "The invoice that a mail brings has not been issued for a day.")

DRY: Final = {"skipped": "SEND_EMAILS"}
PDF_PATH: Final = "/api/invoices"
CREDIT_PATH: Final = "/api/credits"
#: Mails that are told once, beside those of a paid booking.
Notice = Literal["payment_failed", "cancelled", "credit"]


@tasks.task(queue=BOOKING_JOBS, dedupe=rounds.same("send_customer_confirmation"), subject="booking_id")
def send_customer_confirmation(desk: Desk, ctx: ms.SyncContext, *, booking_id: int, round: int = 1) -> Any:
    """Tell the customer that the booking is confirmed."""
    return _send(desk, ctx, booking_id, "confirmation", round)


@tasks.task(queue=BOOKING_JOBS, dedupe=rounds.same("send_internal_confirmation"), subject="booking_id")
def send_internal_confirmation(desk: Desk, ctx: ms.SyncContext, *, booking_id: int, round: int = 1) -> Any:
    """Tell the company of a confirmed booking, and what to look at."""
    return _send(desk, ctx, booking_id, "internal", round)


@tasks.task(
    queue=BOOKING_JOBS,
    dedupe=rounds.same("send_invoice_ready"),
    subject="booking_id",
    snooze_limit=lambda desk: desk.settings.invoice_wait + timedelta(hours=1),
)
def send_invoice_ready(desk: Desk, ctx: ms.SyncContext, *, booking_id: int, round: int = 1) -> Any:
    """Send the customer the link to the invoice, once there is one."""
    return _send(desk, ctx, booking_id, "invoice", round)


@desk_tasks.task(queue=CHECKOUTS, dedupe=ms.dedupe.keep("{notice}:{about}"), subject="booking_id")
def send_notice(desk: Desk, ctx: ms.SyncContext, *, booking_id: int, notice: Notice, about: int) -> Any:
    """Tell the customer once of a payment that failed, of a booking that was cancelled, of a credit note."""
    row: dict[str, Any] = {"booking_id": booking_id, "kind": notice, "round": about}
    key = f"rental:{booking_id}:{notice}:{about}"
    with ctx.transaction() as conn:
        facts = desk.bookings.facts(conn, booking_id)
        if facts is None or facts.customer_email is None:
            return None
        if not desk.settings.send_emails:
            store.do(conn, "skip_mail", **row, job_id=ctx.job.id, key=key)
            return DRY
        store.do(conn, "reserve_mail", **row, job_id=ctx.job.id, key=key)
        data = {**letter(facts), **(_credit(desk, conn, about, facts.customer_email) if notice == "credit" else {})}
    message = TEMPLATES[notice].render(data, language=facts.locale)
    sent = _one(desk, ctx, facts.customer_email, message, key)
    with ctx.complete() as conn:
        store.do(conn, "end_mail", **row, state="sent", provider_id=sent)
    return None


def _credit(desk: Desk, conn: Conn, credit_id: int, to: str) -> Mapping[str, Any]:
    number = store.needed(conn, dict[str, Any], "credit_by_id", credit_id=credit_id)["number"]
    token = links.token(
        desk.links.now.reveal(), credit_id, desk.now(conn), desk.settings.link_life, purpose=links.CREDIT, to=to
    )  # fmt: skip
    return {"Number": number, "Link": f"{desk.settings.app_url}{CREDIT_PATH}/{credit_id}/pdf?t={token}"}


def _send(desk: Desk, ctx: ms.SyncContext, booking_id: int, kind: MailKind, round: int) -> Any:
    key = f"rental:{booking_id}:{kind}:{round}"
    about: dict[str, Any] = {"booking_id": booking_id, "kind": kind, "round": round}
    with ctx.transaction() as conn:
        facts, to = _looked_up(desk, conn, booking_id, kind), _to(desk, conn, booking_id, kind)
        if kind == "invoice" and (facts.invoice_number is None or facts.invoice_pdf_url is None):
            _wait(desk, ctx)
        if not desk.settings.send_emails:
            store.do(conn, "skip_mail", **about, job_id=ctx.job.id, key=key)
            return _skipped(booking_id, kind, DRY)
        if sent_at(facts, kind) is not None or not store.do(conn, "reserve_mail", **about, job_id=ctx.job.id, key=key):
            return _skipped(booking_id, kind, {"skipped": "SENT_BEFORE"})
        now = desk.now(conn)
        if kind == "confirmation" and documents.over(facts, now, desk.settings.zone):
            store.do(conn, "end_mail", **about, state="skipped", provider_id=None)
            return _skipped(booking_id, kind, {"skipped": "RENTAL_OVER"})
        data, language = _data(desk, facts, kind, now), _language(desk, facts, kind)
    message = TEMPLATES[kind].render(data, language=language)
    try:
        sent = [_one(desk, ctx, address, message, f"{key}:{number}") for number, address in enumerate(to, 1)]
    except Exception as error:
        log.warning("email:error", extra={"event": "email:error", "bookingId": booking_id, "mail": kind})
        if isinstance(error, Undeliverable):
            with ctx.transaction() as conn:
                store.do(conn, "end_mail", **about, state="failed", provider_id=None)
        raise
    with ctx.complete() as conn:
        store.do(conn, "end_mail", **about, state="sent", provider_id=sent[0])
        desk.bookings.stamp_mail(conn, booking_id, kind, desk.now(conn))
    log.info("email:sent", extra={"event": "email:sent", "bookingId": booking_id, "mail": kind})
    return None


def _looked_up(desk: Desk, conn: Conn, booking_id: int, kind: MailKind) -> Facts:
    facts = desk.bookings.facts(conn, booking_id)
    if facts is None:
        raise ms.Permanent(f"booking_id: there is no booking {booking_id}", code="VALIDATION_ERROR")
    if facts.status != "CONFIRMED" and kind != "invoice":
        raise ms.Permanent(f"booking {booking_id} is {facts.status}", code="BOOKING_NOT_CONFIRMED")
    return facts


def _to(desk: Desk, conn: Conn, booking_id: int, kind: MailKind) -> Sequence[str]:
    """Whom a mail is for; whose address is not one, is told with the first try (RENT-5.06)."""
    if kind != "internal":
        facts = desk.bookings.facts(conn, booking_id)
        return [] if facts is None or facts.customer_email is None else [facts.customer_email]
    if not desk.settings.email_admin_to:
        raise ms.Permanent("EMAIL_ADMIN_TO: is empty: nobody gets internal mails", code="CONFIG_MISSING")
    return desk.settings.email_admin_to


def _wait(desk: Desk, ctx: ms.SyncContext) -> None:
    """Come back while the invoice is not there, without an attempt; after a day that is an error (RENT-7.03)."""
    if ctx.job.waited >= desk.settings.invoice_wait:
        raise ms.Failure("the invoice has not been issued", code="INVOICE_NOT_READY")
    raise ms.Snooze(desk.settings.invoice_look)


def _skipped(booking_id: int, kind: MailKind, why: Mapping[str, str]) -> Mapping[str, str]:
    about = {"bookingId": booking_id, "mail": kind, **why}
    log.info("email:skipped", extra={"event": "email:skipped", **about})
    return why


def _one(desk: Desk, ctx: ms.SyncContext, to: str, message: Any, key: str) -> str | None:
    """Send to one address, once: a later attempt does not send again what the provider has taken."""
    outgoing = Outgoing(channel="email", to=to, title=message.title, text=message.text, html=message.html, key=key)
    send: Callable[[], str | None] = lambda: desk.mail(outgoing).provider_id  # noqa: E731 (a step takes a function)
    return ctx.step(f"send {key}", send)


def _language(desk: Desk, facts: Facts, kind: MailKind) -> str:
    return desk.settings.ops_locale if kind == "internal" else facts.locale


def _data(desk: Desk, facts: Facts, kind: MailKind, now: Any) -> Mapping[str, Any]:
    """What a mail says; a link is made for as long as it lives from now on."""
    settings, values = desk.settings, letter(facts)
    if kind == "internal":
        shown = [said(flag, settings.ops_locale) for flag in flags(facts, settings, now)]
        return {**values, "Link": f"{settings.app_url}/rental/bookings/{facts.id}", "Flags": "; ".join(shown) or "-"}
    if kind == "invoice":
        token = links.token(
            desk.links.now.reveal(), facts.id, now, settings.link_life, to=facts.customer_email or ""
        )  # fmt: skip
        link = f"{settings.app_url}{PDF_PATH}/{facts.id}/pdf?t={token}"
        return {**values, "Link": link, "Number": facts.invoice_number}
    return values
