"""What a fresh clone fetches is what was pinned."""

from __future__ import annotations

import re

import pytest
from tests.docs.pages import ROOT


def test_setup_installs_nothing_from_elsewhere_without_its_hash() -> None:
    for line in (ROOT / "tools" / "setup").read_text().splitlines():
        for install in re.findall(r"pip install ([^|]*)", line):
            assert "--require-hashes -r" in install or "--no-deps --editable" in install, line


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-bench.txt", "tools/uv.txt"])
def test_every_requirement_has_one_version_and_a_hash(file: str) -> None:
    text = re.sub(r"(?m)^\s*#.*\n", "", (ROOT / file).read_text())
    requirements = re.split(r"(?m)^(?=\S)", text)[1:]

    assert requirements
    assert [one.split()[0] for one in requirements if "==" not in one.split()[0] or "--hash=sha256:" not in one] == []
