"""Moving an application through days in seconds: the real scheduler and handlers, in a scratch database."""

from mainspring.simulate.run import Simulated, simulate
from mainspring.simulate.timeline import Entry, Fired, Ran, Totals

__all__ = ["Entry", "Fired", "Ran", "Simulated", "Totals", "simulate"]
