"""Encryption of what jobs carry: payloads, results, errors, and what long jobs remember.

AES-256-GCM with a random nonce, under a key of the organisation that a master key wraps. The ciphertext is bound to its
place (organisation, task, job, and what it is of that job), so that one that was moved there from elsewhere is refused.
Nothing here knows the database: `mainspring.db.cipher` keeps the wrapped keys.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from mainspring.errors import ConfigurationError, Erased, Unreadable
from mainspring.extras import needs
from mainspring.job import DEFAULT_ORG, Claim, Job, NewJob
from mainspring.outcome import Error
from mainspring.text.document import payload_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

#: How an encrypted value begins, as a client writes it and as PostgreSQL prints it.
SEALED: Final = '{"$mainspring":'
_KEY_BYTES: Final = 32
#: What stands in place of the message of an encrypted error.
HIDDEN: Final = "(encrypted)"
_NONCE: Final = 12
_STACK: Final = 3500  # with the message, an error stays within 8 KiB when it is encrypted as well
#: Modes whose payload may be handed to an older job of the key: it is bound to the key, not to the id.
_HANDED_ON: Final = ("reset_failed", "replace", "debounce")
_encode: Final = msgspec.json.Encoder().encode
_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode


class MasterKey(Protocol):
    """What wraps the keys of organisations: a key in memory, or a hook to a key management service.

    Called in a thread, at most once in half a minute for each organisation. `about` is authenticated with the key.
    """

    def wrap(self, key: bytes, about: bytes) -> bytes:
        """Encrypt a key."""

    def unwrap(self, wrapped: bytes, about: bytes) -> bytes:
        """Decrypt a key, or raise."""


class Cipher:
    """Encrypts what jobs carry; give it to `App`, `Client` or `Worker`.

    ::

        app = ms.App(tasks, cipher=ms.Cipher())  # MAINSPRING_MASTER_KEY, or the file MAINSPRING_MASTER_KEY_FILE

    `master` is 32 bytes, in base64 where it is text, or a `MasterKey`. `older` ones open what they wrapped before.
    `accept_plain` lets workers run what is not encrypted and should be: jobs from before the cipher, or of SQL.
    """

    def __init__(
        self, master: str | bytes | MasterKey | None = None, *older: str | bytes, accept_plain: bool = False
    ) -> None:
        self.accept_plain = accept_plain
        if master is None:
            master = _from_environment()
        keys = [master, *older]
        self.master = _Local(keys) if isinstance(master, str | bytes) else master

    @staticmethod
    def new_master_key() -> str:
        """A new master key, to be kept where secrets are kept.

        >>> len(base64.b64decode(Cipher.new_master_key()))
        32
        """
        return base64.b64encode(os.urandom(_KEY_BYTES)).decode()

    def new_key(self, org: str, key_id: str) -> bytes:
        """A new key for an organisation, wrapped."""
        return self.master.wrap(os.urandom(_KEY_BYTES), _about_key(org, key_id))

    def unwrap(self, org: str, key_id: str, wrapped: bytes) -> bytes:
        """A key of an organisation."""
        return self.master.unwrap(wrapped, _about_key(org, key_id))


class SealedPlace(NamedTuple):
    """Where an encrypted value belongs."""

    org: str
    task: str
    id: str
    key: str

    @classmethod
    def of(cls, job: Claim | Job) -> SealedPlace:
        """The place of a job that exists."""
        return cls(job.org_id, job.task, str(job.id), job.idempotency_key)


class _Envelope(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    v: Literal[1]
    key: str
    nonce: str
    data: str
    bound: Literal["id", "key"] = "id"
    fingerprint: str = ""  # of a payload under a key of its own: equal payloads have equal ones


class _Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"envelope": "$mainspring"}):
    envelope: _Envelope


_read: Final = msgspec.json.Decoder(_Sealed).decode


class OrgKeys:
    """The keys of one organisation, oldest first; without a cipher only their names."""

    def __init__(self, org: str, secrets: Mapping[str, bytes | None], current: str | None) -> None:
        self.org, self.current, self._secrets = org, current, secrets
        self._ciphers: dict[str, AESGCM] = {}

    def __contains__(self, key_id: object) -> bool:
        return key_id in self._secrets

    def seal(
        self, place: SealedPlace, what: str, text: str, *, bound: Literal["id", "key"] = "id", fingerprint: str = ""
    ) -> str:
        """Encrypt a JSON text for its place."""
        assert self.current is not None
        nonce = os.urandom(_NONCE)
        envelope = _Envelope(1, self.current, _b64(nonce), "", bound, fingerprint)
        data = self._cipher(self.current).encrypt(nonce, text.encode(), _authenticated(envelope, place, what))
        return _encode(_Sealed(replace(envelope, data=_b64(data)))).decode()

    def open(self, place: SealedPlace, what: str, text: str) -> str:
        """Decrypt what was sealed for this very place, or say why not."""
        try:
            envelope = _read(text).envelope
            nonce, data = _unb64(envelope.nonce), _unb64(envelope.data)
        except (msgspec.DecodeError, UnicodeError, ValueError):
            raise Unreadable(f"{what}: is no envelope that this version writes") from None
        if envelope.key not in self:
            raise Erased(f"{what}: its key no longer exists: organisation {place.org} was erased")
        cipher = self._cipher(envelope.key)
        from cryptography.exceptions import InvalidTag

        try:
            return cipher.decrypt(nonce, data, _authenticated(envelope, place, what)).decode()
        except (InvalidTag, ValueError):
            raise Unreadable(f"{what}: was changed, or belongs to another job or organisation") from None

    def fingerprint(self, task: str, payload: bytes | msgspec.Raw) -> str:
        """The same for equal payloads of a task, and meaningless without the organisation's oldest key."""
        canonical = _encode_sorted(msgspec.json.decode(payload))
        return hmac.digest(self._fingerprints, task.encode() + b"\0" + canonical, "sha256").hex()

    @cached_property
    def _fingerprints(self) -> bytes:
        # The oldest key: it stays when keys are rotated, and equal payloads stay equal.
        return hmac.digest(self._secret(next(iter(self._secrets))), b"mainspring fingerprint", "sha256")

    def _cipher(self, key_id: str) -> AESGCM:
        if key_id not in self._ciphers:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._ciphers[key_id] = AESGCM(self._secret(key_id))
        return self._ciphers[key_id]

    def _secret(self, key_id: str) -> bytes:
        secret = self._secrets[key_id]
        if secret is None:
            raise ConfigurationError("this job is encrypted, and there is no cipher: give App, Client or Worker one")
        return secret


