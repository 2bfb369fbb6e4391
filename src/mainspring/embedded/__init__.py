"""The embedded PostgreSQL: a server that Mainspring starts itself, so that trying it and testing need no set-up."""

from mainspring.embedded.binaries import find_binaries
from mainspring.embedded.cluster import ROLE, SUPERUSER, Cluster, StopMode
from mainspring.embedded.settings import SERVER_DEFAULTS, VOLATILE

__all__ = ["ROLE", "SERVER_DEFAULTS", "SUPERUSER", "VOLATILE", "Cluster", "StopMode", "find_binaries"]
