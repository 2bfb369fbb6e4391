"""The tasks of a rental company as they are declared: the four kinds of a booking, and all else beside them."""

from __future__ import annotations

from typing import Final

from mainspring_apps.rental.desk import Desk
from mainspring_apps.tasks import Tasks

#: Exactly the four kinds of jobs that a booking has (RENT-3.01).
tasks = Tasks[Desk](
    "rental", retry=lambda desk: desk.settings.retry, timeout=lambda desk: desk.settings.task_timeout
)  # fmt: skip
#: Everything else that runs (RENT-20.01).
desk_tasks = Tasks[Desk]("rental.desk", timeout=lambda desk: desk.settings.task_timeout)

BOOKING_JOBS: Final = "booking-jobs"
CHECKOUTS: Final = "checkouts"  # what asks Stripe
DOCUMENTS: Final = "documents"  # credit notes