class Seal:
    """Encrypts and decrypts what belongs to one job; a `strict` one opens nothing that is not encrypted."""

    def __init__(self, keys: OrgKeys, job: Claim | Job, *, strict: bool = False) -> None:
        self._keys, self._place, self._strict = keys, SealedPlace.of(job), strict

    def close(self, what: str, text: str) -> str:
        """Encrypt."""
        return self._keys.seal(self._place, what, text)

    def open(self, what: str, text: str) -> str:
        """Decrypt, if it is encrypted or has to be."""
        if text.startswith(SEALED):
            return self._keys.open(self._place, what, text)
        if self._strict:  # else whoever may write to the row could put any value there
            raise Unreadable(
                f"{what}: is not encrypted, and what jobs of this task carry has to be: "
                "enqueue them by a client with the cipher, or give the worker's Cipher accept_plain=True"
            )
        return text


def hidden(error: Error, seal: Seal) -> Error:
    """An error as it is kept: its code in clear, what may repeat the payload encrypted."""
    said = {"message": error.message, "stack": (error.stack or "")[-_STACK:]}
    return Error(error.code, error.error_class, HIDDEN, sealed=seal.close("error", _encode(said).decode()))


def seal_job(job: NewJob, keys: OrgKeys) -> NewJob:
    """A completed and checked job, with its payload encrypted."""
    key = job.key
    if job.by_payload and key == payload_key(job.task, job.org_id or DEFAULT_ORG, job.project_id, job.payload):
        key = f"{job.task}:{keys.fingerprint(job.task, job.payload)}"  # a plain hash could be guessed from
    place = SealedPlace(keys.org, job.task, str(job.id), key or str(job.id))
    handed_on = key is not None and (job.reset or job.mode in _HANDED_ON)
    text = keys.seal(
        place,
        "payload",
        bytes(job.payload).decode(),
        bound="key" if handed_on else "id",
        fingerprint=keys.fingerprint(job.task, job.payload) if key is not None else "",
    )
    return replace(job, payload=msgspec.Raw(text.encode()), key=key)


def key_of(text: str) -> str | None:
    """The id of the key that encrypted a text; None where none did."""
    if not text.startswith(SEALED):
        return None
    try:
        return _read(text).envelope.key
    except (msgspec.DecodeError, UnicodeError):
        return ""


class _Local:
    """Master keys in memory: the first wraps, all of them unwrap."""

    def __init__(self, keys: list[Any]) -> None:
        needs("encryption needs", "crypto", "cryptography")
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._ciphers = [AESGCM(_key_bytes(key)) for key in keys]

    def wrap(self, key: bytes, about: bytes) -> bytes:
        nonce = os.urandom(_NONCE)
        return nonce + self._ciphers[0].encrypt(nonce, key, about)

    def unwrap(self, wrapped: bytes, about: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        for cipher in self._ciphers:
            try:
                return cipher.decrypt(wrapped[:_NONCE], wrapped[_NONCE:], about)
            except (InvalidTag, ValueError):  # another one's, or too short to be anybody's
                continue
        raise ConfigurationError("master key: does not open the keys of this database")


def _from_environment() -> str:
    file = os.environ.get("MAINSPRING_MASTER_KEY_FILE")
    try:
        found = Path(file).read_text().strip() if file else os.environ.get("MAINSPRING_MASTER_KEY")
    except OSError as error:
        raise ConfigurationError(f"MAINSPRING_MASTER_KEY_FILE: {error.strerror}") from None
    if not found:
        raise ConfigurationError("master key: give Cipher one, or set MAINSPRING_MASTER_KEY or its _FILE")
    return found


def _key_bytes(key: object) -> bytes:
    try:
        raw = key if isinstance(key, bytes) else base64.b64decode(str(key), altchars=b"-_", validate=False)
    except binascii.Error:
        raw = b""
    if len(raw) != _KEY_BYTES:
        raise ConfigurationError(f"master key: is not {_KEY_BYTES} bytes in base64")
    return raw


def _about_key(org: str, key_id: str) -> bytes:
    return _encode(["mainspring key", 1, org, key_id])


def _authenticated(envelope: _Envelope, place: SealedPlace, what: str) -> bytes:
    """Everything that must not change: the envelope's own head, and where it belongs."""
    bound = place.id if envelope.bound == "id" else place.key
    head = (envelope.v, envelope.key, envelope.bound, envelope.fingerprint)
    return hashlib.sha256(_encode(["mainspring", *head, place.org, place.task, bound, what])).digest()


def _b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _unb64(text: str) -> bytes:
    raw = base64.b64decode(text, validate=True)
    if _b64(raw) != text:  # the last letter may have bits to spare
        raise ValueError("not canonical")
    return raw
