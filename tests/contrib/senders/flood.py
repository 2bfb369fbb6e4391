"""Notifications under faults: `python -m tests.contrib.senders.flood`, or `make deliveries`.

Mail over SMTP, SMS over Twilio's API and push messages go through a real worker to the stand-ins. There a fifth of the
calls goes wrong: errors, slowness, silence, and lines that break after the message was taken. Some addresses are wrong.
Retry pauses pass on the virtual clock. Afterwards each notification must be logged, and be delivered or stand in the
dead letter; and no provider may hold more repeats than it broke lines.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from datetime import time as of_day
from pathlib import Path
from typing import Any, Final

import psycopg
from tests.databases import fresh_database

import mainspring as ms
from mainspring.config import WorkerConfig
from mainspring.contrib.notify import Channel, Notify, Outgoing, Receipt, Recipient, Sender, Template
from mainspring.contrib.notify.push import Push
from mainspring.contrib.notify.smtp import Smtp
from mainspring.contrib.notify.twilio import Twilio
from mainspring.embedded import VOLATILE, Cluster
from mainspring.virtual.clock import Clock
from mainspring_sandbox import Sandbox
from mainspring_sandbox.faults import Fault

BEGIN: Final = datetime(2026, 3, 2, 12, tzinfo=UTC)
CHANNELS: Final[tuple[Channel, ...]] = ("email", "sms", "push")
PROVIDERS: Final = ("smtp", "twilio", "push")
KINDS: Final = ("error", "slow", "timeout", "drop")
FAULTY: Final = 0.2  # of the calls
WRONG: Final = 100  # every so many recipients have addresses that nobody has
PATIENCE: Final = 10.0  # seconds, as in production
LONGEST_PAUSE: Final = timedelta(minutes=31)
ROUNDS: Final = 60
BATCH: Final = 500


@dataclass(frozen=True)
class Result:
    notifications: int
    delivered: int
    dead: int
    duplicates: int
    drops: int
    late: int  # taken while we hung up, because the machine was busy: a line that we broke ourselves
    seconds: float
    faults: dict[str, int]
    wrong: list[str]

    def __str__(self) -> str:
        counts = f"notifications={self.notifications} delivered={self.delivered} dead={self.dead}"
        return f"{counts} duplicates={self.duplicates} drops={self.drops} seconds={self.seconds:.0f}"


class Timed:
    """A sender whose time-outs are counted."""

    def __init__(self, sender: Sender) -> None:
        self.name, self.channel, self.find, self.close = sender.name, sender.channel, sender.find, sender.close
        self._sender, self.timeouts = sender, 0

    async def send(self, message: Outgoing) -> Receipt:
        try:
            return await self._sender.send(message)
        except ms.Failure as error:
            self.timeouts += error.code == "TIMEOUT"
            raise


class Time:
    """The database's virtual time, for the stand-ins too: one of them is asked what it took since when."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._clock = Clock(conn)
        self.now = self._clock.set(BEGIN)

    def advance(self, span: timedelta) -> None:
        self.now = self._clock.advance(span)


async def people(conn: Any, org: str, ids: Sequence[str]) -> Iterable[Recipient]:
    """Recipients as an application has them: here, by their number."""
    return [_person(int(id)) for id in ids]


def _person(number: int) -> Recipient:
    wrong = number % WRONG == WRONG - 1
    return Recipient(
        recipient_id=str(number),
        email=f"bounce@{number}.example" if wrong else f"r{number}@example.com",
        phone="+15005550001" if wrong else f"+4930{number:07}",
        push_token=f"gone-{number}" if wrong else f"device-{number}",
        quiet_from=of_day(0),
        quiet_to=of_day(0),
    )


def _senders(sandbox: Sandbox, patience: float) -> list[Timed]:
    smtp = Smtp("127.0.0.1", sandbox.smtp_port, tls="none", sender="a@b.example", timeout=patience, connections=50)
    twilio = Twilio("AC1", "token", sender="+4930901820", base=f"{sandbox.url}/twilio", timeout=patience)
    return [Timed(smtp), Timed(twilio), Timed(Push(f"{sandbox.url}/push", token="token", timeout=patience))]


def _notify(senders: Sequence[Timed], patience: float) -> Notify:
    return Notify(
        senders=senders,
        templates=[Template("news", "News", "There are news for you.", html="<p>News</p>", channels=CHANNELS)],
        recipients=people,
        spam=None,
        timeout=2 * patience,  # the senders' own comes first
        # A fifth of the calls fails, and yet the providers are not down.
        breakers=[ms.breaker(name, rate=0.95, calls=200) for name in PROVIDERS],
    )


def run(dsn: str, *, count: int, seed: int, concurrency: int = 100, patience: float = PATIENCE) -> Result:
    """Send, and check."""
    began = time.monotonic()
    with psycopg.connect(dsn, autocommit=True) as conn:
        clock = Time(conn)
        with Sandbox(clock=lambda: clock.now, seed=seed) as sandbox:
            sandbox.faults.set(*_faults())
            senders = _senders(sandbox, patience)
            asyncio.run(_send(dsn, _notify(senders, patience), clock, conn, count, concurrency))
            return _checked(conn, sandbox, senders, count, time.monotonic() - began)


