from __future__ import annotations

from datetime import timedelta

import pytest

from mainspring import dedupe
from mainspring.dedupe import MODES, Dedupe
from mainspring.errors import DeclarationError

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (dedupe.live("{id}"), Dedupe("live", "{id}")),
        (dedupe.keep("{id}"), Dedupe("keep", "{id}")),
        (dedupe.window("{id}", ttl=HOUR), Dedupe("window", "{id}", ttl=HOUR)),
        (dedupe.reset_failed("{id}"), Dedupe("reset_failed", "{id}")),
        (dedupe.replacing("{id}"), Dedupe("replace", "{id}")),
        (dedupe.debounce("{id}", wait=HOUR), Dedupe("debounce", "{id}", wait=HOUR)),
        (dedupe.by_payload(), Dedupe("window", by_payload=True)),
        (dedupe.by_payload(dedupe.keep()), Dedupe("keep", by_payload=True)),
    ],
)
def test_each_mode_has_a_word(made: Dedupe, expected: Dedupe) -> None:
    assert made == expected
    assert made.mode in MODES


def test_a_debounce_that_waits_for_nothing_is_refused() -> None:
    for wait in (0, -1, "0s"):
        with pytest.raises(DeclarationError, match=r"^wait: must be positive"):
            dedupe.debounce(wait=wait)


def test_the_table_in_the_docstring_names_every_mode() -> None:
    assert [mode for mode in MODES if f"`{mode}`" not in (dedupe.__doc__ or "")] == []
