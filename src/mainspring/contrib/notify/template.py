"""Templates: what a notification says, in two styles, both strict: what is missing is an error that names it.

`jinja` is for mails with a loop or a condition. `brackets` is for texts that somebody else has written and that are
sent word for word: `[Worker]` and `[Sunday date]` are filled, and nothing else is touched.
"""

from __future__ import annotations

import html as markup
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from mainspring.db.notify import Class, Notification
from mainspring.db.recipients import Channel
from mainspring.errors import DeclarationError, ValidationError
from mainspring.extras import needs
from mainspring.text.texts import MAX_NAME, text_problem

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2 import Template as Jinja

Style = Literal["jinja", "brackets"]
#: Asked in a transaction right before sending, with psycopg's connection.
Still = Callable[[Any, Notification], Awaitable[bool]]
Fill = Callable[[Any, Notification], Awaitable[Mapping[str, Any]]]

MAX_TITLE: Final = 500
MAX_TEMPLATE_TEXT: Final = 256 * 1024
#: An inbox makes a link of it: no `javascript:`, and no `//elsewhere` in the guise of a path.
_LINK: Final = re.compile(r"https?://[^\s\\]+|/(?![/\\])[^\s\\]*", re.IGNORECASE)
_BRACKETS: Final = re.compile(r"\[([^\[\]\r\n]{1,100})\]")


@dataclass(frozen=True, slots=True, repr=False)  # it is personal
class Rendered:
    """What a notification says, in words."""

    title: str
    text: str
    html: str | None = None
    link: str | None = None


@dataclass(frozen=True)
class Template:
    """What notifications of one kind say, on which channels, and how urgent they are.

    >>> text = "[Worker] is free from [Sunday date]."
    >>> released = Template("worker_released", "Worker released", text, style="brackets")
    >>> released.render({"Worker": "Ana", "Sunday date": "2026-11-15"}).text
    'Ana is free from 2026-11-15.'

    `sms` is the text for SMS and push, where it is another one; `link` leads on from the inbox, to an http(s)
    address or a path. `still` is asked right before sending whether the reason still holds; `fill` gives the values
    that exist only then, such as a signed link.
    """

    name: str
    title: str
    text: str
    html: str | None = None
    sms: str | None = None
    link: str | None = None
    class_: Class = "normal"
    channels: Sequence[Channel] = ("email",)
    style: Style = "jinja"
    still: Still | None = None
    fill: Fill | None = None
    _parts: dict[str, _TemplatePart] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        if problem := text_problem(self.name, MAX_NAME):
            raise DeclarationError(f"template: name: {problem}")
        for what, value, known in (("class_", self.class_, Class), ("style", self.style, Style)):
            if value not in get_args(known):
                raise self._wrong(f"{what}: {value!r} is not one of {', '.join(get_args(known))}")
        check_channels(self.channels, lambda problem: self._wrong(problem))
        for part in ("title", "text", "html", "sms", "link"):
            source = getattr(self, part)
            if source is None:
                continue
            if not isinstance(source, str) or not source.strip():
                raise self._wrong(f"{part}: is empty")
            self._parts[part] = self._compiled(part, source)

    def render(self, data: Mapping[str, Any], channel: Channel = "email") -> Rendered:
        """Fill the values in; ValidationError names what is missing."""
        short = channel in ("sms", "push") and "sms" in self._parts
        title = " ".join(self._filled("title", data).split())  # in a header a second line would be another header
        text = self._filled("sms" if short else "text", data)
        page = self._filled("html", data) if "html" in self._parts and channel == "email" else None
        link = self._filled("link", data) if "link" in self._parts and channel == "in_app" else None
        if link is not None and not _LINK.fullmatch(link):
            problem = "is neither an http(s) address nor a path such as /orders/7"
            raise ValidationError(f"data: the link of {self.name} {problem}", field="data")
        for part, value, most in (
            ("title", title, MAX_TITLE),
            ("text", text, MAX_TEMPLATE_TEXT),
            ("html", page, MAX_TEMPLATE_TEXT),
        ):
            if value is not None and (not value.strip() or len(value.encode()) > most):
                problem = "is empty" if not value.strip() else f"is longer than {most} bytes"
                raise ValidationError(f"data: the {part} of {self.name} {problem}", field="data")
        return Rendered(title, text, page, link)

    def _filled(self, part: str, data: Mapping[str, Any]) -> str:
        return self._parts[part](self.name, data)

    def _compiled(self, part: str, source: str) -> _TemplatePart:
        escape = part == "html"
        if self.style == "brackets":
            return _Brackets(source, escape)
        from_source = environment(escape).from_string
        try:
            return _Jinja(from_source(source))
        except Exception as error:
            raise self._wrong(f"{part}: {error}") from None

    def _wrong(self, problem: str) -> DeclarationError:
        return DeclarationError(f"template {self.name}: {problem}")


_TemplatePart = Callable[[str, Mapping[str, Any]], str]


@dataclass(frozen=True, slots=True)
class _Brackets:
    source: str
    escape: bool

    def __call__(self, template: str, data: Mapping[str, Any]) -> str:
        def value(found: re.Match[str]) -> str:
            name = found[1]
            if data.get(name) is None or isinstance(data[name], dict | list):
                problem = "is missing" if data.get(name) is None else "is no text, number or date"
                raise ValidationError(f"data.{name}: {problem}, which template {template} needs", field=f"data.{name}")
            return markup.escape(str(data[name])) if self.escape else str(data[name])

        return _BRACKETS.sub(value, self.source)  # once: brackets inside a value are the value's own


@dataclass(frozen=True, slots=True)
class _Jinja:
    source: Jinja

    def __call__(self, template: str, data: Mapping[str, Any]) -> str:
        from jinja2 import UndefinedError

        try:
            return self.source.render(data)
        except UndefinedError as error:  # its text names what is missing, and no value
            name = (re.findall(r"'([^']*)' is undefined|attribute '([^']*)'", str(error)) or [("", "")])[0]
            field = ".".join(("data", *filter(None, name)))
            raise ValidationError(f"{field}: is missing, which template {template} needs", field=field) from None
        except Exception as error:
            text = f"data: template {template} cannot be filled ({type(error).__name__})"
            raise ValidationError(text, field="data") from None


@lru_cache(maxsize=2)
def environment(escape: bool) -> Environment:
    """Jinja as we use it: strict, in its sandbox, and with values escaped in HTML."""
    needs("templates need", "notify", "jinja2")
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    return ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=escape, keep_trailing_newline=True)


def check_channels(channels: object, wrong: Callable[[str], Exception]) -> None:
    """Refuse what is not a list of channels."""
    known = get_args(Channel)
    if isinstance(channels, str) or not isinstance(channels, Sequence) or not channels:
        raise wrong("channels: is not a list of channels")
    for channel in channels:
        if channel not in known:
            raise wrong(f"channels: {channel!r} is not one of {', '.join(known)}")
