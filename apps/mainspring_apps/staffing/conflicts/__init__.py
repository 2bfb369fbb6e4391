"""Disputes and incidents: what they stop, and how they end."""
