"""Settings: defaults visible here, overridden by the environment, checked at start.

Read only where a program starts (`App`, the command line). An error names the setting, never its value.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

from mainspring.errors import ConfigurationError
from mainspring.text.span_field import SpanField
from mainspring.text.texts import did_you_mean

DEFAULT_SCHEMA = "mainspring"
ANSWERED_WITHIN = 30.0  # seconds that a client waits for an answer of the database
DATA = Path(".data")  # where `mainspring up` keeps its PostgreSQL, seen from where it runs


@dataclass(frozen=True)
class WorkerConfig:
    """How a worker process works."""

    concurrency: int = 100  # async handlers at once
    threads: int = 16  # plain functions at once
    processes: int = 0  # CPU-bound functions at once; 0: one per core
    queues: Mapping[str, int] = field(default_factory=dict)  # name → weight; empty: those of the tasks
    lease: SpanField = SpanField("60s")
    renew_every: SpanField = SpanField("30s")  # a shorter interval survives more missed renewals
    rescue_every: SpanField = SpanField("5s")
    seal_every: SpanField = SpanField("60s")
    poll_interval: SpanField = SpanField("1s")  # at the most; shorter while there is work
    grace: SpanField = SpanField("30s")  # how long a stop waits for running jobs
    batch: int = 500
    transactions: int = 10  # connections for handlers' own transactions
    exchanges: int = 2  # connections that claim and complete in turn
    wakeups: bool = True
    scheduler: bool = True  # whether this worker fires schedules; one that does is enough
    listen_dsn: str = field(default="", repr=False)  # for hints, past a pooler; empty: the DSN itself
    prepare: bool = True  # never through a pooler, whatever this says
    speed: float = 1.0  # how fast the database's clock runs; a worker asks it, and whatever is said here is forgotten

    @property
    def lease_there(self) -> timedelta:
        """The lease as the database counts it: a worker itself waits by real time, also where that clock runs fast."""
        return self.lease * self.speed

    def __post_init__(self) -> None:
        for name in ("concurrency", "threads", "batch", "exchanges"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name}: must be at least 1")
        for name in ("lease", "renew_every", "rescue_every", "seal_every", "poll_interval"):
            if getattr(self, name) <= timedelta(0):
                raise ConfigurationError(f"{name}: must be positive")
        if self.lease < 2 * self.renew_every:
            raise ConfigurationError(
                "lease: must be at least twice renew_every, or one missed renewal loses it "
                "(MAINSPRING_LEASE_SECONDS, MAINSPRING_LEASE_RENEW_SECONDS)"
            )
        for queue, weight in self.queues.items():
            if weight < 1:
                raise ConfigurationError(f"queues: the weight of {queue} must be at least 1")


@dataclass(frozen=True)
class Retention:
    """How long what has ended is kept, and how much one run of clean-up removes."""

    succeeded: SpanField = SpanField("7d")
    cancelled: SpanField = SpanField("30d")
    resolved: SpanField = SpanField("90d")  # failed and dead jobs that somebody decided about; open ones are kept
    fires: SpanField = SpanField("90d")
    inbound: SpanField = SpanField("90d")  # webhooks that came; those whose job is still there stay with it
    deliveries: SpanField = SpanField("90d")  # of webhooks, counted from the event
    notifications: SpanField = SpanField("365d")  # what an inbox shows of them goes with them
    alerts: SpanField = SpanField("90d")  # that are closed
    workers: SpanField = SpanField("1d")  # heartbeats that have stopped
    batch: int = 1000

    def __post_init__(self) -> None:
        for name in (one.name for one in fields(self) if one.name != "batch"):
            if not timedelta(0) <= getattr(self, name) <= _LONGEST:
                raise ConfigurationError(f"{name}: is not between 0 and 36500 days")
        if not 1 <= self.batch <= 100_000:
            raise ConfigurationError("batch: is not between 1 and 100000")


_LONGEST = timedelta(days=36_500)


def _days(text: str) -> timedelta:
    return timedelta(days=float(text))


def _seconds(text: str) -> timedelta:
    return timedelta(seconds=float(text))


def _millis(text: str) -> timedelta:
    return timedelta(milliseconds=float(text))


def switch(text: str) -> bool:
    """On or off, in the usual words."""
    return {"1": True, "on": True, "true": True, "yes": True, "0": False, "off": False, "false": False, "no": False}[
        text.strip().lower()
    ]


def _queues(text: str) -> dict[str, int]:
    """`q:default,exports=2`: names with weights."""
    pairs = (part.strip().partition("=") for part in text.split(",") if part.strip())
    return {name: int(weight or 1) for name, _, weight in pairs}


def at_speed(config: WorkerConfig, speed: float) -> WorkerConfig:
    """For a database whose clock runs so fast: look more often, as far as that costs little.

    >>> at_speed(WorkerConfig(), 600).poll_interval
    datetime.timedelta(microseconds=20000)
    """
    poll = max(min(config.poll_interval, _SOONEST_LOOK), config.poll_interval / speed)
    return replace(config, speed=speed, poll_interval=poll)


_SOONEST_LOOK = timedelta(milliseconds=20)


#: What a value looks like that is read in this way.
_LIKE: Final[Mapping[Callable[[str], Any], str]] = {
    int: "a whole number",
    float: "a number",
    _seconds: "a number of seconds",
    _millis: "a number of milliseconds",
    _days: "a number of days",
    switch: "on or off",
    _queues: "names of queues, such as q:default,exports=2",
}

#: What may be said in the environment: setting → (its name there, how to read it).
SettingsTable: TypeAlias = Mapping[str, tuple[str, Callable[[str], Any]]]
#: An application's own names of settings: its name → ours.
SettingAliases: TypeAlias = Mapping[str, str]
NO_ALIASES: Final[SettingAliases] = {}

_WORKER: SettingsTable = {
    "concurrency": ("MAINSPRING_CONCURRENCY", int),
    "threads": ("MAINSPRING_THREADS", int),
    "processes": ("MAINSPRING_CPU_PROCESSES", int),
    "queues": ("MAINSPRING_QUEUES", _queues),
    "lease": ("MAINSPRING_LEASE_SECONDS", _seconds),
    "renew_every": ("MAINSPRING_LEASE_RENEW_SECONDS", _seconds),
    "rescue_every": ("MAINSPRING_RESCUE_SECONDS", _seconds),
    "seal_every": ("MAINSPRING_SEAL_SECONDS", _seconds),
    "poll_interval": ("MAINSPRING_POLL_INTERVAL_MS", _millis),
    "grace": ("MAINSPRING_GRACE_SECONDS", _seconds),
    "batch": ("MAINSPRING_BATCH", int),
    "scheduler": ("MAINSPRING_SCHEDULER", switch),
    "listen_dsn": ("MAINSPRING_LISTEN_DSN", str),
}


_RETENTION: SettingsTable = {
    "succeeded": ("MAINSPRING_KEEP_SUCCEEDED_DAYS", _days),
    "cancelled": ("MAINSPRING_KEEP_CANCELLED_DAYS", _days),
    "resolved": ("MAINSPRING_KEEP_RESOLVED_DAYS", _days),
    "fires": ("MAINSPRING_KEEP_FIRES_DAYS", _days),
    "inbound": ("MAINSPRING_KEEP_INBOUND_DAYS", _days),
    "deliveries": ("MAINSPRING_KEEP_DELIVERIES_DAYS", _days),
    "notifications": ("MAINSPRING_KEEP_NOTIFICATIONS_DAYS", _days),
    "alerts": ("MAINSPRING_KEEP_ALERTS_DAYS", _days),
    "workers": ("MAINSPRING_KEEP_WORKERS_DAYS", _days),
    "batch": ("MAINSPRING_PRUNE_BATCH", int),
}

_CLIENT: SettingsTable = {"answered_within": ("MAINSPRING_ANSWERED_WITHIN_SECONDS", float)}
_MAINTENANCE: SettingsTable = {"maintenance": ("MAINSPRING_MAINTENANCE", str)}


def _read(env: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    found = {name: env[name] for name in names if env.get(name)}
    if len(set(found.values())) > 1:
        raise ConfigurationError(f"{' and '.join(found)}: two names of one setting have different values")
    return next(iter(found.values()), None)


def worker_config(
    base: WorkerConfig | None = None, env: Mapping[str, str] | None = None, aliases: SettingAliases = NO_ALIASES
) -> WorkerConfig:
    """The worker's settings with what the environment says.

    >>> worker_config(env={"MAINSPRING_CONCURRENCY": "8"}).concurrency
    8
    """
    return replace(base or WorkerConfig(), **changes(_WORKER, env, aliases))


def retention(
    base: Retention | None = None, env: Mapping[str, str] | None = None, aliases: SettingAliases = NO_ALIASES
) -> Retention:
    """How long what has ended is kept, with what the environment says.

    >>> retention(env={"MAINSPRING_KEEP_SUCCEEDED_DAYS": "1.5"}).succeeded
    datetime.timedelta(days=1, seconds=43200)
    """
    return replace(base or Retention(), **changes(_RETENTION, env, aliases))


def answered_within(
    seconds: float | None = None, env: Mapping[str, str] | None = None, aliases: SettingAliases = NO_ALIASES
) -> float:
    """How long clients wait for an answer of the database, in seconds: given, or as the environment says.

    >>> answered_within(env={"MAINSPRING_ANSWERED_WITHIN_SECONDS": "5"})
    5.0
    """
    said = changes(_CLIENT, env, aliases)
    return check_answered(said.get("answered_within", ANSWERED_WITHIN if seconds is None else seconds))


def check_answered(seconds: float) -> float:
    """Refuse a time in which nobody can answer, or none that ends."""
    if not 0.1 <= seconds <= 86_400:
        raise ConfigurationError("answered_within: is not between 0.1 and 86400 seconds")
    return seconds


def maintained(env: Mapping[str, str] | None = None, aliases: SettingAliases = NO_ALIASES) -> bool:
    """Whether the environment leaves the built-in maintenance in."""
    said = changes(_MAINTENANCE, env, aliases).get("maintenance", "on")
    if said not in ("on", "off"):
        raise ConfigurationError("MAINSPRING_MAINTENANCE: is not on or off")
    return bool(said == "on")


def changes(
    known: SettingsTable, env: Mapping[str, str] | None, aliases: SettingAliases = NO_ALIASES
) -> dict[str, Any]:
    """What the environment says of settings, under our names or an application's; for blocks, too.

    >>> changes({"lease": ("LEASE_SECONDS", int)}, {"SHOP_LEASE": "9"}, {"SHOP_LEASE": "LEASE_SECONDS"})
    {'lease': 9}
    """
    env = os.environ if env is None else env
    said: dict[str, Any] = {}
    for setting, (name, read) in known.items():
        names = (name, *(alias for alias, ours in aliases.items() if ours == name))
        text = _read(env, names)
        if text is not None:
            try:
                said[setting] = read(text)
            except (ValueError, KeyError, OverflowError):
                raise ConfigurationError(
                    f"{' or '.join(names)}: is not {_LIKE.get(read, f'a valid {setting}')}"
                ) from None
    return said


def check_aliases(aliases: SettingAliases, *known: SettingsTable) -> None:
    """Refuse another name for a setting that does not exist.

    >>> check_aliases({"SHOP_URL": "QUEUE_URI"}, {"url": ("QUEUE_URL", str)})  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    ConfigurationError: setting_aliases: SHOP_URL stands for QUEUE_URI, which is no setting here (did you mean …)
    """
    names = [name for table in known or (_WORKER, _RETENTION, _CLIENT, _MAINTENANCE) for name, _ in table.values()]
    for alias, name in aliases.items():
        if name not in names:
            about = f"{alias} stands for {name}, which is no setting here{did_you_mean(name, names)}"
            raise ConfigurationError(f"setting_aliases: {about}")


def database(dsn: str | None = None, env: Mapping[str, str] | None = None) -> str | None:
    """The database's address: given, or MAINSPRING_DSN, or DATABASE_URL, or None if nobody names one."""
    env = os.environ if env is None else env
    return dsn or env.get("MAINSPRING_DSN") or env.get("DATABASE_URL") or None


