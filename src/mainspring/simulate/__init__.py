"""Moving an application through days in seconds: the real scheduler and handlers, in a scratch database."""

from mainspring.simulate.run import Simulated, simulate
from mainspring.simulate.timeline import Fired, SimulatedAttempt, TimelineEntry, Totals

__all__ = ["Fired", "Simulated", "SimulatedAttempt", "TimelineEntry", "Totals", "simulate"]
