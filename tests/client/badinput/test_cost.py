"""A payload made to cost much costs little: to check, to refuse, and to show."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

import psycopg
import pytest
from tests.db.engine import Engine

from mainspring import ValidationError
from mainspring.text.document import MAX_BYTES, check_payload
from mainspring.uuid7 import uuid7

#: Each as long as a payload may be, for whoever tries every beginning with every end.
HOSTILE: Final = {
    "quotes outside of strings": "{" * 70 + '\\"' * (MAX_BYTES // 2 - 40),
    "lines outside of strings": "{" * 70 + '"\\\n' * (MAX_BYTES // 3 - 40),
    "a string without an end": "{" * 70 + '"' + "\\" * (MAX_BYTES - 100),
    "brackets in a string": '{"a": "' + "[{" * (MAX_BYTES // 2 - 10) + '"}',
    "NUL at the end": '{"a": "' + "x" * (MAX_BYTES - 20) + '\\u0000"}',
    "NUL after quotes": '{"a": "' + '\\"' * (MAX_BYTES // 2 - 10) + '\\u0000"}',
    "NUL after what looks like fields": '{"a": "' + '\\"a\\": \\"' * (MAX_BYTES // 10 - 10) + '\\u0000"}',
    "half a secret": '{"a": "' + "eyJaaaaaaaa.aaaaaaaa" * (MAX_BYTES // 20 - 10) + '"}',
    "many beginnings of keys": '{"a": "' + "-----BEGIN " * (MAX_BYTES // 11 - 10) + ' private key"}',
    "many names": "{" + ",".join(f'"secrets{n}":1' for n in range(MAX_BYTES // 20)) + "}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_the_client_looks_through_it_once(name: str) -> None:
    raw = HOSTILE[name].encode()
    assert len(raw) <= MAX_BYTES
    started = time.process_time()

    with suppress(ValidationError):
        check_payload(raw)

    assert time.process_time() - started < 2


@pytest.mark.parametrize("name", HOSTILE)
def test_the_database_looks_through_it_once(engine: Engine, name: str) -> None:
    job = f'[{{"id": "{uuid7()}", "task": "t", "payload": {HOSTILE[name]}}}]'
    engine.conn.execute("set statement_timeout = '3 s'")

    answer: str | None
    try:
        engine.rows("select * from mainspring.enqueue_many(%s::text::json)", job)
        answer = "00000"
    except psycopg.Error as error:
        answer = error.sqlstate

    assert answer in ("00000", "MS001", "22P02")  # taken, refused, or no JSON; never broken off
