from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from mainspring.checks import check_envelope, check_job, clean_traceparent
from mainspring.errors import PayloadTooLarge, ValidationError
from mainspring.job import NewJob
from mainspring.text.document import MAX_BYTES, MAX_DEPTH, check_payload, payload_key, read_payload, stable_hash
from mainspring.text.texts import did_you_mean

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PROJECT = UUID(int=5)
JOB = NewJob(
    task="greet",
    payload=msgspec.Raw(b'{"name":"Ada"}'),
    id=UUID(int=7),
    org_id="acme",
    actor_type="user",
    actor_id="7",
    request_id="r-1",
    correlation_id="c-1",
    created_at=NOON,
)

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


def refusal(job: NewJob) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        check_job(job)
    assert str(caught.value).startswith(f"{caught.value.field}: ")
    return caught.value


def payload_refusal(raw: bytes) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        check_payload(raw)
    assert str(caught.value).startswith(f"{caught.value.field}: ")
    return caught.value


def refused_field(check: Callable[[], None]) -> str | None:
    try:
        check()
    except ValidationError as error:
        return error.field
    return None


# --- the envelope


def test_a_complete_job_passes_and_so_does_one_that_leaves_its_caller_to_the_context() -> None:
    check_job(JOB)
    check_job(NewJob(task="greet", payload=msgspec.Raw(b"{}")))


@pytest.mark.rule("ENG-2.01")
@pytest.mark.parametrize("field", ["task", "queue", "org_id", "actor_id", "request_id", "correlation_id", "key"])
@pytest.mark.parametrize(
    "value",
    ["", " ", "\t", "a\nb", "a\0b", "\x1b[31m", "\ud800", "\u202eabc", "x" * 1_000_000, 7, ["x"], b"x"],
    ids=lambda value: repr(value)[:12],
)
def test_a_field_that_is_empty_or_unfit_is_refused_by_name(field: str, value: object) -> None:
    error = refusal(replace(JOB, **{field: value}))

    assert error.code == "VALIDATION_ERROR"
    assert error.field == field
    assert len(str(error)) < 100


@pytest.mark.rule("ENG-2.01")
@pytest.mark.parametrize("field", ["task", "queue", "payload", "actor_type", "actor_id"])
def test_a_field_that_is_missing_is_refused_by_name(field: str) -> None:
    assert refusal(replace(JOB, **{field: None})).field == field


@pytest.mark.parametrize("field", ["task", "org_id", "actor_id", "request_id", "correlation_id", "key"])
@pytest.mark.parametrize(
    "value",
    ["'; DROP TABLE x; --", "%s", "{}", "$1", "\\", "<script>", "=cmd|", "../", "null", "été", "👨‍👩‍👧", "os.system"],
)
def test_a_strange_but_printable_field_passes(field: str, value: str) -> None:
    check_job(replace(JOB, **{field: value}))


@pytest.mark.parametrize(
    ("field", "limit"),
    [("task", 200), ("queue", 63), ("org_id", 200), ("actor_id", 200), ("request_id", 200), ("key", 512)],
)
def test_a_text_may_be_as_long_as_its_limit(field: str, limit: int) -> None:
    check_job(replace(JOB, **{field: "x" * limit}))

    assert refusal(replace(JOB, **{field: "x" * (limit + 1)})).field == field


@pytest.mark.parametrize("field", ["id", "project_id", "parent_id"])
def test_an_id_is_a_uuid(field: str) -> None:
    check_job(replace(JOB, **{field: UUID(int=1)}))

    assert refusal(replace(JOB, **{field: "00000000-0000-0000-0000-000000000001"})).field == field


@pytest.mark.rule("ENG-2.02")
def test_a_task_of_projects_needs_a_project() -> None:
    check_job(replace(JOB, project_id=PROJECT))
    check_job(replace(JOB, project_scoped=True, project_id=PROJECT))

    assert refusal(replace(JOB, project_scoped=True)).field == "project_id"


