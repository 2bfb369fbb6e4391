from __future__ import annotations

import socket
import sys
from dataclasses import fields

import pytest
from tests.contrib.rabbitmq.conftest import Apps
from tests.docs.pages import ROOT, table
from tests.worker.stage import Stage

import mainspring as ms
from mainspring.contrib.rabbitmq import QueueConfig, RabbitMQ, queue_config
from mainspring.errors import ConfigurationError

PAGE = ROOT / "docs" / "settings.md"
VARIABLES = [
    ("enabled", "QUEUE_ENABLED", "true", True),
    ("url", "QUEUE_URL", "amqp://there/", "amqp://there/"),
    ("exchange", "QUEUE_EXCHANGE", "jobs", "jobs"),
    ("routing_key", "QUEUE_ROUTING_KEY", "wake", "wake"),
]
#: The names of the passport's document, as that application maps them to ours.
PASSPORT = {f"BPC_{name}": f"MAINSPRING_{name}" for name in [row[1] for row in VARIABLES] + ["HEALTH_REQUIRE_QUEUE"]}


@pytest.mark.rule("ENG-17.01")
@pytest.mark.anyio
async def test_unless_it_is_switched_on_nobody_is_called(
    stage: Stage, tasks: ms.Registry, app: Apps, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tasks.task
    async def work() -> str:
        return "done"

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        monkeypatch.setenv("MAINSPRING_QUEUE_URL", f"amqp://127.0.0.1:{listener.getsockname()[1]}/")
        block = RabbitMQ()
        made = app(block)
        worker = made.worker()
        await worker.start()
        async with made.async_client() as client:
            job = await client.enqueue(work.job())
            assert await client.result(job.id, timeout=8) == "done"
        await worker.stop()

        with pytest.raises(BlockingIOError):
            listener.accept()
    assert not block.observers
    assert not block.triggers
    assert not block.checks


@pytest.mark.rule("ENG-17.01")
def test_one_setting_switches_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BPC_QUEUE_ENABLED", "true")

    block = RabbitMQ(exchange="bpc", setting_aliases=PASSPORT)

    assert block.config == QueueConfig(enabled=True, exchange="bpc")
    assert (block.config.exchange, block.config.routing_key) == ("bpc", "jobs.trigger")
    assert RabbitMQ().config == QueueConfig(exchange="mainspring")  # the name is nobody else's
    assert [check.name for check in block.checks] == ["queue"]
    assert not block.checks[0].required
    assert block.observers
    assert block.triggers


@pytest.mark.rule("ENG-17.02", "ENG-27.05")
@pytest.mark.parametrize("prefix", ["MAINSPRING", "BPC"])
@pytest.mark.parametrize(("setting", "variable", "text", "value"), VARIABLES)
def test_each_setting_may_have_two_names_and_wins_over_code(
    setting: str, variable: str, text: str, value: object, prefix: str
) -> None:
    said = {"url": "amqp://here/", "exchange": "here", "routing_key": "here"}
    found = queue_config({f"{prefix}_{variable}": text}, PASSPORT, **said)

    assert getattr(found, setting) == value


@pytest.mark.parametrize("row", table(PAGE, "## Broker"))
def test_the_page_of_settings_shows_the_defaults(row: list[str]) -> None:
    setting, default = row[1].strip("`"), row[2]

    for variable in row[0].replace("`", "").split(", "):
        assert queue_config({variable: default}) == QueueConfig()
    assert setting in {field.name for field in fields(QueueConfig)}


@pytest.mark.rule("ENG-27.05")
@pytest.mark.parametrize("variable", [row[1] for row in VARIABLES] + ["HEALTH_REQUIRE_QUEUE"])
def test_two_values_of_one_setting_stop_the_start(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"MAINSPRING_{variable}", "one")
    monkeypatch.setenv(f"BPC_{variable}", "other")

    with pytest.raises(ConfigurationError, match=f"MAINSPRING_{variable} and BPC_{variable}: two names"):
        RabbitMQ(setting_aliases=PASSPORT)


def test_a_name_for_a_setting_that_is_not_the_brokers_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"no setting here \(did you mean 'MAINSPRING_QUEUE_URL'\?\)"):
        RabbitMQ(setting_aliases={"SHOP_BROKER": "MAINSPRING_QUEUE_URI"})


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"url": "http://guest:hush@there/"}, "url of the broker"),
        ({"url": "amqp://guest:hush@there:port/"}, "url of the broker"),
        ({"url": "hush"}, "url of the broker"),
        ({"exchange": ""}, "exchange of the broker"),
        ({"exchange": "é" * 128}, "exchange of the broker"),
        ({"routing_key": "a\nb"}, "routing_key of the broker"),
        ({"required": True}, "it is off: set MAINSPRING_QUEUE_ENABLED"),
    ],
)
def test_what_cannot_work_is_refused_by_name_and_without_its_value(said: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        RabbitMQ(**said)  # type: ignore[arg-type]  # wrong on purpose

    assert "hush" not in str(caught.value)


def test_a_value_that_is_no_switch_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="MAINSPRING_QUEUE_ENABLED or BPC_QUEUE_ENABLED: is not on or off"):
        queue_config({"BPC_QUEUE_ENABLED": "perhaps"}, PASSPORT)


def test_a_missing_library_is_named_only_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aio_pika", None)

    RabbitMQ()
    with pytest.raises(ConfigurationError, match=r"pip install 'mainspring\[rabbitmq\]'"):
        RabbitMQ(enabled=True)


def test_the_password_is_not_shown() -> None:
    told = QueueConfig(url="amqp://worker:hu%24h@there/shop")

    assert "hu" not in repr(told)
    assert told.place == "there:5672/shop"
    assert told.masked("refused worker:hu%24h and hu$h") == "refused worker:*** and ***"


@pytest.mark.parametrize("text", ["amqp://u:p%2fq%40@h/", "amqp://u:p%2Fq%40@h/", "login p/q@ was refused"])
def test_the_password_is_masked_however_it_is_written(text: str) -> None:
    masked = QueueConfig(url="amqp://u:p%2fq%40@h/").masked(text)
    assert "q" not in masked.replace("amqp", "")
