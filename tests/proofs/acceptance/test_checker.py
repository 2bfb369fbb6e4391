"""The checker of the crash test sees each kind of wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.proofs.chaos.checker import Effect, check

ACKED = "job 100.0\n"


def judge(folder: Path, ledger: list[Effect], **files: str) -> str:
    for name, text in files.items():
        (folder / f"{name}-0.txt").write_text(text)
    return check(folder, ledger).faults


def test_an_effect_for_each_acknowledged_job_is_clean(tmp_path: Path) -> None:
    worker = "start job 1 0.0\nstart job 2 0.0\ncommitted job 2 0.0\nplain other 3 0.0\n"
    assert judge(tmp_path, [("job", 2, None, 101.0)], acked=ACKED + "other 0.0\n", worker=worker) == ""


def test_an_ambiguous_enqueue_may_or_may_not_have_happened(tmp_path: Path) -> None:
    ledger: list[Effect] = [("job", 1, None, 101.0), ("perhaps", 2, None, 101.0)]
    assert judge(tmp_path, ledger, acked=ACKED, unsure="perhaps X\nperhaps-not X\n") == ""


@pytest.mark.parametrize(
    ("ledger", "worker", "wrong"),
    [
        ([], "", "lost=1"),
        ([("job", 2, None, 101.0)], "committed job 2 0.0\ncommitted gone 3 0.0\n", "lost=1"),
        ([("job", 1, None, 101.0), ("job", 1, None, 102.0)], "", "doubled=1"),
        ([("job", 1, None, 101.0), ("a", 2, "once:7", 101.0), ("b", 3, "once:7", 101.0)], "", "doubled=1"),
        ([("job", 1, None, 101.0)], "start job 1 0.0\nstart job 2 0.0\ncommitted job 1 0.0\n", "stale=1"),
        ([("job", 1, None, 101.0), ("stranger", 2, None, 101.0)], "", "unexpected=1"),
        ([("job", 1, None, 101.0), ("undone", 2, None, 101.0)], "", "unexpected=1"),
        ([("job", 1, None, 99.5)], "", "early=1"),
    ],
)
def test_it_sees_what_is_wrong(tmp_path: Path, ledger: list[Effect], worker: str, wrong: str) -> None:
    seen = judge(tmp_path, ledger, acked=ACKED, unsure="a X\nb X\ngone X\n", undone="undone X\n", worker=worker)
    assert seen == wrong
