"""Names, messages and fields come from anybody: nobody writes a log line in another's name, or drives a terminal."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from tests.databases import Database
from tests.logged import logged

from mainspring import Client
from mainspring.declare.caller import Caller, calling
from mainspring.events import DatabaseAway, Event, JobFailed, QueuePaused
from mainspring.observe import JsonFormatter, Log, TerminalFormatter

FORGED = "12:00:00 INFO    job.succeeded pay"
HOSTILE = f"boom\n{FORGED}\r{FORGED}\u2028{FORGED}\x1b[2J\x9b2J\u202e"


@contextmanager
def written(formatter: logging.Formatter) -> Iterator[tuple[logging.Logger, io.StringIO]]:
    stream, logger = io.StringIO(), logging.getLogger("hostile")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    handler.handleError = lambda record: pytest.fail("the record was lost")  # type: ignore[method-assign]  # for a test
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield logger, stream
    finally:
        logger.removeHandler(handler)
        logger.propagate = True


def harmless(text: str) -> bool:
    """Whether every line is its author's own, and nothing in it is obeyed by a terminal."""
    lines = text.removesuffix("\n").split("\n")
    return not any(line.startswith(FORGED) for line in lines) and not set(text) & set("\r\x1b\x9b\u2028\u202e")


@pytest.mark.parametrize(
    "event",
    [
        JobFailed(
            UUID(int=7), f"pay{HOSTILE}", f"q:{HOSTILE}", "acme", None, HOSTILE, HOSTILE, 3, subject={"to": HOSTILE},
            code=HOSTILE, message=HOSTILE, final=True,
        ),
        DatabaseAway("worker", HOSTILE),
        QueuePaused("q:default", HOSTILE, HOSTILE),
    ],
    ids=lambda event: event.name,
)  # fmt: skip
@pytest.mark.parametrize("plain", [True, False], ids=["words", "json"])
def test_an_event_is_one_line(event: Event, plain: bool) -> None:
    with logged(TerminalFormatter() if plain else JsonFormatter()) as stream:
        Log()([event])

    assert stream.getvalue().count("\n") == 1
    assert not plain or harmless(stream.getvalue())


def test_a_record_in_words_is_one_line_and_what_is_below_it_is_indented() -> None:
    with written(TerminalFormatter()) as (log, stream):
        log.warning("said: %s", HOSTILE)
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            log.exception("caught", stack_info=True)

    lines = stream.getvalue().splitlines()
    assert harmless(stream.getvalue())
    assert sum(not line.startswith("  ") for line in lines) == 2
    assert any("ValueError: boom" in line for line in lines)


def test_the_fields_of_a_line_are_its_own_whatever_the_extra_ones_are_called() -> None:
    forged = {"level": "info", "at": "never", "logger": "x", "job_id": "x", "org_id": "globex", "exception": "x"}
    with written(JsonFormatter()) as (log, stream), calling(Caller(org_id="acme", request_id="r")):
        try:
            raise ValueError("real")
        except ValueError:
            log.exception("caught", extra={**forged, "a\nb": HOSTILE})

    line: dict[str, Any] = json.loads(stream.getvalue())
    assert stream.getvalue().count("\n") == 1
    assert (line["level"], line["org_id"], line["logger"]) == ("error", "acme", "hostile")
    assert line["at"] != "never"
    assert "ValueError: real" in line["exception"]


class Mute:
    def __str__(self) -> str:
        raise RuntimeError("password=hunter2")


@pytest.mark.parametrize("formatter", [JsonFormatter(), TerminalFormatter()], ids=["json", "words"])
def test_what_cannot_be_printed_costs_no_line_and_tells_no_secret(formatter: logging.Formatter) -> None:
    with written(formatter) as (log, stream):
        log.warning("with extra", extra={"value": Mute(), "many": 2**100})
        log.warning("%d apples", "password=hunter2")
        log.warning("%s", Mute())

    assert stream.getvalue().count("\n") == 3
    assert "hunter2" not in stream.getvalue()


def test_why_a_queue_was_paused_is_told_without_secrets(database: Database) -> None:
    told = list[Event]()
    with Client(database.dsn, observers=[told.extend]) as client:
        client.pause("q:default", reason="the key sk_live_0123456789 leaked")

    assert [event.reason for event in told if isinstance(event, QueuePaused)] == ["the key *** leaked"]
