"""What `mainspring up` says of itself once it runs: where everything is, and what to try."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from mainspring.config import DATA

if TYPE_CHECKING:
    from mainspring.embedded import Cluster

BANNER = """
Mainspring runs on a PostgreSQL of its own; its data are in {data}.
{time}Every second, what happened. Ctrl-C stops it. In another terminal, from this directory:

  look at jobs    {mainspring} job list{elsewhere}
  see what left   {mainspring} outbox list{sandbox}    every mail, SMS, charge and webhook, in a sandbox
  sign in         {link}    once, within 15 minutes; then: {mainspring} user link demo{elsewhere}
  ask over HTTP   curl {url}/v1/health/ready
  and as somebody {viewer} {url}/api/v1/me    a viewer; curl.operator and curl.admin lie beside it
  look with SQL   {psql} "{dsn}" -c "select * from mainspring.jobs limit 5"
  read its log    tail -f {log}
  kill a worker   kill -9 {pid}    and watch: another takes over, and nothing is lost
{about}"""

CLOCK_LINE = "Its clock shows {now:%Y-%m-%d %H:%M}Z, and runs {speed} as yours.\n"


def banner(
    *,
    cluster: Cluster,
    log: Path,
    pid: int,
    url: str,
    sandbox: str,
    about: str | None,
    link: str,
    curls: Mapping[str, str],
    time: str,
) -> str:
    """The text, with the commands that work from this directory."""
    from mainspring.embedded import find_binaries
    from mainspring.embedded.home import at_home

    mainspring = "mainspring" if shutil.which("mainspring") else os.path.relpath(sys.argv[0])
    psql = "psql" if shutil.which("psql") else os.path.relpath(find_binaries(18) / "psql")
    dsn, data = at_home(cluster), cluster.path.parent
    here = data == DATA.resolve()
    elsewhere = "" if here else f' --dsn "{dsn}"'
    told = ""
    if about:
        told = f"\n{about.strip()}\n"
        words = {"url": url, "mainspring": mainspring, "elsewhere": elsewhere, **curls}
        for name, value in words.items():  # its own braces stay
            told = told.replace(f"{{{name}}}", value)
    return BANNER.format(
        data=data, dsn=dsn, log=os.path.relpath(log), pid=pid, url=url, time=time, psql=psql, mainspring=mainspring,
        elsewhere=elsewhere, sandbox="" if here else f" --sandbox {sandbox}", about=told, link=link,
        viewer=curls["curl.viewer"],
    )  # fmt: skip


def clock_line(now: datetime, speed: float) -> str:
    """What virtual time shows, and how fast it runs."""
    fast = "as fast" if speed == 1 else f"{speed:g} times as fast"
    return CLOCK_LINE.format(speed=fast, now=now.astimezone(UTC))
