"""What schemathesis makes of the OpenAPI document: no server errors, and no answer that the document does not announce.

`make fuzz` asks every operation 200 times, `make test` a few of them a few times.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.databases import Database
from tests.web.api.fuzz_world import ASKERS, BODIES, things, tokens
from tests.web.visit import served

import mainspring as ms
from mainspring.db.wire.run import psycopg_door, run
from mainspring.web.api.http_api import API_PREFIX
from mainspring.web.api.openapi import document
from mainspring.web.api.resources import OPERATIONS

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "12"))
CHECKS: list[Any] = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_headers_conformance,
    response_schema_conformance,
]  # fmt: skip
MODES = (GenerationMode.POSITIVE, GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


@cache
def described() -> Any:
    return schemathesis.openapi.from_dict(document(API_PREFIX))


def examples_of(operation: Any) -> list[tuple[str, str]]:
    """What the document gives as examples of a query; what is made up is hardly ever an expression of time."""
    found = []
    for parameter in operation.definition.raw.get("parameters", ()):
        kinds = [parameter["schema"], *parameter["schema"].get("anyOf", ())]
        found += [(parameter["name"], one) for kind in kinds for one in kind.get("examples", ())]
    return [(name, str(one)) for name, one in found]


@pytest.mark.cases(3)
@pytest.mark.parametrize("name", [one.name for one in OPERATIONS])
def test_no_request_breaks_the_server_and_every_answer_is_one_of_the_document(
    name: str, database: Database, tasks: ms.Registry, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    operation = described().find_operation_by_id(name)
    about = next(one for one in OPERATIONS if one.name == name)
    parameter = about.path.partition("{")[2].partition("}")[0]
    statuses: set[int] = set()
    examples = examples_of(operation)

    @tasks.task(name="greet")
    async def greet(*, name: str) -> None: ...

    for limit in ("ADDRESS", "CALLER", "ORG"):
        monkeypatch.setenv(f"MAINSPRING_REQUESTS_PER_{limit}", "0")
    app = ms.App(tasks, dsn=database.dsn, maintenance=False)
    with database.connect() as conn:
        found = things(database.dsn, conn)
        known = found.get(about.path.removeprefix("/bulk").split("/")[1], []) if parameter else []
        by = tokens(lambda dialogue: run(psycopg_door(conn), dialogue))

    with served(app) as url:

        @seed(request.config.getoption("randomly_seed"))
        @settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(
            case=st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in MODES)),
            who=st.sampled_from(["root", *ASKERS]),
            named=st.sampled_from([*known, *known, None]) if known else st.none(),
            any_version=st.booleans(),
            spoken=st.lists(st.sampled_from(examples), max_size=2) if examples else st.just([]),
        )
        def ask(case: Any, who: str, named: str | None, any_version: bool, spoken: list[tuple[str, str]]) -> None:
            if spoken:
                case.query = dict(spoken)
            if named is not None:
                case.path_parameters = {parameter: named}
            if any_version:
                case.query = dict(case.query or {}) | {"org": "acme"}  # a made-up one is nobody's
                if name in BODIES and case.media_type == "application/json":
                    case.body = BODIES[name]
            headers = {"authorization": f"Bearer {by[who]}"} | ({"if-match": "*"} if any_version else {})
            answer = case.call(base_url=url, headers=headers, timeout=30)
            statuses.add(answer.status_code)
            case.validate_response(answer, checks=CHECKS)

        ask()
    assert 401 not in statuses  # who asks is known
    by_chance = EXAMPLES < 100 or (about.writes and name not in BODIES)
    assert statuses & {200, 201} or by_chance, statuses  # it was asked in earnest
