"""Schedules inside a worker: what is due is decided, fired, and fanned out over entities."""
