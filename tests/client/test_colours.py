from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from mainspring import AsyncClient, Client


def verbs(kind: type) -> dict[str, Callable[..., Any]]:
    return {name: member for name, member in vars(kind).items() if inspect.isfunction(member) and name[0] != "_"}


def test_both_colours_have_the_same_verbs_parameters_and_words() -> None:
    sync, colourful = verbs(Client), verbs(AsyncClient)

    assert list(sync) == list(colourful)
    assert len(sync) > 15
    for name, verb in sync.items():
        assert inspect.signature(verb) == inspect.signature(colourful[name]), name
        assert verb.__doc__ == colourful[name].__doc__, name
        assert verb.__doc__, name
        assert inspect.iscoroutinefunction(colourful[name]), name
        assert not inspect.iscoroutinefunction(verb), name
    assert inspect.signature(Client) == inspect.signature(AsyncClient)


@pytest.mark.rule("ENG-18.06")
def test_the_core_brings_no_web_framework_and_no_other_library_s_driver() -> None:
    program = """
import sys
import mainspring, mainspring.app, mainspring.client, mainspring.db.adopt, mainspring.worker
frameworks = "starlette fastapi uvicorn aiohttp flask django litestar tornado quart sanic http.server".split()
drivers = "sqlalchemy psycopg2 asyncpg".split()
print(*[name for name in frameworks + drivers if name in sys.modules])
"""
    seen = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert seen.stdout.split() == []
