"""`mainspring outbox`: what the sandbox's providers received, and what shall go wrong there.

It shows everything, addresses and texts too: nothing of it left this machine.
"""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

import msgspec
from cyclopts import App, Parameter

from mainspring.cli import output
from mainspring.cli.sandbox import SANDBOX_FILE
from mainspring.errors import ConfigurationError, UnknownName, ValidationError

app = App(name="outbox", help="See what the sandbox received, and break things there.", help_format="plaintext")

COLUMNS = ("ID", "KIND", "AT", "TO", "WHAT")
FAULTS = ("PROVIDER", "KIND", "RATE", "TIMES", "STATUS", "SECONDS", "PATH")
NO_SANDBOX = "no sandbox runs here: give --sandbox, set MAINSPRING_SANDBOX, or run `mainspring sandbox run`"
OUTBOX_TIMEOUT_S = 10.0
MOST_ENTRIES = 1000  # entries


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Desk:
    """Where the sandbox is."""

    sandbox: str | None = None
    """Its address; else MAINSPRING_SANDBOX, or the one that runs in this directory."""

    json: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Print one JSON document and nothing else."""

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Ask it, or say that it is not there."""
        base = self.sandbox or os.environ.get("MAINSPRING_SANDBOX") or _here()
        if not base.startswith(("http://", "https://")):
            raise ConfigurationError("sandbox: is not an address such as http://127.0.0.1:8025")
        asked = urlencode({name: value for name, value in query.items() if value is not None}, doseq=True)
        request = urllib.request.Request(  # noqa: S310 (checked above)
            f"{base.rstrip('/')}/sandbox/{path}?{asked}",
            data=None if body is None else msgspec.json.encode(body),
            headers={} if body is None else {"Content-Type": "application/json"},
            method=method,
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=OUTBOX_TIMEOUT_S) as answer:
                return msgspec.json.decode(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return self._refused(error)
        except (OSError, msgspec.DecodeError):
            raise ConfigurationError(f"sandbox: nothing answers at {base}; {NO_SANDBOX}") from None

    def _refused(self, error: urllib.error.HTTPError) -> Any:
        if error.code == 404:
            return None
        try:
            said = msgspec.json.decode(error.read())["error"]
        except (msgspec.DecodeError, KeyError, TypeError):
            said = f"the sandbox answered {error.code}"
        raise ValidationError(str(said), field="fault")


HERE = Desk()


@app.command(name="list")
def list_entries(*, kind: list[str] | None = None, limit: int = 50, desk: Desk = HERE) -> None:
    """Show what left the house: mail, SMS, push, money, webhooks, invoices; the newest first.

        mainspring outbox list --kind mail --kind sms

    Args:
        kind: Only these kinds, such as mail, sms, push, charge, transfer, refund, webhook, invoice.
        limit: At most so many, up to 1000.
        desk: The sandbox.
    """
    if not 1 <= limit <= MOST_ENTRIES:
        raise ValidationError(f"limit: is not between 1 and {MOST_ENTRIES}", field="limit")
    found = desk.ask("GET", "outbox", kind=kind or None, limit=limit)
    if desk.json:
        return output.as_json(found, secrets=False)
    nothing = f"The outbox has no {' and no '.join(kind)}." if kind else "The outbox is empty."
    return output.table(COLUMNS, map(_row, found), nothing)


@app.command
def show(id: str, *, desk: Desk = HERE) -> None:
    """Show one entry whole.

    Args:
        id: Its id, as `outbox list` shows it.
        desk: The sandbox.
    """
    found = desk.ask("GET", f"outbox/{quote(id, safe='')}")
    if found is None:
        raise UnknownName(f"id: the outbox has no entry {id}", field="id")
    if desk.json:
        return output.as_json(found, secrets=False)
    return output.fields(found, secrets=False)


@app.command
def fault(
    provider: str,
    kind: Literal["slow", "error", "timeout", "drop"],
    *,
    rate: float | None = None,
    times: int | None = None,
    status: int | None = None,
    seconds: float | None = None,
    retry_after: int | None = None,
    path: str | None = None,
    desk: Desk = HERE,
) -> None:
    """Let something go wrong at a provider, from now on.

    `slow` answers late, `error` refuses, `timeout` stays silent, and `drop` does what it was asked and breaks the line
    before it says so.

        mainspring outbox fault stripe error --status 503 --rate 0.2
        mainspring outbox fault smtp drop --times 3

    Args:
        provider: Such as stripe, twilio, resend, push, vendus, partner, smtp, smtp.connect, smtp.data.
        kind: What goes wrong.
        rate: For this part of the requests; else all.
        times: So often at the most; `outbox faults` shows how often is left.
        status: What `error` answers; else 500.
        seconds: How late `slow` is; else 1.
        retry_after: The hint that goes with an error.
        path: Only requests whose path holds this; of smtp, the recipient.
        desk: The sandbox.
    """
    if times is not None and times < 1:
        raise ValidationError("times: must be at least 1", field="times")
    given = {"rate": rate, "times": times, "status": status, "seconds": seconds, "path": path}
    given |= {"retry_after": retry_after, "provider": provider, "kind": kind}
    _shown(desk, desk.ask("POST", "faults", {name: value for name, value in given.items() if value is not None}))


@app.command
def faults(*, desk: Desk = HERE) -> None:
    """Show what goes wrong at present.

    Args:
        desk: The sandbox.
    """
    _shown(desk, desk.ask("GET", "faults"))


@app.command
def clear(provider: str | None = None, *, desk: Desk = HERE) -> None:
    """End all faults, or those of one provider; what was received stays.

    Args:
        provider: Only at this one.
        desk: The sandbox.
    """
    _shown(desk, desk.ask("DELETE", "faults", provider=provider))


def _shown(desk: Desk, found: list[dict[str, Any]]) -> None:
    if desk.json:
        return output.as_json(found, secrets=False)
    rows = ([one.get(name.lower()) for name in FAULTS] for one in found)
    return output.table(FAULTS, rows, "Nothing goes wrong.")


def _row(entry: dict[str, Any]) -> tuple[object, ...]:
    said = (entry.get(name) for name in ("subject", "title", "number", "text", "description", "type", "event"))
    what = next((text for text in said if isinstance(text, str) and text), "")
    amount = (
        f"{entry['amount']} {entry.get('currency', '')}".strip() if "amount" in entry else entry.get("amount_gross")
    )
    about = (what, amount, entry.get("status"))
    at = datetime.fromisoformat(str(entry["at"]))
    return entry["id"], entry["kind"], at, _to(entry), " · ".join(str(part) for part in about if part)


def _to(entry: dict[str, Any]) -> object:
    return next((entry[name] for name in ("to", "destination", "url", "customer") if entry.get(name)), None)


def _here() -> str:
    try:
        return str(msgspec.json.decode(SANDBOX_FILE.read_bytes())["url"])
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        raise ConfigurationError(f"sandbox: {NO_SANDBOX}") from None
