"""Thousands of bookings are due at one instant: `python -m tests.apps.staffing.surge`, or `make surge`.

Real time, a PostgreSQL that writes durably, two workers, the provider's stand-in and the server that takes its
webhooks, each a process of its own. Wednesday's run is fired once. Then every booking must have been charged exactly
once, in no second may more handlers start than the queue's rate allows, over both workers, connections must stay within
the pools, and all of it must take as long as the rate says.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import psycopg
import stripe
from tests.worker.limits.windows import largest

import mainspring as ms
from mainspring.db.schema.migrate import migrate_all
from mainspring.embedded import Cluster
from mainspring.web import Server
from mainspring.web.backend import SIZE
from mainspring.worker import Worker
from mainspring_apps.staffing.market import MIGRATIONS, Market
from mainspring_apps.staffing.payments import settle
from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.settings import Settings
from mainspring_sandbox import Sandbox
from mainspring_sandbox.environment import WEBHOOK_SECRET, environment
from mainspring_sandbox.ledger import Ledger

ROOT: Final = Path(__file__).resolve().parents[3]
ZONE: Final = "America/New_York"
WORKERS: Final = 2
BORROWERS: Final = 100
PATIENCE: Final = 5  # times the time that the rate says
CONFIG: Final = ms.WorkerConfig()
#: What one worker may hold: exchanges, transactions, threads, and one each for services, hints and the scheduler.
POOL: Final = CONFIG.exchanges + CONFIG.transactions + CONFIG.threads + 3
TOLERANCE: Final = 0.1
EVERY: Final = 5.0  # seconds between two lines of progress

CONNECTIONS: Final = """
select count(*) from pg_stat_activity
where datname = current_database() and backend_type = 'client backend' and application_name <> 'surge'
"""
PROGRESS: Final = """
select count(*) filter (where provider_intent_id is not null), count(*) filter (where status = 'Succeeded')
from staffing.pending_payments
"""
HANDLERS: Final = """
select percentile_cont(0.5) within group (order by took), percentile_cont(0.99) within group (order by took)
from (select extract(epoch from f.finished_at - f.started_at)::float8 as took
      from mainspring.finished f join mainspring.job j on j.id = f.id where j.task = 'charge_week') t
"""

SEED: Final = """
insert into staffing.companies (id, kind, name, stripe_customer_id, card_on_file)
  select n, 'Borrower', 'Borrower ' || n, (%(customers)s::text[])[n], 'pm_card_visa'
  from generate_series(1, cardinality(%(customers)s::text[])) n;
insert into staffing.companies (id, kind, name) values (1000000, 'Lender', 'Lender');
insert into staffing.users (id, company_id, role, name, quiet_hours_start, quiet_hours_end)
  values (1, 1000000, 'Worker', 'Somebody', '22:00', '07:00');
insert into staffing.workers (id, company_id, user_id, trade, zip_code)
  select n, 1000000, 1, 'welder', '10001' from generate_series(1, %(bookings)s) n;
insert into staffing.projects (id, company_id, name, timezone)
  select id, id, 'Project ' || id, %(zone)s from staffing.companies where kind = 'Borrower';
insert into staffing.bookings (id, project_id, borrower_company_id, lender_company_id, worker_id, payment_type,
                               start_date, end_date, scheduled_start_time, rate_minor, currency)
  select n, p.id, p.company_id, 1000000, n, 'Weekly_Progress', current_date - 9, current_date + 90, '09:00', 3000, 'USD'
  from generate_series(1, %(bookings)s) n
  join staffing.projects p on p.id = 1 + n %% cardinality(%(customers)s::text[]);
insert into staffing.time_log (booking_id, worker_id, clock_in_time, scheduled_start_time, scheduled_end_time,
                               planned_minutes)
  select n, n, %(start)s, %(start)s, %(start)s::timestamptz + interval '8 hours', 480
  from generate_series(1, %(bookings)s) n;
