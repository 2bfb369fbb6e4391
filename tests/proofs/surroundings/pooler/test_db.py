"""The statements' tests once more, through PgBouncer in transaction mode: no session keeps a state."""

from __future__ import annotations

from tests.proofs.surroundings.pooler.core import collect

collect(
    globals(),
    "tests.db.test_cancel",
    "tests.db.test_claim",
    "tests.db.test_dedupe",
    "tests.db.test_enqueue",
    "tests.db.test_lease",
    "tests.db.test_settle",
)