def _faults() -> Iterable[Fault]:
    """Each kind strikes a quarter of those calls; a line breaks only where something is sent."""
    for provider in PROVIDERS:
        left = 1.0
        for kind in KINDS:
            share = FAULTY / len(KINDS)
            method = "POST" if kind == "drop" and provider != "smtp" else ""
            yield Fault(provider=provider, kind=kind, rate=share / left, status=503, seconds=0.05, method=method)
            left -= share


async def _send(
    dsn: str, notify: Notify, clock: Time, conn: psycopg.Connection[Any], count: int, concurrency: int
) -> None:
    app = ms.App(ms.Registry("flood"), dsn=dsn, blocks=[notify], maintenance=False)
    async with app.async_client() as client:
        for channel, many in zip(CHANNELS, _thirds(count), strict=True):
            for first in range(0, many, BATCH):
                to = [str(number) for number in range(first, min(first + BATCH, many))]
                await notify.send(to, "news", channels=[channel], by=client)
    settings: dict[str, Any] = {"wakeups": False, "poll_interval": timedelta(milliseconds=20), "scheduler": False}
    for _ in range(ROUNDS):
        await app.worker(WorkerConfig(concurrency=concurrency, transactions=20, **settings)).drain()
        if not conn.execute("select from mainspring.waiting limit 1").fetchall():
            return
        clock.advance(LONGEST_PAUSE)


def _thirds(count: int) -> list[int]:
    return [count // 3 + (number < count % 3) for number in range(3)]


def _checked(
    conn: psycopg.Connection[Any], sandbox: Sandbox, senders: Sequence[Timed], count: int, seconds: float
) -> Result:
    wrong: list[str] = []
    log = conn.execute(
        "select l.channel, l.recipient_id, l.status, j.state from mainspring.notification_log l"
        " join mainspring.jobs j on j.id = l.job_id"
    ).fetchall()
    if len(log) != count:
        wrong.append(f"{count} were asked for, {len(log)} are logged")
    delivered = {(channel, int(who)) for channel, who, status, state in log if status == "sent"}
    dead = {(channel, int(who)) for channel, who, status, state in log if state in ("failed", "dead")}
    if len(delivered | dead) != len(log) or delivered & dead:
        wrong.append("some are neither delivered nor in the dead letter, or both")
    held = _held(sandbox)
    if delivered - held.keys():
        wrong.append(f"{len(delivered - held.keys())} are called sent that no provider holds")
    duplicates, struck = Counter[str](), sandbox.faults.struck
    for (channel, _), times in held.items():
        duplicates[channel] += times - 1
    late = {one.channel: max(one.timeouts - struck[one.name, "timeout"], 0) for one in senders}
    wrong += [
        f"{one.channel}: {duplicates[one.channel]} repeats, {struck[one.name, 'drop']} broken lines"
        for one in senders
        if duplicates[one.channel] > struck[one.name, "drop"] + late[one.channel]
    ]
    drops = sum(times for (_, kind), times in struck.items() if kind == "drop")
    faults = {f"{provider} {kind}": times for (provider, kind), times in sorted(struck.items())}
    counts = len(log), len(delivered), len(dead), duplicates.total(), drops, sum(late.values())
    return Result(*counts, seconds, faults, wrong)


def _held(sandbox: Sandbox) -> Counter[tuple[Channel, int]]:
    """How often the providers hold each message."""
    found: Counter[tuple[Channel, int]] = Counter()
    for entry in sandbox.ledger.find("mail"):
        found["email", int(entry.body["to"][0].removeprefix("r").partition("@")[0])] += 1
    for entry in sandbox.ledger.find("sms"):
        found["sms", int(entry.body["to"].removeprefix("+4930"))] += 1
    for entry in sandbox.ledger.find("push"):
        found["push", int(entry.body["to"].removeprefix("device-"))] += 1
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    sys.stderr.write(f"seed={given.seed}\n")
    logging.disable(logging.WARNING)  # thousands of attempts fail, as they shall
    with tempfile.TemporaryDirectory(prefix="mainspring-flood-") as folder:
        Path(folder).chmod(0o755)  # for the account that runs PostgreSQL when we are root
        cluster = Cluster(Path(folder) / "pg", settings=VOLATILE)
        cluster.start()
        try:
            with fresh_database(cluster) as database:
                result = run(database.dsn, count=given.count, seed=given.seed)
        finally:
            cluster.remove()
    faults = ", ".join(f"{name} {times}" for name, times in result.faults.items())
    sys.stderr.write(f"{faults}; taken while we hung up {result.late}\n")
    sys.stdout.write("\n".join([*result.wrong, f"{result}\n"]))
    return int(bool(result.wrong))


if __name__ == "__main__":
    raise SystemExit(main())
