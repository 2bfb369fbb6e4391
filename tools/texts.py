"""Brings the catalogues of applications up to date with their English texts; what is empty is to be translated.

What has changed in English is new, and what nobody says any more is removed.
"""

from __future__ import annotations

from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po
from tools.apps import APPS

HEAD = """\
# The texts of {name}, as texts.py has them in English.
msgid ""
msgstr ""
"Language: {language}\\n"
"Content-Type: text/plain; charset=utf-8\\n"
"Content-Transfer-Encoding: 8bit\\n"

"""


def updated(name: str, file: Path, english: list[str]) -> int:
    """Write a catalogue with each English text, in their order; answers how many are not translated."""
    locale = file.stem.replace("-", "_")  # as Babel writes `pt-pt`
    with file.open("rb") as source:
        known = read_po(source, locale)
    fresh = Catalog(locale)
    for text in english:
        old = known.get(text)
        fresh.add(text, old.string if old else "").flags.difference_update(("python-format", "python-brace-format"))
    with file.open("wb") as target:
        target.write(HEAD.format(name=name, language=file.stem).encode())
        write_po(target, fresh, width=100, omit_header=True)
    return sum(not one.string for one in fresh if one.id)


if __name__ == "__main__":
    for name, about in APPS.items():
        for place in sorted(about.spoken.folder.glob("*.po")):
            print(f"{name}: {place.name}: {updated(name, place, about.texts())} texts to translate")
