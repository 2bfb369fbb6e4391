"""A real RabbitMQ with a node name, ports, files and an epmd of its own, on loopback only."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # Debian's; the one in the path changes account and directory
MISSING = "RabbitMQ is not installed: run apt-get install rabbitmq-server"
#: One scheduler of a kind, which does not spin: others work here, too.
QUICK = "+S 1:1 +SDcpu 1:1 +SDio 1 +sbwt none +sbwtdcpu none +sbwtdio none"
PATIENCE = 600  # seconds for a start: three of CPU time on an idle machine, and nobody knows how busy this one is
#: Users, and what they may configure, write and read: the guide says what each needs.
USERS = {
    "guest": (".*", ".*", ".*"),
    "shop-web": ("^$", "^mainspring$", "^$"),
    "shop-worker": (r"^mainspring\..*", r"^mainspring(\..*)?$", r"^mainspring(\..*)?$"),
    "nobody": ("^$", "^$", "^$"),
}
CONFIG = """
load_definitions = {folder}/definitions.json
listeners.tcp.1 = 127.0.0.1:{port}
log.file = false
log.console = true
log.console.level = warning
"""


def installed() -> bool:
    """Whether there is a RabbitMQ to start."""
    return PROGRAM.exists() and shutil.which("epmd") is not None


class RabbitMQServer:
    """A broker below a directory, which any process may start, kill and stop: its numbers are kept in files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def port(self) -> int:
        return int((self.folder / "port").read_text())

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    @property
    def running(self) -> bool:
        return self._pid("server") is not None

    def start(self) -> None:
        """Start it, and its epmd if need be: while it lives, as long as it takes; five seconds on an idle machine."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)  # the cookie is there
        if not (self.folder / "port").exists():
            for name, port in zip(("dist", "epmd", "port"), _free_ports(3), strict=True):
                (self.folder / name).write_text(str(port))
            (self.folder / "rabbitmq.conf").write_text(CONFIG.format(port=self.port, folder=self.folder))
            (self.folder / "definitions.json").write_text(json.dumps(_definitions()))
            (self.folder / "plugins").write_text("[].")
        if self._pid("epmd") is None:
            epmd = (self.folder / "epmd").read_text()
            self._spawn("epmd", [str(shutil.which("epmd")), "-port", epmd, "-address", "127.0.0.1"])
            self._await("epmd", int(epmd))
        self._spawn("server", [str(PROGRAM)])
        self._await("server", self.port)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end("server", signal.SIGKILL)
        _wait(lambda: not _answers(self.port), 10)  # its threads end a little later

    def stop(self) -> None:
        """End everything, and wait."""
        for name in ("server", "epmd"):
            self._end(name, signal.SIGTERM)

    def _await(self, name: str, port: int) -> None:
        """Until it answers; whoever dies first, or never answers, says why in its log."""
        log = self.folder / f"{name}.log"
        try:
            _wait(lambda: _answers(port) or self._pid(name) is None, PATIENCE)
        except TimeoutError as error:
            raise TimeoutError(f"{name} does not answer after {PATIENCE} s:\n{log.read_text()}") from error
        if self._pid(name) is None:
            raise ChildProcessError(f"{name} has died:\n{log.read_text()}")

    def _spawn(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=self._environment(), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        (self.folder / f"{name}.pid").write_text(f"{process.pid} {_started(process.pid)}")
        process.returncode = 0  # it outlives this process where others of the run still need it: nobody reaps it here

    def _environment(self) -> dict[str, str]:
        folder = str(self.folder)
        epmd, dist = ((self.folder / name).read_text() for name in ("epmd", "dist"))
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": folder,  # of the cookie
            "ERL_EPMD_PORT": epmd,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_ALLOW_INPUT": "true",  # else a shell stands between us and the server
            "RABBITMQ_SERVER_START_ARGS": "-noinput",
            "RABBITMQ_NODENAME": f"mainspring-{self.port}@localhost",
            "RABBITMQ_DIST_PORT": dist,
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{QUICK} -kernel inet_dist_use_interface {{127,0,0,1}}",
        }

    def _pid(self, name: str) -> int | None:
        """The number of a process of ours that lives; a number alone may belong to somebody else after a crash."""
        try:
            pid, started = (self.folder / f"{name}.pid").read_text().split()
        except (OSError, ValueError):
            return None
        return int(pid) if _started(int(pid)) == started else None

    def _end(self, name: str, number: signal.Signals) -> None:
        pid = self._pid(name)
        if pid is None:
            return
        os.kill(pid, number)
        with suppress(TimeoutError):
            _wait(lambda: self._pid(name) is None, 20)
        if self._pid(name) is not None:
            os.kill(pid, signal.SIGKILL)
            _wait(lambda: self._pid(name) is None, 10)
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _definitions() -> dict[str, object]:
    """Who may do what, each with their name as password."""
    hashes = {name: base64.b64encode(b"salt" + sha256(b"salt" + name.encode()).digest()).decode() for name in USERS}
    way = "rabbit_password_hashing_sha256"
    rights = [dict(zip(("configure", "write", "read"), patterns, strict=True)) for patterns in USERS.values()]
    return {
        "vhosts": [{"name": "/"}],
        "users": [
            {"name": name, "password_hash": hashes[name], "hashing_algorithm": way, "tags": ""} for name in USERS
        ],
        "permissions": [{"user": user, "vhost": "/"} | right for user, right in zip(USERS, rights, strict=True)],
    }


def _started(pid: int) -> str | None:
    """When a process that lives was started: the same through every exec, while its environment is empty during one."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if fields[0] in "ZX" else fields[19]


def _free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _answers(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    return False


def _wait(until: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not after {seconds:g} s")
        time.sleep(0.02)
