"""The crash test: real processes, real signals, a real PostgreSQL that dies, and a checker that trusts nobody."""
