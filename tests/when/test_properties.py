"""What holds for every rule, zone and instant."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any
from zoneinfo import available_timezones

from hypothesis import assume, example, given
from hypothesis import strategies as st

import mainspring as ms
from mainspring.when.rule import Rule, Tick, rule_from_text

WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]

zones = st.sampled_from(
    ["UTC", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll", "America/Havana", "Pacific/Apia"]
) | st.sampled_from(sorted(available_timezones() - {"localtime"}))


def field(low: int, high: int, *more: str) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    spans = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    steps = st.tuples(spans | st.just("*"), st.integers(1, high - low)).map(lambda pair: f"{pair[0]}/{pair[1]}")
    term = st.just("*") | number.map(str) | spans | steps
    if more:
        term |= st.sampled_from(more)
    return st.lists(term, min_size=1, max_size=3).map(",".join)


fields = st.tuples(
    field(0, 59),
    field(0, 23),
    st.just("*") | field(1, 31, "L"),
    st.just("*") | field(1, 12, *MONTHS),
    st.just("*") | field(0, 6, "7", *WEEKDAYS, "5L", "WED#2", "SUN#5"),
)
crons = st.builds(
    lambda parts, **options: (" ".join(parts), options),
    fields,
    zone=zones,
    gap=st.sampled_from(["shift", "skip"]),
    overlap=st.sampled_from(["first", "last", "both"]),
).map(lambda made: _made(*made))
intervals = st.builds(
    ms.every,
    st.timedeltas(timedelta(seconds=1), timedelta(days=3653)),
    anchor=st.integers(-600_000_000, 4_000_000_000).map(lambda second: datetime.fromtimestamp(second, UTC)),
    zone=zones,
)
instants = st.integers(150_000_000_000_000, 3_900_000_000_000_000).map(
    lambda microseconds: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
)
spans = st.timedeltas(timedelta(0), timedelta(days=40))


def _made(text: str, options: Any) -> Rule | None:
    try:
        return ms.cron(text, **options)
    except ms.ValidationError as error:
        if "never comes" in str(error):
            return None
        raise  # nothing else can be wrong here


rules = crons.filter(lambda rule: rule is not None) | intervals


@given(rules, instants)
@example(ms.daily("02:30", zone="America/New_York"), datetime(2026, 3, 8, 6, 59, 59, 999_999, tzinfo=UTC))
@example(ms.daily("01:30", zone="America/New_York", overlap="both"), datetime(2026, 11, 1, 5, 30, tzinfo=UTC))
def test_next_is_strictly_later_always(rule: Rule, after: datetime) -> None:
    at = after
    for _ in range(20):
        tick = rule.next(at)
        if tick is None:
            break
        assert tick.at > at
        assert tick.at == tick.local.astimezone(UTC)
        at = tick.at


@given(rules, instants, spans)
def test_ticks_are_what_next_says_again_and_again(rule: Rule, after: datetime, span: timedelta) -> None:
    walked: list[Tick] = []
    tick = rule.next(after)
    while tick is not None and tick.at <= after + span and len(walked) < 200:
        walked.append(tick)
        tick = rule.next(tick.at)

    ticks = list(islice(rule.ticks(after, after + span), 200))

    assert ticks == walked
    assert all(earlier.at < later.at for earlier, later in pairwise(ticks))


@given(rules, instants, spans)
def test_last_is_the_last_of_the_ticks(rule: Rule, after: datetime, span: timedelta) -> None:
    assume(rule.kind == "cron" or (rule.interval or span) > timedelta(minutes=1))
    last = None
    for tick in rule.ticks(after, after + span):
        last = tick

    assert rule.last(after, after + span) == last
    if last is not None:
        assert rule.last(after, last.at) == last
        assert rule.next(last.at - timedelta(microseconds=1)) == last


@given(rules)
def test_a_stored_rule_comes_back_equal(rule: Rule) -> None:
    back = Rule.from_json(json.loads(json.dumps(rule.to_json())))

    assert back == rule
    assert hash(back) == hash(rule)
    assert back.to_json() == rule.to_json()


@given(rules, zones)
def test_a_rule_moves_to_any_zone_and_says_itself_in_words(rule: Rule, zone: str) -> None:
    moved = rule.in_zone(zone)

    assert moved.zone == zone
    assert moved.in_zone(rule.zone) == rule
    assert moved.describe().isprintable()
    assert rule.kind == "every" or f"({zone})" in moved.describe()


@given(crons.filter(lambda rule: rule is not None), instants)
def test_rules_with_equal_words_tick_alike(rule: Rule, after: datetime) -> None:
    assert rule.expression is not None
    again = rule_from_text(rule.expression.lower(), zone=rule.zone, gap=rule.gap, overlap=rule.overlap)

    assert again == rule
    assert again.next(after) == rule.next(after)


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from("0123456789*/,-#LW?@ \t\0SUNMON\N{ARABIC-INDIC DIGIT THREE}"), max_size=40).map("".join)
)
def test_any_text_is_a_rule_or_one_refusal(text: str) -> None:
    try:
        rule = rule_from_text(text)
    except ms.ValidationError as error:
        refused = error
    else:
        assert rule.next(datetime(2026, 1, 1, tzinfo=UTC)) is not None
        return

    assert refused.field in {"expression", "interval"}
    assert str(refused).isprintable()
