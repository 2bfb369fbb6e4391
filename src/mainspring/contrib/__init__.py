"""Building blocks: ready-made parts of applications, each with an extra of its own."""
