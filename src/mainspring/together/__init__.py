"""Jobs that belong together: batches, flows, chunks."""