def role_dsn(role: str, env: Mapping[str, str] | None = None) -> str | None:
    """How the HTTP API connects as a role of a secured schema, `api` or `operator`; None where nobody says."""
    names = {"api": "MAINSPRING_API_DSN", "operator": "MAINSPRING_OPERATOR_DSN"}
    return (os.environ if env is None else env).get(names[role]) or None


def cron_secret(env: Mapping[str, str] | None = None) -> str | None:
    """The secret of the run endpoint; None where nobody has set one. An empty one was set, and is too short."""
    env = os.environ if env is None else env
    names = [name for name in ("MAINSPRING_CRON_SECRET", "CRON_SECRET") if name in env]
    if len({env[name] for name in names}) > 1:
        raise ConfigurationError(f"{' and '.join(names)}: two names of one setting have different values")
    return env[names[0]] if names else None


def allowed_hosts(env: Mapping[str, str] | None = None) -> list[str]:
    """The names under which the HTTP server answers, beside those of loopback: MAINSPRING_ALLOWED_HOSTS.

    >>> allowed_hosts({"MAINSPRING_ALLOWED_HOSTS": "shop.example, *.shop.example"})
    ['shop.example', '*.shop.example']
    """
    said = (os.environ if env is None else env).get("MAINSPRING_ALLOWED_HOSTS", "")
    return [name.strip() for name in said.split(",") if name.strip()]


