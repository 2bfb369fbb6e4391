"""What the sandbox remembers."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mainspring_sandbox.ledger import Ledger


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def test_entries_are_found_newest_first_by_kind_field_and_place(ledger: Ledger) -> None:
    for n in range(4):
        ledger.add("mail" if n % 2 else "sms", f"m{n}", {"to": "a" if n < 3 else None, "read": False})

    assert [entry.id for entry in ledger.find()] == ["m3", "m2", "m1", "m0"]
    assert [entry.id for entry in ledger.find("mail")] == ["m3", "m1"]
    assert [entry.id for entry in ledger.find(to="a", limit=2)] == ["m2", "m1"]
    assert [entry.id for entry in ledger.find("mail", to=None)] == ["m3"]
    assert [entry.id for entry in ledger.find(before=ledger.find()[1].serial, read=False)] == ["m1", "m0"]
    assert (ledger.count("mail"), ledger.count("fax")) == (2, 0)
    assert ledger.get("mail", "m0") is None


def test_a_change_leaves_the_rest(ledger: Ledger) -> None:
    before = ledger.add("charge", "ch_1", {"amount": 5, "refunded": 0})
    after = ledger.change("charge", "ch_1", refunded=5, id="kept too")

    assert ledger.get("charge", "ch_1") == after
    assert (after.serial, after.at, after.body) == (
        before.serial,
        before.at,
        {"amount": 5, "refunded": 5, "id": "kept too"},
    )


def test_what_is_written_together_is_kept_or_undone_together(ledger: Ledger) -> None:
    def fail(id: str) -> None:
        with ledger.together():
            ledger.add("charge", id, {"n": ledger.number()})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail("ch_1")
    with ledger.together():
        ledger.add("charge", "ch_2", {})
        with pytest.raises(ZeroDivisionError):
            fail("ch_3")

    assert [entry.id for entry in ledger.find()] == ["ch_2"]
    assert ledger.number() == 3  # no number is given twice, not even one of what was undone


def test_threads_do_not_write_into_each_other(ledger: Ledger) -> None:
    ledger.add("count", "one", {"n": 0})

    def grow() -> None:
        for _ in range(50):
            with ledger.together():
                found = ledger.get("count", "one")
                assert found is not None
                ledger.change("count", "one", n=found.body["n"] + 1)

    threads = [threading.Thread(target=grow) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = ledger.get("count", "one")
    assert found is not None
    assert found.body["n"] == 200


def test_a_file_outlives_its_ledger(tmp_path: Path) -> None:
    first = Ledger(tmp_path / "sandbox.db")
    first.add("mail", "m1", {"to": "a"})
    first.answered("stripe", "/k1", "request", 200, "{}")
    given = first.number()
    first.close()
    second = Ledger(tmp_path / "sandbox.db")

    assert [entry.body for entry in second.find()] == [{"to": "a"}]
    kept = second.answer("stripe", "/k1")
    assert kept is not None
    assert (kept.request, kept.status, kept.body) == ("request", 200, "{}")
    assert second.number() == given + 1
    second.close()


def test_answers_are_forgotten_by_provider(ledger: Ledger) -> None:
    for provider in ("stripe", "twilio"):
        ledger.answered(provider, "k1", "request", 200, "{}")
    ledger.forget_answers("stripe")

    assert ledger.answer("stripe", "k1") is None
    assert ledger.answer("twilio", "k1") is not None
    ledger.clear()
    assert ledger.answer("twilio", "k1") is None
