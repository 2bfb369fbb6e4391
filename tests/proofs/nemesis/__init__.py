"""The nemesis: every feature at once, hostile jobs among them, under faults of every kind; judged for liveness, too."""
