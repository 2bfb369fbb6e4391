from __future__ import annotations

from datetime import timedelta

import pytest

import mainspring as ms
from mainspring.config import _WORKER, WorkerConfig, database, retention, worker_config
from mainspring.errors import ConfigurationError


@pytest.mark.rule("ENG-6.01", "ENG-6.02", "ENG-16.02", "ENG-16.09")
def test_the_defaults_are_those_of_the_rules() -> None:
    config = WorkerConfig()

    assert (config.lease, config.renew_every) == (timedelta(seconds=60), timedelta(seconds=30))
    assert config.poll_interval == timedelta(milliseconds=1000)
    assert config.grace == timedelta(seconds=30)
    assert worker_config(env={}) == config


@pytest.mark.rule("ENG-6.03")
def test_a_lease_shorter_than_two_renewals_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="lease"):
        WorkerConfig(lease=timedelta(seconds=60), renew_every=timedelta(seconds=40))
    with pytest.raises(ConfigurationError, match="lease"):
        worker_config(env={"MAINSPRING_LEASE_SECONDS": "60", "MAINSPRING_LEASE_RENEW_SECONDS": "40"})

    assert WorkerConfig(lease=timedelta(seconds=60), renew_every=timedelta(seconds=30))


#: The names of the passport's document, as that application maps them to ours.
PASSPORT = {
    "BPC_JOBS_LEASE_SECONDS": "MAINSPRING_LEASE_SECONDS",
    "BPC_JOBS_LEASE_RENEW_SECONDS": "MAINSPRING_LEASE_RENEW_SECONDS",
    "BPC_JOBS_POLL_INTERVAL_MS": "MAINSPRING_POLL_INTERVAL_MS",
}


@pytest.mark.rule("ENG-6.01", "ENG-6.02", "ENG-16.02", "ENG-27.05")
def test_an_application_has_its_own_names_of_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(PASSPORT, ("20", "5", "250"), strict=True):
        monkeypatch.setenv(name, value)

    config = ms.App(ms.Registry("passport"), setting_aliases=PASSPORT).worker_settings()

    assert (config.lease, config.renew_every) == (timedelta(seconds=20), timedelta(seconds=5))
    assert config.poll_interval == timedelta(milliseconds=250)
    assert ms.App(ms.Registry("shop")).worker_settings() == WorkerConfig()  # nobody else's


def test_an_application_may_rename_what_its_clients_and_maintenance_read(monkeypatch: pytest.MonkeyPatch) -> None:
    aliases = {"SHOP_WAIT": "MAINSPRING_ANSWERED_WITHIN_SECONDS", "SHOP_CLEANS": "MAINSPRING_MAINTENANCE"}
    monkeypatch.setenv("SHOP_WAIT", "7")
    monkeypatch.setenv("SHOP_CLEANS", "off")

    app = ms.App(ms.Registry("shop"), setting_aliases=aliases)

    assert app.patience() == 7
    assert len(app.registry) == 0
    assert retention(env={"SHOP_KEEPS": "3"}, aliases={"SHOP_KEEPS": "MAINSPRING_KEEP_FIRES_DAYS"}).fires.days == 3


def test_a_name_for_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="SHOP_LEASE stands for MAINSPRING_LEASE_SECOND, which is no setting"):
        ms.App(ms.Registry("shop"), setting_aliases={"SHOP_LEASE": "MAINSPRING_LEASE_SECOND"})


@pytest.mark.rule("ENG-27.05")
def test_two_names_of_one_setting_may_agree_but_not_differ() -> None:
    same = {"MAINSPRING_LEASE_SECONDS": "90", "BPC_JOBS_LEASE_SECONDS": "90"}
    assert worker_config(env=same, aliases=PASSPORT).lease == timedelta(seconds=90)

    with pytest.raises(ConfigurationError, match="MAINSPRING_LEASE_SECONDS and BPC_JOBS_LEASE_SECONDS"):
        worker_config(env=same | {"BPC_JOBS_LEASE_SECONDS": "91"}, aliases=PASSPORT)


@pytest.mark.rule("ENG-27.04")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAINSPRING_LEASE_SECONDS", "s3cret"),
        ("MAINSPRING_LEASE_SECONDS", "nan"),
        ("MAINSPRING_LEASE_SECONDS", "1e300"),
        ("MAINSPRING_CONCURRENCY", "12.5"),
        ("MAINSPRING_CONCURRENCY", "0"),
        ("MAINSPRING_QUEUES", "q:default=many"),
        ("MAINSPRING_QUEUES", "q:default=0"),
        ("BPC_JOBS_POLL_INTERVAL_MS", "-1"),
    ],
)
def test_a_wrong_value_stops_the_start_and_names_its_setting_but_not_the_value(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        worker_config(env={name: value}, aliases=PASSPORT)

    text = str(caught.value)
    setting = (
        name.lower().removeprefix("mainspring_").removeprefix("bpc_jobs_").removesuffix("_seconds").removesuffix("_ms")
    )
    assert name in text or setting in text
    assert value not in text or value in "0-1"


def test_the_environment_overrides_what_the_program_says() -> None:
    base = WorkerConfig(concurrency=5, batch=50)
    config = worker_config(base, env={"MAINSPRING_CONCURRENCY": "7", "MAINSPRING_QUEUES": "q:a, q:b=3"})

    assert (config.concurrency, config.batch, config.queues) == (7, 50, {"q:a": 1, "q:b": 3})


def test_the_address_of_the_database_is_found_where_it_is_said_first() -> None:
    env = {"MAINSPRING_DSN": "one", "DATABASE_URL": "two"}

    assert database("given", env) == "given"
    assert database(None, env) == "one"
    assert database(None, {"DATABASE_URL": "two"}) == "two"
    assert database(None, {}) is None


@pytest.mark.rule("ENG-11.08")
def test_no_setting_gives_an_organisation_another_priority() -> None:
    settings = {*WorkerConfig.__dataclass_fields__, *(name for name, _ in _WORKER.values())}

    assert len(settings) > 15
    assert not [name for name in settings if any(word in name.lower() for word in ("priorit", "org_", "tenant"))]
