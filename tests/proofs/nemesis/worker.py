"""The application that the workers of a run serve: `mainspring worker run --app tests.proofs.nemesis.worker:app`."""

from __future__ import annotations

import ctypes
import signal
import sys

from tests.proofs.chaos import plants
from tests.proofs.chaos import workload as chaos
from tests.proofs.nemesis.plan import Orders
from tests.proofs.nemesis.workload import BREAKERS, LIMITS, hello, tasks, tick_every_second

import mainspring as ms

# PR_SET_PDEATHSIG: one that hangs would outlive a supervisor that was killed. A process for jobs that run alone gives
# its job back when its worker dies: killed with it, an innocent job would be blamed for a crash of its own.
if sys.platform == "linux" and "--alone" not in sys.argv:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
orders = Orders.found()
plants.in_process(orders.plan.bugs, orders.direct)
chaos.open_journal(orders.place)
if orders.plan.has("schedules"):
    tick_every_second()
app = ms.App(
    tasks,
    chaos.tasks,
    config=orders.plan.config(),
    limits=LIMITS,
    breakers=BREAKERS,
    observers=[hello],
    maintenance=False,
)
