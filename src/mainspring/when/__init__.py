"""When something is due: rules, cron expressions, zones, the instants that they make."""
