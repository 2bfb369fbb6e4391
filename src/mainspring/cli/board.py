"""How `mainspring top` draws what it sees: made for 80 by 24, larger terminals show more rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mainspring.cli.output import line
from mainspring.db.pulse import MOST_COUNTED, Board, FailureCount, LanePulse, Pulse, WorkerLoad
from mainspring.text.sanitize import mask
from mainspring.text.span import span

BOARD_WIDTH, HEIGHT = 80, 24
BARS: Final = "▁▂▃▄▅▆▇█"
QUEUE_COLUMNS: Final = ("QUEUE", "READY", "RUNNING", "OLDEST", "TARGET", "")
WORKERS: Final = ("WORKER", "LOAD", "", "SEEN", "")
FAILURES: Final = ("FAILED", "LAST", "TIMES", "ERROR")
_FIXED_LINES: Final = 10  # lines that are always there: the numbers, three headings, the lines between them


def draw(
    name: str,
    pulse: Pulse,
    board: Board,
    history: Sequence[float],
    *,
    width: int = BOARD_WIDTH,
    height: int = HEIGHT,
    hint: str = "",
) -> RenderableType:
    """One frame."""
    rows = max(height - _FIXED_LINES - 1, 3)
    lanes = sorted((q for q in board.queues if q.ready or q.running or q.paused_by is not None), key=_urgency)
    workers = sorted(board.workers, key=lambda worker: (worker.gone, -worker.running))
    # Each part gets a third at least, and what the others leave.
    share = max(rows // 3, 1)
    most_lanes = max(share, rows - min(len(workers), share) - min(len(board.failures), share))
    most_workers = max(share, rows - min(len(lanes), most_lanes) - min(len(board.failures), share))
    most_failures = max(1, rows - min(max(len(lanes), 1), most_lanes) - min(max(len(workers), 1), most_workers))
    return Group(
        _head(name, pulse, hint),
        *_numbers(pulse, board, history),
        _section(QUEUE_COLUMNS, width, [_lane(lane) for lane in lanes[:most_lanes]], "all are idle"),
        _section(WORKERS, width, [_worker(worker) for worker in workers[:most_workers]], "none is alive"),
        _section(FAILURES, width, [_failure(failure) for failure in board.failures[:most_failures]], "nothing of late"),
    )


def _head(name: str, pulse: Pulse, hint: str) -> RenderableType:
    grid = Table.grid(expand=True)
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(Text(line(name), "bold"), Text(f"{hint}{pulse.until.astimezone():%H:%M:%S}", "dim"))
    return grid


def _numbers(p: Pulse, board: Board, history: Sequence[float]) -> list[RenderableType]:
    def rate(name: str, count: int, style: str = "") -> tuple[str, str]:
        return f"{name} {p.per_second(count):.1f}/s  ".replace(".0/s", "/s"), style if count else "dim"

    rates = Text.assemble(
        rate("enqueued", p.enqueued),
        rate("started", p.started),
        rate("succeeded", p.succeeded, "green"),
        rate("retried", p.retried, "yellow"),
        rate("failed", p.failed + p.dead, "red"),
        rate("rescued", p.rescued, "red") if p.rescued else "",
        no_wrap=True,
        overflow="ellipsis",
    )
    start = "no job started"
    if p.pickup_ms is not None and p.pickup_p95_ms is not None:
        start = f"starts after {span(p.pickup_ms / 1000)} (p95 {span(p.pickup_p95_ms / 1000)})"
    letters = board.dead_letters
    dead = f"{_count(letters)} dead letter{'s' * (letters != 1)}", "red" if letters else "dim"
    waits = Text.assemble(
        f"{start}  ready {_count(p.ready)} (+{_count(p.later)} later)  running {p.running}  ", dead,
        no_wrap=True, overflow="ellipsis",
    )  # fmt: skip
    return [rates, waits, *([Text(_spark(history), "green")] if any(history) else [])]


def _section(columns: Sequence[str], width: int, rows: Sequence[Sequence[Any]], empty: str) -> RenderableType:
    first, *others = columns
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", expand=True)
    grid.add_column(f"\n{first}", no_wrap=True, overflow="ellipsis", min_width=min(26, width // 3))
    for number, column in enumerate(others):
        last = number == len(others) - 1
        grid.add_column(
            f"\n{column}",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if last else None,
            justify="left" if last else "right",
        )
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else Text(line(mask(str(cell)))) for cell in row))
    if not rows:
        grid.add_row(Text(empty, "dim"))
    return grid


def _urgency(lane: LanePulse) -> tuple[Any, ...]:
    return -(lane.oldest_s or 0) if lane.late else 0, -lane.ready, -lane.running, lane.name


def _lane(lane: LanePulse) -> list[Any]:
    state = Text("late", "red") if lane.late else Text("")
    if lane.paused_by is not None:
        state = Text(f"paused{' by ' + line(lane.paused_by) if lane.paused_by else ''}", "yellow")
    return [lane.name, _count(lane.ready), lane.running, _span(lane.oldest_s), _span(lane.target_s), state]


def _worker(worker: WorkerLoad) -> list[Any]:
    load = min(worker.running / worker.concurrency, 1) if worker.concurrency else 0
    bar = Text("█" * round(load * 10), "green" if load < 0.9 else "yellow") + Text("░" * (10 - round(load * 10)), "dim")
    state = Text("gone", "red") if worker.gone else Text("stopping", "yellow") if worker.stopping else Text("")
    return [worker.id, bar, f"{worker.running}/{worker.concurrency}", _ago(worker.seen_s), state]


def _failure(failure: FailureCount) -> list[Any]:
    message = " ".join((failure.message or "").split())
    return [failure.task, _ago(failure.ago_s), f"{failure.count}", f"{failure.code}: {message}"]


def _span(seconds: float | None) -> str:
    return "" if seconds is None else span(seconds)


def _ago(seconds: float) -> str:
    return "now" if seconds < 1 else f"{span(round(seconds))} ago"


def _count(count: int) -> str:
    return f"{MOST_COUNTED:,}+" if count >= MOST_COUNTED else f"{count:,}"


def _spark(history: Sequence[float]) -> str:
    """What succeeded each second, as a line of bars, the latest at the right."""
    most = max(history)
    bars = "".join(BARS[min(round(value / most * (len(BARS) - 1)), len(BARS) - 1)] for value in history)
    return f"{bars} {most:.0f}/s at most"
