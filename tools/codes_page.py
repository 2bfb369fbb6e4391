"""Prints docs/codes.md from the registered error codes: `python -m tools.codes_page > docs/codes.md`."""

from __future__ import annotations

import mainspring.contrib  # noqa: F401 (registers the codes of blocks)
from mainspring.codes import CODES

INTRO = """\
# Error codes

Every failed attempt has a code: a stable name that says what kind of failure it was, whether trying again can help, and
what to do about a dead letter that it left. It stands in `mainspring job show`, in `mainspring dead list`, in events
and in the view `mainspring.attempts`. Printed from the code by `python -m tools.codes_page`; a test compares.

| a handler raises | code |
| --- | --- |
| `ms.Permanent("…")` | `BUSINESS_RULE` |
| `ms.RetryAfter(60)` | `RATE_LIMITED` |
| `ms.Failure("…", code="…")` | the one that it names; `Permanent` and `RetryAfter` take `code=` as well |
| `ValidationError`, `KeyReused` and other errors of `mainspring.errors` | their own |
| `TimeoutError`, or its task's `timeout` was over | `TIMEOUT` |
| an error of the database connection | `DB_UNAVAILABLE` |
| anything else | `INTERNAL_ERROR` |

Your own codes are declared with `mainspring.codes.register`, as in [retry](guides/retry.md) and [dead
letters](guides/dead-letters.md#in-code). Without a plan of its own, what is retryable is to be replayed, and what is
permanent to be fixed. Some codes below are for applications, such as `WebhookTimeout`: the engine itself never uses
them.
"""


def page() -> str:
    """The whole page."""
    parts = [INTRO]
    for error_class, title in {"retryable": "Tried again", "permanent": "Not tried again"}.items():
        rows = [
            f"| `{code.name}` | {code.text} | {code.plan.advised}: {code.plan.check} |"
            for code in CODES.values()
            if code.error_class == error_class
        ]
        head = ["| code | meaning | what to do about a dead letter |", "| --- | --- | --- |"]
        parts += [f"## {title}", "\n".join([*head, *rows])]
    return "\n\n".join(part.strip() for part in parts) + "\n"


if __name__ == "__main__":
    print(page(), end="")