@pytest.mark.rule("ENG-2.03")
def test_a_due_time_and_a_trace_are_welcome_and_not_needed() -> None:
    check_job(replace(JOB, scheduled_for=NOON, traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
    check_job(replace(JOB, scheduled_for=None, traceparent=None))


@pytest.mark.rule("ENG-2.04")
def test_an_actor_is_a_user_the_system_or_an_api_key() -> None:
    for known in ("user", "system", "api_key"):
        check_job(JOB.by("7", known))
    check_job(JOB.by(UUID(int=1)))

    error = refusal(replace(JOB, actor_type="robot"))
    assert (error.code, error.field) == ("VALIDATION_ERROR", "actor_type")


@pytest.mark.rule("ENG-11.03")
@pytest.mark.parametrize("priority", [-1, 4, 7, True, 1.0, "1", None])
def test_a_priority_is_a_number_from_zero_to_three(priority: Any) -> None:
    for fine in range(4):
        check_job(JOB.with_priority(fine))

    error = refusal(JOB.with_priority(priority))
    assert (error.code, error.field) == ("VALIDATION_ERROR", "priority")


@pytest.mark.parametrize("limit", [0, -1, 1001, False, "5"])
def test_attempts_are_bounded(limit: Any) -> None:
    check_job(replace(JOB, max_attempts=1))
    check_job(replace(JOB, max_attempts=1000))

    assert refusal(replace(JOB, max_attempts=limit)).field == "max_attempts"


def test_nothing_is_enqueued_to_the_dead_letter_queue() -> None:
    assert refusal(JOB.on_queue("q:deadletter")).field == "queue"


@pytest.mark.parametrize("field", ["scheduled_for", "created_at"])
@pytest.mark.parametrize(
    "value",
    [datetime(2026, 1, 1), datetime(2201, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC), "2026-01-01"],  # noqa: DTZ001
)
def test_a_time_has_a_zone_and_lies_before_2201(field: str, value: Any) -> None:
    assert refusal(replace(JOB, **{field: value})).field == field


@pytest.mark.parametrize("delay", [timedelta(days=4000), timedelta(seconds=-1), 60])
def test_a_delay_lies_between_nothing_and_ten_years(delay: Any) -> None:
    check_job(replace(JOB, delay=timedelta(days=3653)))

    assert refusal(replace(JOB, delay=delay)).field == "delay"


def test_a_job_has_a_due_time_or_a_delay_but_not_both() -> None:
    assert refusal(replace(JOB, delay=timedelta(1), scheduled_for=NOON)).field == "delay"


@pytest.mark.rule("ENG-13.06")
def test_a_task_that_cannot_be_scheduled_refuses_a_due_time_and_a_delay() -> None:
    job = replace(JOB, schedulable=False)
    check_job(job)

    for scheduled in (job.at(NOON), job.after(5)):
        error = refusal(scheduled)
        assert (error.code, error.field) == ("VALIDATION_ERROR", "scheduled_for")


def test_a_mode_needs_a_key() -> None:
    check_job(JOB.with_key("k"))
    check_job(JOB.with_key("k", "keep"))
    check_job(replace(JOB, mode="window", by_payload=True))

    assert refusal(replace(JOB, mode="keep")).field == "key"
    assert refusal(replace(JOB, reset=True)).field == "key"


def test_debounce_needs_to_know_how_long() -> None:
    job = JOB.with_key("k", "debounce")
    check_job(replace(job, wait=timedelta(seconds=5)))

    assert refusal(job).field == "wait"
    assert refusal(replace(job, wait=timedelta(seconds=-5))).field == "wait"


def test_an_unknown_mode_is_refused_with_the_nearest_one() -> None:
    error = refusal(replace(JOB, key="k", mode="replaces"))

    assert error.field == "mode"
    assert "did you mean 'replace'?" in str(error)


@given(st.dictionaries(st.sampled_from(NewJob.__struct_fields__), scalars | st.lists(st.text()), max_size=4))
def test_a_job_of_arbitrary_values_is_refused_by_name_or_passes(fields: dict[str, Any]) -> None:
    assert refused_field(lambda: check_envelope(replace(JOB, **fields))) in (None, *NewJob.__struct_fields__)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", True),
        ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", False),
        ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", False),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", False),
        ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7-01", False),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\n", False),
        ("\0", False),
        ("", False),
        (None, False),
        (7, False),
    ],
)
def test_a_broken_trace_is_dropped(value: object, kept: bool) -> None:
    assert clean_traceparent(value) == (value if kept else None)


# --- the payload


@pytest.mark.rule("ENG-2.11")
def test_a_payload_is_bounded_in_bytes() -> None:
    frame = len(b'{"a":""}')
    check_payload(b'{"a":"%s"}' % (b"x" * (MAX_BYTES - frame)))

    with pytest.raises(PayloadTooLarge, match=r"^payload: ") as caught:
        check_payload(b'{"a":"%s"}' % (b"x" * (MAX_BYTES - frame + 1)))
    assert caught.value.code == "PAYLOAD_TOO_LARGE"


