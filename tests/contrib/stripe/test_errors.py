"""Every way in which Stripe refuses has one meaning for the job: try again, give up, or ask the customer."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest
import stripe as sdk
import stripe._error as sdk_errors
import stripe.oauth_error as sdk_oauth_errors

from mainspring import Failure, Permanent, RetryAfter
from mainspring.circuit import counts
from mainspring.codes import CODES
from mainspring.contrib.stripe import ActionRequired, Declined, OutcomeUnknown, RequestRefused
from mainspring.contrib.stripe.errors import failure
from mainspring.outcome import Failed
from mainspring.worker.classify import classify

CANARIES = ("sk_live_0123456789", "4242424242424242", "tok_visa_0123", "pi_1_secret_abc", "Jane Doe")
MESSAGE = " ".join(CANARIES)


def refusal(status: int | None, headers: dict[str, str] | None = None, **error: Any) -> Exception:
    """What the SDK raises for an answer."""
    body = {"error": {"message": MESSAGE, **error}}
    requestor = sdk.StripeClient(CANARIES[0])._requestor
    with pytest.raises(sdk.StripeError) as raised:
        requestor.handle_error_response(str(body), status, body, {"request-id": "req_1"} | (headers or {}), "V1")
    return raised.value


DECLINE: dict[str, Any] = {
    "type": "card_error",
    "code": "card_declined",
    "decline_code": "lost_card",
    "payment_intent": {"id": "pi_1"},
}
#: Status, error, headers → class, code, tried again, counted by the breaker.
TABLE: list[tuple[int, dict[str, Any], dict[str, str], type[Failure], str, bool, bool]] = [
    (402, DECLINE, {}, Declined, "CARD_DECLINED", False, False),
    (402, {"type": "card_error", "code": "expired_card"}, {}, Declined, "CARD_DECLINED", False, False),
    (402, {}, {}, Declined, "CARD_DECLINED", False, False),
    (402, DECLINE | {"code": "authentication_required"}, {}, ActionRequired, "PAYMENT_ACTION_REQUIRED", False, False),
    (
        402,
        DECLINE | {"decline_code": "authentication_required"},
        {},
        ActionRequired,
        "PAYMENT_ACTION_REQUIRED",
        False,
        False,
    ),
    (402, {"code": "requires_action_not_handled"}, {}, ActionRequired, "PAYMENT_ACTION_REQUIRED", False, False),
    (429, {}, {}, RetryAfter, "RATE_LIMITED", True, False),
    (429, {"code": "lock_timeout"}, {}, RetryAfter, "RATE_LIMITED", True, False),
    (400, {"code": "rate_limit"}, {}, RetryAfter, "RATE_LIMITED", True, False),
    (
        409,
        {"type": "idempotency_error", "code": "idempotency_key_in_use"},
        {},
        RetryAfter,
        "HttpException",
        True,
        False,
    ),
    (400, {"type": "idempotency_error"}, {}, Permanent, "IDEMPOTENCY_KEY_REUSED", False, False),
    (400, {"type": "invalid_request_error", "param": "amount"}, {}, RequestRefused, "VALIDATION_ERROR", False, False),
    (
        404,
        {"type": "invalid_request_error", "code": "resource_missing"},
        {},
        RequestRefused,
        "VALIDATION_ERROR",
        False,
        False,
    ),
    (405, {}, {}, RequestRefused, "VALIDATION_ERROR", False, False),
    (400, {"code": "balance_insufficient"}, {}, RetryAfter, "PROVIDER_BALANCE", True, False),
    (401, {}, {}, Permanent, "PROVIDER_CONFIGURATION", False, True),
    (403, {}, {}, Permanent, "PROVIDER_CONFIGURATION", False, True),
    (408, {}, {}, OutcomeUnknown, "HttpException", True, True),
    (424, {}, {}, OutcomeUnknown, "HttpException", True, True),
    (500, {"type": "api_error"}, {}, OutcomeUnknown, "HttpException", True, True),
    (502, {}, {}, OutcomeUnknown, "HttpException", True, True),
    (503, {}, {}, OutcomeUnknown, "HttpException", True, True),
    (302, {}, {}, OutcomeUnknown, "HttpException", True, True),
]


@pytest.mark.parametrize(
    ("status", "error", "headers", "kind", "code", "again", "counted"),
    TABLE,
    ids=[f"{row[0]}-{row[1].get('code') or row[1].get('type') or ''}" for row in TABLE],
)
def test_an_answer_has_one_meaning(
    status: int, error: dict[str, Any], headers: dict[str, str], kind: type, code: str, again: bool, counted: bool
) -> None:
    found = failure(refusal(status, headers, **error))

    assert type(found) is kind
    assert found.code == code
    assert code in CODES
    outcome = classify(found)
    assert isinstance(outcome, Failed)
    assert outcome.error.code == code
    assert (outcome.error.error_class == "retryable") is again
    assert counts(outcome, found) is counted
    assert not [canary for canary in CANARIES if canary in f"{found} {found!r} {found.__dict__}"]


ERRORS = [
    cls
    for module in (sdk_errors, sdk_oauth_errors)
    for _, cls in inspect.getmembers(module, inspect.isclass)
    if issubclass(cls, sdk.StripeError)
]


@pytest.mark.parametrize("cls", ERRORS, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
@pytest.mark.parametrize("status", [None, 200, 400, 402, 403, 409, 429, 500])
def test_every_class_of_the_sdk_has_a_meaning(cls: type[sdk.StripeError], status: int | None) -> None:
    error = cls.__new__(cls)
    Exception.__init__(error, MESSAGE)
    error.http_status, error.json_body, error.headers, error.code = status, {"error": {"message": MESSAGE}}, {}, None

    found = failure(error)

    if status is None or status == 200 or status >= 500:
        assert isinstance(found, OutcomeUnknown)  # nobody knows, so the same key is sent again
    else:
        assert isinstance(found, RetryAfter if status in {409, 429} else Permanent)
    assert not [canary for canary in CANARIES if canary in str(found)]


@pytest.mark.parametrize(
    "error",
    [TimeoutError(), ConnectionResetError(), OSError(MESSAGE), ValueError(MESSAGE), sdk.APIError(MESSAGE)],
)
def test_a_broken_line_is_an_unknown_outcome_that_the_breaker_counts(error: Exception) -> None:
    found = failure(error)

    assert isinstance(found, OutcomeUnknown)
    assert counts(classify(found), found)
    assert type(error).__name__ in str(found)
    assert MESSAGE not in str(found)


@pytest.mark.parametrize(("said", "seconds"), [("7", 7), ("0", 0), ("soon", 1), ("-1", 1), ("1e9", 1), (None, 1)])
def test_stripe_says_when_to_come_back(said: str | None, seconds: int) -> None:
    found = failure(refusal(429, {"Retry-After": said} if said is not None else {}))

    assert isinstance(found, RetryAfter)
    assert found.after.total_seconds() == seconds


def test_a_decline_tells_why_and_of_which_payment() -> None:
    found = failure(refusal(402, **DECLINE))

    assert isinstance(found, Declined)
    assert (found.decline_code, found.intent) == ("lost_card", "pi_1")
    assert "lost_card" in str(found)
    action = failure(refusal(402, **DECLINE | {"code": "authentication_required"}))
    assert isinstance(action, ActionRequired)
    assert action.intent == "pi_1"
    assert "confirm pi_1" in str(action)


def test_a_refusal_names_the_parameter_and_not_what_stood_there() -> None:
    found = failure(refusal(400, type="invalid_request_error", param="payment_method", code="resource_missing"))

    assert isinstance(found, RequestRefused)
    assert str(found) == "Stripe: 400 resource_missing at payment_method, request req_1"
    assert (found.param, found.reason, found.status) == ("payment_method", "resource_missing", 400)


@pytest.mark.parametrize("hostile", ["a b", "x" * 101, "pass\nword", {"a": 1}, 7, ["x"]])
def test_what_does_not_look_like_a_name_is_not_repeated(hostile: Any) -> None:
    found = failure(refusal(400, type="invalid_request_error", param=hostile, decline_code=None))

    assert str(found) == "Stripe: 400 invalid_request_error, request req_1"


@pytest.mark.parametrize("body", [None, "text", {}, {"error": None}, {"error": "text"}, {"error": []}, []])
def test_an_error_without_a_body_is_judged_by_its_status(body: Any) -> None:
    for status, kind in ((400, RequestRefused), (500, OutcomeUnknown)):
        assert type(failure(sdk.APIError("no", http_status=status, json_body=body))) is kind


def test_a_remembered_error_is_told_from_a_fresh_one() -> None:
    fresh, again = refusal(500), refusal(500, {"Idempotent-Replayed": "true"})

    assert [getattr(failure(error), "replayed", None) for error in (fresh, again)] == [False, True]
    # What Stripe remembers says nothing of how it is now: it must not keep a breaker open for a day.
    assert [failure(error).counts for error in (fresh, again)] == [True, False]


def test_failures_cross_process_borders() -> None:
    for error in (
        Declined(decline_code="lost_card", intent="pi_1"),
        ActionRequired(intent="pi_1"),
        failure(refusal(500)),
    ):
        back = pickle.loads(pickle.dumps(error))
        assert (type(back), str(back), back.__dict__) == (type(error), str(error), error.__dict__)


def test_every_code_has_a_plan() -> None:
    for code in ("CARD_DECLINED", "PAYMENT_ACTION_REQUIRED", "PROVIDER_CONFIGURATION", "PROVIDER_BALANCE"):
        assert CODES[code].plan.check.endswith((".", "?"))
