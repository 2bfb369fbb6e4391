"""The statements' tests once more, through PgBouncer in transaction mode: no session keeps a state."""

from __future__ import annotations

import pytest
from tests.proofs.surroundings.pooler.core import collect

pytestmark = pytest.mark.once_more

collect(
    globals(),
    "tests.db.test_cancel",
    "tests.db.test_claim",
    "tests.db.test_dedupe",
    "tests.db.test_enqueue",
    "tests.db.test_lease",
    "tests.db.test_settle",
)
