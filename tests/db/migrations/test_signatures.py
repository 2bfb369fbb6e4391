"""What a version has shipped never changes in place: the record of signatures, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.databases import Database
from tests.docs.pages import ROOT
from tools.signatures import Shipped, recorded_lines, signatures

from mainspring.db.schema.line import Line, Migration
from mainspring.db.schema.migrate import migrate
from mainspring.db.schema.verb import Verb

VERBS = (Verb("create or replace function {schema}.f() returns int language sql return 1"),)
LINE = Line("mainspring", (), VERBS)
SHIPPED = Shipped("0.1.0", 1, LINE.digest, {"f(a integer) returns text": "0.1.0", "view v: a text, b text": "0.1.0"})
NOW = set(SHIPPED.since)
STANDS = "version 0.1.0 has shipped it. Let it stand and write a new name beside it"


def test_signatures_of_this_version_are_recorded_and_none_of_an_earlier_one_is_lost(empty: Database) -> None:
    with empty.connect() as conn:
        for one in recorded_lines():
            migrate(conn, line=one.line)
            now, shipped = signatures(conn, one.name), Shipped.read(one.record.read_text())
            assert shipped.problems(now, one.line, one.version) == []
            assert set(shipped.renewed(now, one.line, one.version).since) == set(shipped.since), "run `make schema`"


def test_every_application_with_tables_or_verbs_has_its_record() -> None:
    lines = {
        path.parent.name for kind in ("tables", "verbs") for path in (ROOT / "apps/mainspring_apps").glob(f"*/{kind}")
    }

    assert lines | {"mainspring"} == {one.name for one in recorded_lines()}


def test_numbered_file_of_an_application_drops_by_its_own_schema() -> None:
    dropping = Line("shop", (Migration(1, "drop", "drop function shop.f(integer);"),), VERBS)

    assert SHIPPED.problems({"view v: a text, b text"}, dropping, "0.2.0") == []
    assert len(SHIPPED.problems({"view v: a text, b text"}, replace(LINE, name="shop"), "0.2.0")) == 1


def test_record_is_read_as_it_was_written() -> None:
    assert Shipped.read(SHIPPED.write()) == SHIPPED


def test_version_that_is_not_released_changes_what_it_likes() -> None:
    assert SHIPPED.problems({"g() returns void"}, LINE, "0.1.0") == []
    assert set(SHIPPED.renewed({"g() returns void"}, LINE, "0.1.0").since) == {"g() returns void"}


@pytest.mark.parametrize(
    ("now", "lost"),
    [
        ({"f(a integer, b integer) returns text"}, "f(a integer) returns text"),
        ({"f(b integer) returns text"}, "f(a integer) returns text"),
        ({"f(a integer) returns integer"}, "f(a integer) returns text"),
        ({"view v: a text"}, "view v: a text, b text"),
        ({"view v: b text, a text"}, "view v: a text, b text"),
    ],
)
def test_signature_that_was_shipped_does_not_change(now: set[str], lost: str) -> None:
    kept = {signature for signature in NOW if signature[:6] != lost[:6]}
    (problem,) = SHIPPED.problems(now | kept, LINE, "0.2.0")
    assert problem.startswith(f"{lost}: {STANDS}")


def test_new_name_stands_beside_the_old_and_a_numbered_file_drops_that_later() -> None:
    both = NOW | {"g(a integer, b integer) returns text"}
    assert SHIPPED.problems(both, LINE, "0.2.0") == []
    next_one = SHIPPED.renewed(both, LINE, "0.2.0")
    assert next_one.since["g(a integer, b integer) returns text"] == "0.2.0"
    later = both - {"f(a integer) returns text"}
    dropping = replace(LINE, tables=(Migration(1, "drop", "drop function {schema}.f(integer);"),))
    assert len(next_one.problems(later, LINE, "0.3.0")) == 1
    assert next_one.problems(later, dropping, "0.3.0") == []


def test_view_may_grow_at_its_end_and_then_keeps_what_it_has() -> None:
    grown = (NOW - {"view v: a text, b text"}) | {"view v: a text, b text, c text"}
    assert SHIPPED.problems(grown, LINE, "0.2.0") == []
    assert (
        len(SHIPPED.renewed(grown, LINE, "0.2.0").problems(grown - {"view v: a text, b text, c text"}, LINE, "0.3.0"))
        == 2
    )


def test_verbs_that_differ_from_those_of_the_version_before_have_a_higher_edition() -> None:
    other = replace(LINE, verbs=(Verb(VERBS[0].text.replace("1", "2")),))
    (problem,) = SHIPPED.problems(NOW, other, "0.2.0")
    assert problem == "edition: the verbs of mainspring differ from those of version 0.1.0: make it 2"
    assert SHIPPED.problems(NOW, replace(other, edition=2), "0.2.0") == []
    assert SHIPPED.problems(NOW, other, "0.1.0") == []
