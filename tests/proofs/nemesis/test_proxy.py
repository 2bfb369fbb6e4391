"""The proxy does to a connection what it says, so that a run that finds nothing has tried something."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest
from tests.databases import Database
from tests.proofs.nemesis.proxy import Proxy


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    proxy = Proxy(database.dsn)
    yield proxy
    proxy.close()


def connect(proxy: Proxy) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(proxy.dsn, autocommit=True, connect_timeout=30)


def test_a_long_way_delays_each_answer(proxy: Proxy) -> None:
    with connect(proxy) as conn:
        proxy.delay = 0.15
        began = time.monotonic()
        assert conn.execute("select 1").fetchone() == (1,)
        assert time.monotonic() - began >= 0.3


def test_a_cut_loses_every_connection_and_new_ones_work(proxy: Proxy) -> None:
    with connect(proxy) as conn:
        proxy.cut()
        with pytest.raises(psycopg.OperationalError):
            conn.execute("select 1")
    with connect(proxy) as conn:
        assert conn.execute("select 1").fetchone() == (1,)


def test_an_answer_is_dropped_after_the_commit(proxy: Proxy, database: Database) -> None:
    with database.connect() as direct:
        direct.execute("create table said (word text)")
        with connect(proxy) as conn:
            proxy.drop(1)
            with pytest.raises(psycopg.OperationalError):
                conn.execute("insert into said values (%s)", ["x" * 200])
        assert proxy.counts["dropped"] == 1
        assert direct.execute("select count(*) from said").fetchone() == (1,)


def test_silence_answers_nobody_until_it_ends_with_a_cut(proxy: Proxy) -> None:
    with connect(proxy) as conn:
        proxy.silence()
        began = time.monotonic()
        proxy._loop.call_soon_threadsafe(proxy._loop.call_later, 0.3, proxy.speak)
        with pytest.raises(psycopg.OperationalError):
            conn.execute("select 1")
        assert time.monotonic() - began >= 0.25
