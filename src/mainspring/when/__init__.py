"""When something is due: rules, cron expressions, zones, the instants that they make."""

from mainspring.when.rule import Rule, Tick, cron, daily, every, monthly, rule_from_text, weekly
from mainspring.when.zones import check_zone

__all__ = [
    "Rule",
    "Tick",
    "check_zone",
    "cron",
    "daily",
    "every",
    "monthly",
    "rule_from_text",
    "weekly",
]