@pytest.mark.rule("ENG-2.01")
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"7",
        b'"text"',
        b"[]",
        b"{",
        b'{"a":}',
        b'{"a":1,}',
        b"{'a':1}",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":1e400}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":01}',
        b'{"a":"\xff"}',
        b'{"a":"\xc0\x80"}',  # overlong NUL
        b'{"a":"\xed\xa0\x80"}',  # a surrogate as UTF-8
        b'{"a":"\\ud800"}',
        b'{"a":"\\udc00\\ud800"}',
        b'{"a":"\x00"}',
        b"\xef\xbb\xbf{}",
        '{"a":1}'.encode("utf-16"),
        b"{} {}",
        b"\x80\x04\x95",  # a pickle
    ],
)
def test_what_is_not_a_json_object_is_refused(raw: bytes) -> None:
    assert payload_refusal(raw).field == "payload"


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (rb'{"a":"\u0000"}', "payload.a"),
        (rb'{"items":[1,2,3,{"name":"x\u0000y"}]}', "payload.items[3].name"),
        (rb'{"a":{"b\u0000":1}}', "payload.a.b\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_nul_is_found_wherever_it_hides(raw: bytes, field: str) -> None:
    assert payload_refusal(raw).field == field


def test_nesting_is_bounded_and_brackets_in_texts_do_not_count() -> None:
    def nested(depth: int) -> bytes:
        return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"

    check_payload(nested(MAX_DEPTH))
    check_payload(b'{"a":"%s","b":"\\"%s"}' % (b"[{" * 1000, b"[" * 1000))
    check_payload(b'{"a":[%s]}' % b",".join([b"[]"] * 1000))

    for depth in (MAX_DEPTH + 1, 1000, 6000, 100_000):
        assert "deeper" in str(payload_refusal(nested(depth)))


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b' {"a" : 1}\n',
        b'{"":1}',
        b'{"a":-0}',
        b'{"a":9007199254740993}',
        b'{"a":' + b"9" * 401 + b"}",
        b'{"__proto__":1,"constructor":2}',
        '{"a":"\u202e\u200b"}'.encode(),
        rb'{"a":"\ud83d\ude00"}',
        rb'{"a":"tab\t \"quoted\" \\u0000 is four letters"}',
        b'{"%s":1}' % (b"k" * 65536),
    ],
)
def test_what_can_be_stored_and_read_back_passes(raw: bytes) -> None:
    check_payload(raw)


@given(st.dictionaries(st.text(), values))
@example({"password": "\0"})
def test_arbitrary_json_is_refused_by_name_or_passes(value: dict[str, Any]) -> None:
    raw = json.dumps(value).encode()
    field = refused_field(lambda: check_payload(raw))

    if field is None:
        assert b"\\u0000" not in raw.replace(b"\\\\", b"")
        msgspec.json.decode(raw)
    else:
        assert field.startswith("payload")


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_pass(raw: bytes) -> None:
    if refused_field(lambda: check_payload(raw)) is None:
        assert isinstance(msgspec.json.decode(raw), dict)


@pytest.mark.rule("ENG-19.06")
@pytest.mark.parametrize(
    "key",
    [
        "password",
        "secret",
        "token",
        "api_key",
        "PASSWORD",
        "apiKey",
        "api-key",
        "stripe_secret",
        "access_token",
        "accessToken",
        "smtp_password",
        "passphrase",
        "db_pwd",
        "private_key",
        "credentials",
        r"p\u0061ssword",
    ],
)
@pytest.mark.parametrize("frame", ['{"%s":"x"}', '{"a":[{"b":{"%s":null}}]}'])
def test_a_key_named_like_a_secret_is_refused(key: str, frame: str) -> None:
    error = payload_refusal((frame % key).encode())

    assert error.code == "VALIDATION_ERROR"
    assert error.field.endswith(json.loads(f'"{key}"'))
    assert "reference" in str(error)


@pytest.mark.parametrize(
    "key",
    ["token_count", "tokens", "secret_ref", "secretary", "key", "idempotency_key", "monkey", "password_changed_at"],
)
def test_a_key_that_only_sounds_like_a_secret_passes(key: str) -> None:
    check_payload(b'{"%s":"x"}' % key.encode())


@pytest.mark.rule("ENG-19.06")
@pytest.mark.parametrize(
    "value",
    [
        "sk_live_4eC39HqLyjWDarjtT1zdp7dc",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "key: eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
        "AKIAIOSFODNN7EXAMPLE",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
    ],
)
def test_a_value_shaped_like_a_credential_is_refused(value: str) -> None:
    error = payload_refusal(json.dumps({"note": [value]}).encode())

    assert error.field == "payload.note[0]"
    assert value not in str(error)


def test_a_task_may_allow_a_field_that_is_no_secret() -> None:
    job = replace(JOB, payload=msgspec.Raw(b'{"csrf_token":"x"}'))

    assert refusal(job).field == "payload.csrf_token"
    check_job(replace(job, allow_secrets=("csrf_token",)))


