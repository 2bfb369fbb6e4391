"""`Client` and `AsyncClient`: the same verbs in both colours, each written once over a dialogue of `mainspring.db`.

Without `conn` a verb uses the client's own pool; with it, it joins the caller's transaction: a psycopg, psycopg2,
SQLAlchemy or Django connection, and for the async client an async psycopg, SQLAlchemy or asyncpg one.

Blocks write verbs of their own with the same parts: `Verbs`, `verb`, `Work`, a colour, and the client's `seam`.
"""

from mainspring.client.aio import AsyncClient
from mainspring.client.batches import AsyncEnqueuedBatch, EnqueuedBatch
from mainspring.client.colour import Async, Blocking, Sync, Verbs, Work, verb
from mainspring.client.dead import AsyncDeadLetters, DeadLetters
from mainspring.client.seam import Seam
from mainspring.client.sync import Client
from mainspring.client.timers import AsyncTimers, Timers

__all__ = [
    "Async",
    "AsyncClient",
    "AsyncDeadLetters",
    "AsyncEnqueuedBatch",
    "AsyncTimers",
    "Blocking",
    "Client",
    "DeadLetters",
    "EnqueuedBatch",
    "Seam",
    "Sync",
    "Timers",
    "Verbs",
    "Work",
    "verb",
]
