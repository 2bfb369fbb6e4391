"""For tests: virtual time."""

from mainspring.testing.clock import Clock, install

__all__ = ["Clock", "install"]
