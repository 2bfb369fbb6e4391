"""Words for people and machines: texts, documents, durations, what is masked, what an exception says."""
