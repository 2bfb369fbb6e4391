"""For those who receive webhooks: verifies what came, and refuses what came before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from mainspring.contrib.standard_webhooks import WEBHOOK_TOLERANCE, Message, key, verify
from mainspring.errors import ConfigurationError, SignatureRefused
from mainspring.text.span import Span, configured_span


class Replayed(SignatureRefused):
    """This message came before."""

    handled: bool  # whether it was dealt with, or still is in hand


class Receiver:
    """Receives webhooks in any framework: give it the headers and the raw body.

    ::

        receiver = Receiver([os.environ["WEBHOOK_SECRET"]])

        async def hook(request):  # of Starlette, say
            try:
                with receiver.receive(request.headers, await request.body()) as message:
                    await act_on(message.id, message.body)
            except Replayed as again:
                return Response(status_code=200 if again.handled else 409)
            except SignatureRefused:
                return Response(status_code=401)
            return Response(status_code=204)

    A message whose block raises is forgotten again, so that the sender's next attempt is not taken for a replay. Ids
    are kept in this process for as long as a copy of the message would pass; keep them in your database, in the
    transaction of their effect, to tell the attempts of a whole day apart, or for several processes.
    """

    def __init__(
        self,
        secrets: Sequence[str],
        *,
        tolerance: Span = WEBHOOK_TOLERANCE,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if isinstance(secrets, str) or not secrets:
            raise ConfigurationError("secrets: is not a list of secrets")
        for secret in secrets:
            key(secret)
        self._secrets, self._clock = tuple(secrets), clock
        self._tolerance = configured_span("tolerance", tolerance)
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[datetime, bool]] = {}  # id → (until when a copy would pass, handled)
        self._sweep_at = 1024

    @contextmanager
    def receive(self, headers: Mapping[str, str], body: bytes) -> Iterator[Message]:
        """The message, for the length of the block; SignatureRefused or Replayed before it begins."""
        now = self._clock()
        message = verify(headers, body, self._secrets, now=now, tolerance=self._tolerance)
        until = message.sent_at + self._tolerance
        with self._lock:
            self._sweep(now)
            kept, handled = self._seen.get(message.id, (until, None))
            if handled is False or (handled and kept >= now):
                # Another attempt has a later time: a copy of it would pass for longer than one of the first.
                self._seen[message.id] = max(kept, until), handled
                raise Replayed("the message came before", handled=handled)
            self._seen[message.id] = until, False
        try:
            yield message
        except BaseException:
            with self._lock:
                del self._seen[message.id]
            raise
        with self._lock:
            self._seen[message.id] = self._seen[message.id][0], True

    def _sweep(self, now: datetime) -> None:
        """Forget what would be refused for its age; at a doubled size, so that it costs little a message."""
        if len(self._seen) >= self._sweep_at:
            self._seen = {id: kept for id, kept in self._seen.items() if kept[0] >= now or not kept[1]}
            self._sweep_at = max(1024, 2 * len(self._seen))
