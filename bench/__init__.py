"""Benchmarks: ours against the raw floor and against two peers, as ratios measured side by side."""
