"""The only layer that knows SQL: named statements in `sql/`, tables in `tables/`, functions and views in `verbs/`."""