def trusted_proxies(env: Mapping[str, str] | None = None) -> list[str]:
    """The proxies whose `X-Forwarded-…` headers are believed: MAINSPRING_TRUSTED_PROXIES.

    >>> trusted_proxies({"MAINSPRING_TRUSTED_PROXIES": "127.0.0.1, 10.0.0.0/8"})
    ['127.0.0.1', '10.0.0.0/8']
    """
    said = (os.environ if env is None else env).get("MAINSPRING_TRUSTED_PROXIES", "")
    return [network.strip() for network in said.split(",") if network.strip()]


def probed_by_ip(env: Mapping[str, str] | None = None) -> bool:
    """Whether health is told under any IP address, as the probes of Kubernetes ask: MAINSPRING_PROBE_BY_IP."""
    return bool(changes({"probe_by_ip": ("MAINSPRING_PROBE_BY_IP", switch)}, env).get("probe_by_ip", False))


def app_url(env: Mapping[str, str] | None = None) -> str | None:
    """Where a kick finds the run endpoint; None where nobody says."""
    return _read(os.environ if env is None else env, ("MAINSPRING_APP_URL", "APP_URL"))


def base_url(env: Mapping[str, str] | None = None) -> str | None:
    """Where the scheduled caller finds the run endpoint; None where nobody says."""
    return _read(os.environ if env is None else env, ("MAINSPRING_BASE_URL", "BASE_URL"))
