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
from mainspring.db.recipients import Channel, tag_problem
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
#: How values are said in a language, such as dates and money; of the template's own language the tag is "".
Say = Callable[[Mapping[str, Any], str], Mapping[str, Any]]

MAX_TITLE: Final = 500
MAX_TEMPLATE_TEXT: Final = 256 * 1024
#: An inbox makes a link of it: no `javascript:`, and no `//elsewhere` in the guise of a path.
_LINK: Final = re.compile(r"https?://[^\s\\]+|/(?![/\\])[^\s\\]*", re.IGNORECASE)
_BRACKETS: Final = re.compile(r"\[([^\[\]\r\n]{1,100})\]")
_WORDS: Final = ("title", "text", "html", "sms")


@dataclass(frozen=True, slots=True, repr=False)  # it is personal
class Rendered:
    """What a notification says, in words."""

    title: str
    text: str
    html: str | None = None
    link: str | None = None


@dataclass(frozen=True)
class Words:
    """What a template says in another language: all that it says in its own."""

    title: str
    text: str
    html: str | None = None
    sms: str | None = None


@dataclass(frozen=True)
class Template:
    """What notifications of one kind say, on which channels, and how urgent they are.

    >>> text = "[Worker] is free from [Sunday date]."
    >>> released = Template("worker_released", "Worker released", text, style="brackets")
    >>> released.render({"Worker": "Ana", "Sunday date": "2026-11-15"}).text
    'Ana is free from 2026-11-15.'

    `sms` is the text for SMS and push, where it is another one; `link` leads on from the inbox, to an http(s)
    address or a path. `still` is asked right before sending whether the reason still holds; `fill` gives the values
    that exist only then, such as a signed link. `languages` are further ones by their tags: `de` is also for whoever
    speaks `de-AT`, and who speaks none of them reads the template's own. `say` puts values into a language.
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
    languages: Mapping[str, Words] = field(default_factory=dict, hash=False)
    say: Say | None = None
    _parts: dict[str, _Compiled] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        if problem := text_problem(self.name, MAX_NAME):
            raise DeclarationError(f"template: name: {problem}")
        for what, value, known in (("class_", self.class_, Class), ("style", self.style, Style)):
            if value not in get_args(known):
                raise self._wrong(f"{what}: {value!r} is not one of {', '.join(get_args(known))}")
        check_channels(self.channels, lambda problem: self._wrong(problem))
        self._parts[""] = own = self._compiled(self, "", (*_WORDS, "link"))
        for tag, words in self.languages.items():
            if problem := tag_problem(tag):
                raise self._wrong(f"languages: {tag!r} {problem}")
            self._parts[tag.lower()] = parts = self._compiled(words, f"{tag}: ", _WORDS)
            if differ := sorted(parts.keys() ^ (own.keys() - {"link"})):
                raise self._wrong(f"{tag}: {differ[0]}: is said in one language, and not in the other")

    def render(self, data: Mapping[str, Any], channel: Channel = "email", language: str = "") -> Rendered:
        """Fill the values in; ValidationError names what is missing."""
        tag, own = self._spoken(language), self._parts[""]
        link = own["link"](self.name, data) if "link" in own and channel == "in_app" else None
        parts, data = self._parts[tag], data if self.say is None else self.say(data, tag)

        def filled(part: str) -> str:
            return parts[part](self.name, data)

        short = channel in ("sms", "push") and "sms" in parts
        title = " ".join(filled("title").split())  # in a header a second line would be another header
        text = filled("sms" if short else "text")
        page = filled("html") if "html" in parts and channel == "email" else None
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

    def _spoken(self, language: str) -> str:
        """The tag of the texts for somebody: their language's, or of which it is a kind, or "", the template's own."""
        tag = language.lower()
        while tag not in self._parts:
            tag = tag.rpartition("-")[0]
        return tag

    def _compiled(self, words: object, where: str, names: Sequence[str]) -> _Compiled:
        found: _Compiled = {}
        for part in names:
            escape = part == "html"
            source = getattr(words, part)
            if source is None:
                continue
            if not isinstance(source, str) or not source.strip():
                raise self._wrong(f"{where}{part}: is empty")
            if self.style == "brackets":
                found[part] = _Brackets(source, escape)
                continue
            from_source = environment(escape).from_string
            try:
                found[part] = _Jinja(from_source(source))
            except Exception as error:
                raise self._wrong(f"{where}{part}: {error}") from None
        return found

    def _wrong(self, problem: str) -> DeclarationError:
        return DeclarationError(f"template {self.name}: {problem}")


_TemplatePart = Callable[[str, Mapping[str, Any]], str]
_Compiled = dict[str, _TemplatePart]


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
