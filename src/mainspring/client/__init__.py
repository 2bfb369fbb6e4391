"""`Client` and `AsyncClient`: the same verbs in both colours, each method one line over a flow of `mainspring.db`.

Without `conn` a verb uses the client's own pool; with it, it joins the caller's transaction: a psycopg, psycopg2,
SQLAlchemy or Django connection, and for the async client an async psycopg, SQLAlchemy or asyncpg one.
"""

from mainspring.client.aio import AsyncClient
from mainspring.client.dead import AsyncDeadLetters, DeadLetters
from mainspring.client.sync import Client
from mainspring.client.timers import AsyncTimers, Timers

__all__ = ["AsyncClient", "AsyncDeadLetters", "AsyncTimers", "Client", "DeadLetters", "Timers"]
