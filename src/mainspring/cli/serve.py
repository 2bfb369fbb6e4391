"""`mainspring serve`: health, metrics, the run endpoint, providers' webhooks and the application's routes over HTTP."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

from cyclopts import Parameter

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    proxy_headers: str | None = None,
    allowed_host: list[str] | None = None,
    probe_by_ip: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Serve an application over HTTP until SIGTERM or SIGINT; a second signal waits for nobody.

    Args:
        host: The address to listen on; beyond this machine only if CRON_SECRET is set.
        port: The port; 0 takes a free one.
        proxy_headers: Believe the X-Forwarded headers of these proxies, such as 127.0.0.1,10.0.0.0/8; else nobody's.
        allowed_host: A name under which it answers, such as shop.example or *.shop.example; several may be given. Those
            of this machine and of --host always are, and those in MAINSPRING_ALLOWED_HOSTS.
        probe_by_ip: Answer the health addresses under any IP address, as the probes of Kubernetes ask.
        connection: The database, and who acts.
    """
    from mainspring.cli.logs import log_to_stderr
    from mainspring.cli.observers import Observers
    from mainspring.web import Server

    app = connection.running_application()
    dsn = connection.address(app)
    observers = Observers(app, dsn, app.schema)
    app.told.become(observers.told)
    app.at(dsn, observers=observers.all)
    log_to_stderr(json=connection.json)
    proxies = [proxy.strip() for proxy in (proxy_headers or "").split(",") if proxy.strip()]
    server = Server(app, host=host, port=port, proxies=proxies, hosts=allowed_host or (), probe_by_ip=probe_by_ip)
    url = server.listen()
    if connection.json:
        output.as_json({"url": url}, compact=True)
    else:
        output.say(f"Mainspring listens on {url}")
    sys.stdout.flush()
    asyncio.run(server.run())
