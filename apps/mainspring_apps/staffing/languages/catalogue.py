"""The catalogues: what stands in them, what is missing, and the templates that come of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Final

from babel.messages.pofile import read_po

from mainspring.contrib.notify import Template, Words
from mainspring_apps.staffing.languages import values
from mainspring_apps.staffing.languages.values import ENGLISH, DayOfWeek, Phrase, Value
from mainspring_apps.staffing.states import Refused

FOLDER: Final = Path(__file__).parent
LANGUAGES: Final = (ENGLISH, *sorted(file.stem for file in FOLDER.glob("*.po")))
_NUMBER: Final = re.compile(r"\{(\w+)\}")  # `{approval}`: put in by the settings, once
_HELD: Final = re.compile(r"\[[^\[\]]+\]|\{[{%].*?[%}]\}|\{\w+\}")  # all that a translation must hold as well


def check(field: str, language: str) -> None:
    """Refuse a language that we do not speak."""
    if language not in LANGUAGES:
        raise Refused(f"{field}: {language} is not one of {', '.join(LANGUAGES)}", field=field)


def translated(templates: Iterable[Template], numbers: Mapping[str, Value]) -> tuple[Template, ...]:
    """Templates in every language, with the numbers of the settings; what a catalogue lacks is said in English."""
    return tuple(_translated(template, numbers) for template in templates)


def missing(language: str, texts: Iterable[str]) -> list[str]:
    """The English texts that a catalogue lacks, or of which its translation holds other placeholders."""
    known = _catalogue(language)
    return [text for text in texts if _held(text) != _held(known.get(text))]


def texts(templates: Iterable[Template], phrases: Iterable[str]) -> list[str]:
    """All English texts, each once."""
    return list(dict.fromkeys([*(text for template in templates for text in _words(template).values()), *phrases]))


def _held(text: str | None) -> list[str] | None:
    return None if text is None else sorted(_HELD.findall(text))


@cache
def _catalogue(language: str) -> Mapping[str, str]:
    """What is translated; what a tool has only guessed is not."""
    with (FOLDER / f"{language}.po").open("rb") as file:
        return {str(one.id): str(one.string) for one in read_po(file, language, abort_invalid=True)
                if one.id and one.string and not one.fuzzy}  # fmt: skip


def _translated(template: Template, numbers: Mapping[str, Value]) -> Template:
    def said(text: str, language: str) -> str:
        return text if template.style == "jinja" else _filled(text, numbers, language)

    words, languages = _words(template), {}
    for language in LANGUAGES[1:]:
        known = _catalogue(language)
        if known.keys() >= set(words.values()):
            languages[language] = Words(**{part: said(known[text], language) for part, text in words.items()})
    english = {part: said(text, ENGLISH) for part, text in words.items()}
    return replace(template, **english, languages=languages, say=values.say)  # type: ignore[arg-type]  # mypy#10750


def _words(template: Template) -> dict[str, str]:
    parts = {"title": template.title, "text": template.text, "html": template.html, "sms": template.sms}
    return {part: text for part, text in parts.items() if text}


def _filled(text: str, numbers: Mapping[str, Value], language: str) -> str:
    return _NUMBER.sub(lambda found: _value(numbers[found[1]], language), text)


def _value(value: Value, language: str) -> str:
    match value:
        case Phrase():
            text = value.text if language == ENGLISH else _catalogue(language).get(value.text, value.text)
            return _filled(text, value.values, language)
        case timedelta():
            return values.span(value, language)
        case DayOfWeek():
            return values.weekday(value, language)
        case _:
            return str(value)
