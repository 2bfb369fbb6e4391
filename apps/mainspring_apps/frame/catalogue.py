"""The languages of an application: texts by catalogues, values by locales.

English is what the application's own texts say. Each further language is a catalogue in a folder of its own, `de.po`,
as translators' tools open them; the English text is the key, so that one that changes is untranslated until somebody
has looked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Final

from babel.messages.pofile import read_po

from mainspring.contrib.notify import Template, Words
from mainspring_apps.frame import values
from mainspring_apps.frame.refusal import Refused
from mainspring_apps.frame.values import ENGLISH, DayOfWeek, Phrase, Value, Written

_NUMBER: Final = re.compile(r"\{(\w+)\}")  # `{approval}`: put in by the settings, once
_HELD: Final = re.compile(r"\[[^\[\]]+\]|\{[{%].*?[%}]\}|\{\w+\}")  # all that a translation must hold as well


class Languages:
    """The catalogues of a folder; `written` says which values of messages are written by locale, and how."""

    def __init__(self, folder: Path, written: Mapping[str, Written]) -> None:
        self.folder = folder
        self.known: tuple[str, ...] = (ENGLISH, *sorted(file.stem for file in folder.glob("*.po")))
        self.say = partial(values.say, written)

    def check(self, field: str, language: str) -> None:
        """Refuse a language that we do not speak."""
        if language not in self.known:
            raise Refused(f"{field}: {language} is not one of {', '.join(self.known)}", field=field)

    def translated(self, templates: Iterable[Template], numbers: Mapping[str, Value]) -> tuple[Template, ...]:
        """Templates in every language, with the numbers of settings; what a catalogue lacks is said in English."""
        return tuple(self._translated(template, numbers) for template in templates)

    def missing(self, language: str, english: Iterable[str]) -> list[str]:
        """The English texts that a catalogue lacks, or of which its translation holds other placeholders."""
        known = self._catalogue(language)
        return [text for text in english if _held(text) != _held(known.get(text))]

    def said(self, text: str, language: str) -> str:
        """A text of the catalogue in a language; what it lacks is said in English."""
        return text if language == ENGLISH else self._catalogue(language).get(text, text)

    def _catalogue(self, language: str) -> Mapping[str, str]:
        return _read(self.folder / f"{language}.po")

    def _translated(self, template: Template, numbers: Mapping[str, Value]) -> Template:
        def filled(text: str, language: str) -> str:
            return text if template.style == "jinja" else self._filled(text, numbers, language)

        words, languages = _words(template), {}
        for language in self.known[1:]:
            known = self._catalogue(language)
            if known.keys() >= set(words.values()):
                languages[language] = Words(**{part: filled(known[text], language) for part, text in words.items()})
        english = {part: filled(text, ENGLISH) for part, text in words.items()}
        return replace(template, **english, languages=languages, say=self.say)  # type: ignore[arg-type]  # mypy#10750

    def _filled(self, text: str, numbers: Mapping[str, Value], language: str) -> str:
        return _NUMBER.sub(lambda found: self._value(numbers[found[1]], language), text)

    def _value(self, value: Value, language: str) -> str:
        match value:
            case Phrase():
                return self._filled(self.said(value.text, language), value.values, language)
            case timedelta():
                return values.span(value, language)
            case DayOfWeek():
                return values.weekday(value, language)
            case _:
                return str(value)


def texts(templates: Iterable[Template], phrases: Iterable[str]) -> list[str]:
    """All English texts, each once."""
    return list(dict.fromkeys([*(text for template in templates for text in _words(template).values()), *phrases]))


@cache
def _read(file: Path) -> Mapping[str, str]:
    """What is translated; what a tool has only guessed is not."""
    with file.open("rb") as opened:
        return {str(one.id): str(one.string) for one in read_po(opened, values.locale(file.stem), abort_invalid=True)
                if one.id and one.string and not one.fuzzy}  # fmt: skip


def _held(text: str | None) -> list[str] | None:
    return None if text is None else sorted(_HELD.findall(text))


def _words(template: Template) -> dict[str, str]:
    parts = {"title": template.title, "text": template.text, "html": template.html, "sms": template.sms}
    return {part: text for part, text in parts.items() if text}
