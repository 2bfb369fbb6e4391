"""What runs jobs: one worker per process, async inside."""

from mainspring.worker.hosting import Hosting
from mainspring.worker.worker import Worker

__all__ = ["Hosting", "Worker"]