analyze
"""


@dataclass
class Result:
    """What was measured; `wrong` is what should not be so."""

    bookings: int
    charged: int = 0
    funded: int = 0
    window: int = 0  # most handlers entered in a second
    late: int = 0  # permits that ran out before the handler was entered: the rate is kept, and not reached
    requests: int = 0  # most charges that the provider saw in a second
    connections: int = 0
    pools: int = 0
    seconds: float = 0.0  # from the fire to the last start
    expected: float = 0.0
    p50: float = 0.0  # of a handler
    p99: float = 0.0
    funded_after: float = 0.0  # from the fire to the last payment that is funded
    cpu: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        cpu = " ".join(f"{name}={seconds:.0f}s" for name, seconds in self.cpu.items())
        return (
            f"bookings={self.bookings} charged={self.charged} funded={self.funded} window={self.window}"
            f" late={self.late} requests={self.requests} connections={self.connections}/{self.pools}"
            f" seconds={self.seconds:.1f}/{self.expected:.1f} ({self.seconds / self.expected - 1:+.1%})"
            f" handler p50={1000 * self.p50:.0f}ms p99={1000 * self.p99:.0f}ms funded_after={self.funded_after:.1f}s"
            f" cpu {cpu}"
        )


# -- the processes


def sandbox_process(books: str) -> None:
    """The provider: says where it listens, is told where webhooks go, and keeps its books in a file."""

    async def serve() -> None:
        with Sandbox(path=Path(books)) as sandbox:
            _say({"url": sandbox.url, "smtp_port": sandbox.smtp_port})
            place = await asyncio.to_thread(sys.stdin.readline)
            sandbox.stripe.register(f"{place.strip()}/v1/inbound/stripe", *settle.PAYMENT_EVENTS, secret=WEBHOOK_SECRET)
            _say({})
            await _asked_to_stop()

    asyncio.run(serve())


def server_process(_: str) -> None:
    """Takes the provider's webhooks."""
    server = Server(Market(maintenance=False), port=0, tokens={"STAFFING_TOKEN": secrets.token_hex()})
    _say({"url": server.listen()})
    asyncio.run(server.run())


def worker_process(journal: str) -> None:
    """Works until it is told to stop; says then when its handlers were entered, and how many permits ran out before."""
    app = Market(maintenance=False)
    task = app.registry.get("charge_week")
    entered, handler = list[float](), task.fn

    def charge_week(*args: Any, **kwargs: Any) -> None:
        entered.append(time.time())
        handler(*args, **kwargs)

    task.fn = charge_week
    worker = Worker(app.dsn, app.registry, **app.worker_options(CONFIG))
    asyncio.run(worker.run())
    Path(journal).write_text(json.dumps({"entered": entered, "late": worker.counts["late"]}))
    os._exit(0)


async def _asked_to_stop() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


