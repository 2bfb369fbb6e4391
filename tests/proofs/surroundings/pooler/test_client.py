"""The client's tests once more, through PgBouncer in transaction mode."""

from __future__ import annotations

import pytest
from tests.proofs.surroundings.pooler.core import collect

pytestmark = [pytest.mark.anyio, pytest.mark.once_more]

collect(
    globals(),
    "tests.client.test_coalesce",
    "tests.client.test_enqueue",
    "tests.client.test_verbs",
    without={"test_every_caller_hears_that_the_database_is_lost"},  # ends sessions of its own: here the pooler's
)
