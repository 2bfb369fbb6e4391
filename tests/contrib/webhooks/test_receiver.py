"""The receiver's helper lets a message in once."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

import pytest
from tests.contrib.webhooks.table_signatures import BODY, NOW, OTHER, SECRET

from mainspring.contrib.standard_webhooks import standard
from mainspring.contrib.webhooks.receiver import Receiver, Replayed
from mainspring.errors import ConfigurationError, SignatureRefused


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def receiver(clock: Clock) -> Receiver:
    return Receiver([OTHER, SECRET], clock=clock)


def sent(id: str = "msg_1", at: datetime = NOW) -> dict[str, str]:
    return standard([SECRET], id, at, BODY)


def test_a_message_is_let_in_once(receiver: Receiver) -> None:
    with receiver.receive(sent(), BODY) as message:
        assert (message.id, message.sent_at, message.body) == ("msg_1", NOW, BODY)

    with pytest.raises(Replayed) as again, receiver.receive(sent(), BODY):
        pytest.fail("it came in again")
    assert again.value.handled
    with receiver.receive(sent("msg_2"), BODY):
        pass


def test_a_copy_never_passes_however_late_it_comes(receiver: Receiver, clock: Clock) -> None:
    copy = sent(at=NOW + timedelta(seconds=290))  # the sender's clock is ahead
    with receiver.receive(copy, BODY):
        pass

    for _ in range(100):
        clock.advance(10)
        with pytest.raises(SignatureRefused), receiver.receive(copy, BODY):
            pytest.fail("it came in again")


def test_a_copy_of_a_later_attempt_never_passes_either(receiver: Receiver, clock: Clock) -> None:
    with receiver.receive(sent(), BODY):
        pass
    clock.advance(250)
    later = sent(at=clock.now)  # the same message, sent again as our answer was lost
    for _ in range(40):
        with pytest.raises(SignatureRefused), receiver.receive(later, BODY):
            pytest.fail("it came in again")
        clock.advance(10)


def test_a_message_whose_work_failed_comes_again(receiver: Receiver) -> None:
    with pytest.raises(ZeroDivisionError), receiver.receive(sent(), BODY):
        raise ZeroDivisionError

    with receiver.receive(sent(), BODY) as message:
        assert message.id == "msg_1"


def test_a_message_in_hand_is_not_let_in_beside_itself_however_long_it_takes(receiver: Receiver, clock: Clock) -> None:
    with receiver.receive(sent(), BODY):
        for _ in range(3):
            with pytest.raises(Replayed) as again, receiver.receive(sent(at=clock.now), BODY):
                pytest.fail("it came in twice at once")
            assert not again.value.handled
            clock.advance(400)


def test_a_message_in_hand_is_not_swept_away(receiver: Receiver, clock: Clock) -> None:
    with receiver.receive(sent(), BODY):
        clock.advance(400)
        for n in range(1100):
            with receiver.receive(sent(f"other_{n}", clock.now), BODY):
                pass
        with pytest.raises(Replayed), receiver.receive(sent(at=clock.now), BODY):
            pytest.fail("it came in twice at once")


def test_of_many_threads_one_gets_the_message(receiver: Receiver) -> None:
    entered: list[int] = []
    together = threading.Barrier(16)

    def call(n: int) -> None:
        together.wait()
        try:
            with receiver.receive(sent(), BODY):
                entered.append(n)
        except Replayed:
            pass

    threads = [threading.Thread(target=call, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(entered) == 1


def test_a_forgery_is_refused_and_spoils_nothing(receiver: Receiver) -> None:
    with pytest.raises(SignatureRefused) as refused, receiver.receive(sent(), BODY + b" "):
        pytest.fail("it came in")
    assert not isinstance(refused.value, Replayed)

    with receiver.receive(sent(), BODY):
        pass


def test_ids_are_forgotten_when_their_messages_are_too_old_to_pass(receiver: Receiver, clock: Clock) -> None:
    for n in range(5000):
        with receiver.receive(sent(f"msg_{n}", clock.now), BODY):
            pass
        clock.advance(1)

    assert len(receiver._seen) < 2500


@pytest.mark.parametrize("secrets", [[], (), SECRET])
def test_secrets_are_a_list(secrets: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="secrets"):
        Receiver(secrets)


def test_a_secret_of_another_form_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="secret"):
        Receiver(["my secret"])
