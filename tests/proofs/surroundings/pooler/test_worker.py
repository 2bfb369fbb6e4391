"""The worker's tests once more, through PgBouncer in transaction mode."""

from __future__ import annotations

import pytest
from tests.proofs.surroundings.pooler.core import collect

pytestmark = [pytest.mark.anyio, pytest.mark.once_more]

collect(
    globals(),
    "tests.worker.test_context",
    "tests.worker.test_outcomes",
    "tests.worker.test_stop",
    without={  # sessions are the pooler's: it keeps them, and they are not the worker's to lose
        "test_a_connection_lost_while_it_was_idle_costs_no_attempt",
        "test_a_stopped_worker_leaves_no_connection_behind",
    },
)
