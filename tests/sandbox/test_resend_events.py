"""Resend's stand-in tells what became of mail, by virtual time, into the application's own inbound path."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from tests.sandbox.till import ask

import mainspring as ms
from mainspring.contrib.notify import Outgoing, Receipt, Resend, ResendEvents
from mainspring.testing import Harness
from mainspring_sandbox import Sandbox
from mainspring_sandbox.environment import RESEND_SECRET
from mainspring_sandbox.post import Manner

heard: list[tuple[str, str]] = []


@pytest.fixture(scope="session")
def mainspring_app() -> ms.App:
    tasks, events = ms.Registry("shop"), ResendEvents([RESEND_SECRET])

    @events.on("email.delivered", "email.bounced", "email.complained")
    @tasks.task(name="hear_of_mail")
    async def hear(ctx: ms.Context, *, provider: str, event_id: str) -> None:
        event = await events.event(ctx, event_id)
        heard.append((event.type, event.email_id))

    return ms.App(tasks, blocks=[events], maintenance=False)


def send(sandbox: Sandbox, to: str, key: str = "k1") -> str:
    async def sent() -> Receipt:
        resend = Resend("re_1", sender="shop@example.com", base=f"{sandbox.url}/resend")
        return await resend.send(Outgoing(channel="email", to=to, title="Hi", text="Hello", key=key))

    return str(asyncio.run(sent()).provider_id)


@pytest.mark.parametrize(
    ("to", "types"),
    [
        ("jo@example.com", ["email.delivered"]),
        ("bounced@example.com", ["email.bounced"]),
        ("complained@example.com", ["email.delivered", "email.complained"]),
    ],
)
def test_task_hears_what_became_of_a_mail(
    mainspring: Harness, mainspring_sandbox: Sandbox, to: str, types: list[str]
) -> None:
    heard.clear()
    id = send(mainspring_sandbox, to)
    assert send(mainspring_sandbox, to) == id  # a repeat is told of by nobody

    mainspring.advance(seconds=5)

    assert heard == [(type, id) for type in types]
    kept = mainspring.conn.execute("select count(*) from mainspring.inbound where job_id is null").fetchone()
    assert kept == (1,)  # that it was sent, which nobody wants to know


def test_bounce_may_come_days_later_twice_and_late(mainspring: Harness, mainspring_sandbox: Sandbox) -> None:
    id = send(mainspring_sandbox, "jo@example.com")
    mainspring.advance(timedelta(days=2))
    heard.clear()
    mainspring_sandbox.resend.post.manners.append(Manner(type="email.bounced", copies=2, failures=1))

    told = ask(mainspring_sandbox, "POST", f"/sandbox/resend/emails/{id}/bounce", {"type": "Transient"})
    mainspring.advance(minutes=5)

    assert told.json()["data"]["bounce"]["type"] == "Transient"
    assert heard == [("email.bounced", id)]
    mail = mainspring_sandbox.ledger.get("mail", id)
    assert mail is not None
    assert mail.body["last_event"] == "bounced"
    assert ask(mainspring_sandbox, "POST", "/sandbox/resend/emails/email_none/complain").status_code == 404
