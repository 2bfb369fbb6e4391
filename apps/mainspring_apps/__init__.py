"""Applications that run on Mainspring, each by its public names alone."""
