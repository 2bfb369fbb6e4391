"""The password of a database's address is in no error and in no log, however wrongly the address is written."""

from __future__ import annotations

import asyncio
import logging

import pytest

from mainspring import Client, Registry
from mainspring.cli import main
from mainspring.errors import ConfigurationError, MainspringError
from mainspring.worker import Worker

SECRET = "x7Qz9Lm2Vb4Tn6Ws"
ADDRESSES = (
    f"postgress://shop:{SECRET}@localhost/shop",
    f"postgresql://shop:a@{SECRET}@localhost/shop",
    f"postgresql://shop:{SECRET}/a@localhost/shop",
    f"postgresql://shop:a:{SECRET}@localhost:1/shop",
    f"postgresql://shop:a?{SECRET}@localhost:1/shop",
    f"postgresql://shop:%zz{SECRET}@localhost/shop",
    f"postgresql://shop:{SECRET}@[::1/shop",
    f"postgresql://shop:{SECRET}@localhost:1/shop",
    f"postgresql://shop:{SECRET}@localhost/shop?{SECRET}=1",
    f"postgresql://shop:{SECRET}@localhost/shop?passwort={SECRET}",
    f"host=localhost password=a {SECRET}",
    f"host=localhost password='{SECRET}",
    f'host=localhost password=a "{SECRET}" b',
    f"host=localhost port=1 password={SECRET}",
    SECRET,
)


@pytest.mark.rule("ENG-19.07", "ENG-21.08")
@pytest.mark.parametrize("dsn", ADDRESSES)
def test_a_command_does_not_repeat_it(dsn: str, capsys: pytest.CaptureFixture[str]) -> None:
    codes = {main([*command, "--dsn", dsn]) for command in (["job", "list"], ["doctor"], ["schema", "migrate"])}

    said = "".join(capsys.readouterr())
    assert 0 not in codes
    assert "dsn" in said or "connection" in said
    assert SECRET not in said


@pytest.mark.parametrize("dsn", ADDRESSES)
def test_a_client_and_a_worker_do_not_repeat_it(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with asyncio.timeout(0.2):
            await Worker(dsn, Registry("none")).start()

    said = []
    with caplog.at_level(logging.DEBUG, logger="mainspring"):
        for use in (lambda: Client(dsn, timeout=0.1).now(), lambda: asyncio.run(work())):
            with pytest.raises((MainspringError, TimeoutError)) as caught:
                use()
            said += [repr(caught.value), str(caught.value)]

    assert SECRET not in "".join(said) + caplog.text


def test_what_is_wrong_is_said_all_the_same() -> None:
    for dsn, what in (
        (ADDRESSES[0], 'missing "=" after …; write postgresql://user@host/database'),
        (f"postgresql+asyncpg://shop:{SECRET}@db/shop", "names a driver, .* write postgresql://"),
        (ADDRESSES[1], "its host holds an @: write %40"),
        (ADDRESSES[2], "its port is not a number: write %2F"),
    ):
        with pytest.raises(ConfigurationError, match=what):
            Client(dsn)


def test_a_word_that_was_typed_wrongly_is_repeated_without_its_password(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "list", f"postgresql://shop:{SECRET}@db/shop"]) == 2
    assert main(["job", "list", f"password={SECRET}"]) == 2

    said = capsys.readouterr().err
    assert "one word too many" in said
    assert SECRET not in said
