"""Where `mainspring up` keeps the PostgreSQL of a directory, and how programs that run there reach it."""

from __future__ import annotations

from psycopg.conninfo import make_conninfo

from mainspring.config import DATA
from mainspring.embedded.cluster import Cluster
from mainspring.job import DEFAULT_ORG


def local_dsn() -> str | None:
    """The address of the server that runs in this directory, if one does."""
    place = DATA / "postgres"
    if not place.is_dir():
        return None
    cluster = Cluster(place)
    return at_home(cluster) if cluster.running else None


def at_home(cluster: Cluster) -> str:
    """How its owner looks in: the schema may be secured, and has one organisation."""
    return make_conninfo(cluster.dsn(), options=f"-c mainspring.org={DEFAULT_ORG}")
