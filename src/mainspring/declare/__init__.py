"""What an application declares: tasks, payloads, schedules, sweeps, blocks, and the context of a handler."""