class Part:
    """Such a process, seen from here."""

    def __init__(self, name: str, env: dict[str, str], *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.apps.staffing.surge", "--part", name, *arguments]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=ROOT, env=os.environ | env, stdin=pipe, stdout=pipe, text=True)
        self.cpu = 0.0

    def heard(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a process of the surge has ended")
        found: dict[str, Any] = json.loads(line)
        return found

    def told(self, line: str) -> None:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)

    def stop(self) -> None:
        """Ask it to stop, and note how much it has worked."""
        if self.process.returncode is not None:
            return
        self.process.terminate()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            pid, status, used = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                self.process.returncode = os.waitstatus_to_exitcode(status)
                self.cpu = used.ru_utime + used.ru_stime
                return
            time.sleep(0.02)
        self.process.kill()
        self.process.wait()


@dataclass
class Stage:
    """Everybody who takes part."""

    bank: stripe.StripeClient
    parts: dict[str, Part]


@contextmanager
def stage(dsn: str, folder: Path, workers: int) -> Iterator[Stage]:
    """The provider, the server and the workers, for the length of the block."""
    found: dict[str, Part] = {}
    try:
        found["sandbox"] = sandbox = Part("sandbox", {}, str(folder / "books"))
        about = sandbox.heard()
        env = environment(about["url"], about["smtp_port"]) | {"MAINSPRING_DSN": dsn}
        found["server"] = server = Part("server", env)
        sandbox.told(server.heard()["url"])
        sandbox.heard()
        for number in range(workers):
            found[f"worker{number}"] = Part("worker", env, str(folder / f"entered{number}"))
        bank = stripe.StripeClient("sk_test_sandbox", base_addresses={"api": f"{about['url']}/stripe"})
        yield Stage(bank, found)
    finally:
        for part in reversed(found.values()):
            part.stop()


# -- the surge


def run(
    dsn: str, folder: Path, *, bookings: int, workers: int = WORKERS, say: Callable[[str], object] = lambda _: None
) -> Result:
    """Fire, watch, and check."""
    result = Result(bookings, pools=workers * POOL + SIZE, expected=bookings / Settings().charges_per_second)
    with psycopg.connect(dsn, autocommit=True, application_name="surge") as conn:
        migrate_all(conn, [MIGRATIONS])
        with stage(dsn, folder, workers) as on, ms.Client(dsn) as client:
            seed(conn, on.bank, bookings)
            _until(lambda: len(client.workers()) == workers and _zone_is_known(conn), 90)
            fired = time.time()
            client.schedules.run("weekly-payments", zone=ZONE, reason="the surge", conn=conn)
            watch(conn, result, fired, say)
        measure(conn, result, fired)
    result.cpu = {name: part.cpu for name, part in on.parts.items()}
    journals = [json.loads((folder / f"entered{number}").read_text()) for number in range(workers)]
    result.late = sum(journal["late"] for journal in journals)
    check(result, [at for journal in journals for at in journal["entered"]], fired, folder / "books")
    return result


def seed(conn: psycopg.Connection[Any], bank: stripe.StripeClient, bookings: int) -> None:
    """Borrowers with a card, and bookings with one shift in the week that is due."""
    customers = [bank.v1.customers.create().id for _ in range(min(BORROWERS, bookings))]
    ((now,),) = conn.execute("select mainspring.now()").fetchall()
    start = weeks.due_week(now, ZONE, Settings()).start + timedelta(hours=9)
    about = {"customers": customers, "bookings": bookings, "zone": ZONE, "start": start}
    for statement in SEED.split(";"):
        conn.execute(statement.encode(), about)


def watch(conn: psycopg.Connection[Any], result: Result, fired: float, say: Callable[[str], object]) -> None:
    """Look every tenth of a second at connections, and now and then at how far it is, until all is funded."""
    deadline = time.monotonic() + 60 + PATIENCE * result.expected
    spoke = 0.0
    while True:
        ((connections,),) = conn.execute(CONNECTIONS).fetchall()
        result.connections = max(result.connections, connections)
        if time.monotonic() >= spoke + EVERY:
            spoke = time.monotonic()
            ((charged, result.funded),) = conn.execute(PROGRESS).fetchall()
            say(f"{time.time() - fired:.0f} s: {charged} sent, {result.funded} funded, {connections} connections")
            if result.funded >= result.bookings or spoke > deadline:
                return
        time.sleep(0.1)


def measure(conn: psycopg.Connection[Any], result: Result, fired: float) -> None:
    """What the database knows."""
    ((result.p50, result.p99),) = conn.execute(HANDLERS).fetchall()
    query = "select extract(epoch from max(settled_at))::float8 from staffing.pending_payments"
    ((last,),) = conn.execute(query).fetchall()
    result.funded_after = last - fired if last is not None else 0.0
    failed = conn.execute(
        "select state, count(*) from mainspring.jobs where state <> 'succeeded' group by 1"
    ).fetchall()
    if unfinished := {state: count for state, count in failed if state in ("failed", "dead", "retrying")}:
        result.wrong.append(f"jobs did not succeed: {unfinished}")


def check(result: Result, entered: Sequence[float], fired: float, books: Path) -> None:
    """What the handlers and the provider know, and what it should be."""
    ledger = Ledger(books)
    charges = Counter(entry.body["metadata"]["booking_id"] for entry in ledger.find("stripe.payment_intent"))
    asked = ledger.find("stripe.request", method="POST", path="/v1/payment_intents")
    ledger.close()
    result.charged = len(charges)
    result.window, result.requests = largest(entered, 1.0), largest([one.at.timestamp() for one in asked], 1.0)
    result.seconds = max(entered, default=fired) - fired
    late = abs(result.seconds / result.expected - 1)
    for wrong, words in (
        (len(charges) != result.bookings, f"{len(charges)} of {result.bookings} bookings were charged"),
        (max(charges.values(), default=1) > 1, f"{len(charges - Counter(dict.fromkeys(charges, 1)))} charged twice"),
        (result.funded != result.bookings, f"{result.funded} of {result.bookings} weeks were funded"),
        (result.window > Settings().charges_per_second, f"{result.window} handlers started in a second"),
        (result.connections > result.pools, f"{result.connections} connections, and pools of {result.pools}"),
        (late > TOLERANCE, f"the starts took {result.seconds:.1f} s, not {result.expected:.1f} s"),
    ):
        if wrong:
            result.wrong.append(words)


def _zone_is_known(conn: psycopg.Connection[Any]) -> bool:
    query = "select from mainspring.schedule_zone where schedule = 'weekly-payments' and zone = %s"
    return conn.execute(query, [ZONE]).fetchone() is not None


def _until(so: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bookings", type=int, default=10_000)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("path", nargs="?", help=argparse.SUPPRESS)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    if given.part is not None:
        {"sandbox": sandbox_process, "server": server_process, "worker": worker_process}[given.part](given.path)
        return 0
    with tempfile.TemporaryDirectory(prefix="mainspring-surge-") as folder:
        Path(folder).chmod(0o755)  # for the account that runs PostgreSQL when we are root
        cluster = Cluster(Path(folder) / "pg")
        cluster.start()
        try:
            cluster.ensure_database("surge")
            result = run(
                cluster.dsn("surge"),
                Path(folder),
                bookings=given.bookings,
                say=lambda line: sys.stderr.write(f"{line}\n"),
            )
        finally:
            cluster.remove()
    sys.stdout.write("\n".join([*result.wrong, f"{result}\n"]))
    return int(bool(result.wrong))


if __name__ == "__main__":
    raise SystemExit(main())
