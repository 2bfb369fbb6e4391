from __future__ import annotations

import contextvars

import pytest

from mainspring.caller import NOBODY, Caller, calling, current

ACME = Caller(org_id="acme", actor_type="user", actor_id="7")


def test_nobody_calls_by_default() -> None:
    assert current() == NOBODY == Caller()


def test_a_caller_ends_with_its_block_even_after_an_error() -> None:
    with calling(ACME):
        with pytest.raises(RuntimeError), calling(Caller(org_id="inner")):
            raise RuntimeError(current().org_id)
        assert current() is ACME

    assert current() is NOBODY


def test_contexts_do_not_see_each_others_callers() -> None:
    elsewhere = contextvars.copy_context()

    with calling(ACME):
        assert elsewhere.run(current) is NOBODY
