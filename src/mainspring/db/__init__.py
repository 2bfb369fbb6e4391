"""The only layer that knows SQL: named statements in `sql/`, functions and tables in `migrations/`."""