def test_an_allowed_field_is_still_checked_for_nul() -> None:
    with pytest.raises(ValidationError, match=r"^payload\.csrf_token\[0\]: has a NUL"):
        check_payload(rb'{"csrf_token":["\u0000"]}', ("csrf_token",))


def test_a_refusal_does_not_repeat_a_long_name() -> None:
    assert len(str(payload_refusal(b'{"%s_password":1}' % (b"x" * 1000)))) < 200


@pytest.mark.parametrize("text", ['{"id":1,"id":2}', '{"a":{"id":1,"\\u0069d":1}}'])
def test_a_typed_payload_with_a_repeated_key_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match=r"^payload\.id: appears twice"):
        read_payload(text)


@pytest.mark.parametrize("text", ["", "[]", '{"a":NaN}', '{"a":"\ud800"}', b"\xff", '{"password":"x"}', "[" * 10_000])
def test_a_typed_payload_is_checked_like_any_other(text: str | bytes) -> None:
    with pytest.raises(ValidationError, match=r"^payload"):
        read_payload(text)


def test_a_typed_payload_is_kept_as_it_was_typed() -> None:
    assert bytes(read_payload('{"b": 1.10, "a": [{}, {}]}')) == b'{"b": 1.10, "a": [{}, {}]}'


# --- keys from payloads

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=8,
)


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@pytest.mark.rule("ENG-4.14")
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), plain))
def test_the_hash_does_not_depend_on_the_order_of_keys_nor_on_blanks(value: dict[str, Any]) -> None:
    compact, spaced = json.dumps(value).encode(), json.dumps(reordered(value), indent=2, ensure_ascii=False).encode()

    assert stable_hash(compact) == stable_hash(spaced)
    assert len(stable_hash(compact)) == 64
    assert stable_hash(compact) == stable_hash(compact).lower()


@pytest.mark.rule("ENG-4.14")
@given(
    st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.just(UTC)),  # noqa: DTZ001
    st.integers(-23 * 60, 23 * 60),
)
def test_the_hash_does_not_depend_on_the_offset_of_a_timestamp(when: datetime, offset: int) -> None:
    elsewhere = when.astimezone(timezone(timedelta(minutes=offset)))
    spellings = [when.isoformat(), elsewhere.isoformat(), when.isoformat().replace("+00:00", "Z")]

    assert len({stable_hash(json.dumps({"at": [text]}).encode()) for text in spellings}) == 1


@pytest.mark.rule("ENG-4.14")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"a": "1"}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": {"b": 1}}, {"b": {"a": 1}}),
        ({"at": "2026-01-01T12:00:00Z"}, {"at": "2026-01-01T12:00:01Z"}),
        ({"at": "2026-01-01T12:00:00Z"}, {"at": "2026-01-01T12:00:00+01:00"}),
        ({"at": "2026-01-01T12:00:00.0000001Z"}, {"at": "2026-01-01T12:00:00.0000002Z"}),
        ({"at": "2026-01-01T12:00:00Z"}, {"at": "2026-01-01T12:00:00"}),
    ],
)
def test_different_payloads_have_different_hashes(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert stable_hash(json.dumps(one).encode()) != stable_hash(json.dumps(other).encode())


@pytest.mark.parametrize("odd", ["2026-13-45T25:61:61Z", "2026-12-31T23:59:60Z", "0001-01-01T00:00:00+10:00"])
def test_what_only_looks_like_a_timestamp_is_hashed_as_it_is(odd: str) -> None:
    assert len(stable_hash(json.dumps({"at": odd}).encode())) == 64


def test_a_broken_payload_has_no_hash() -> None:
    with pytest.raises(ValidationError, match=r"^payload: "):
        stable_hash(b"{")


@pytest.mark.rule("ENG-4.13")
def test_a_key_from_the_payload_has_four_parts_with_a_project_and_three_without() -> None:
    digest = stable_hash(b"{}")

    assert payload_key("greet", "acme", PROJECT, b"{}") == f"greet:acme:{PROJECT}:{digest}"
    assert payload_key("greet", "acme", None, b"{}") == f"greet:acme:{digest}"
    check_job(replace(JOB, key=payload_key("t" * 200, "o" * 200, PROJECT, b"{}")))


def test_a_near_word_is_offered_and_a_far_one_is_not() -> None:
    assert did_you_mean("retires", ["retry", "queue"]) == " (did you mean 'retry'?)"
    assert did_you_mean("xyz", ["retry", "queue"]) == ""
