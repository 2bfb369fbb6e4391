"""Brings the catalogues of staffing up to date with its English texts: `make texts`, then translate what is empty.

What has changed in English is new, and what nobody says any more is removed.
"""

from __future__ import annotations

from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

from mainspring_apps.staffing.languages import catalogue
from mainspring_apps.staffing.texts import texts

HEAD = """\
# The texts of the staffing marketplace, as texts.py has them in English.
msgid ""
msgstr ""
"Language: {language}\\n"
"Content-Type: text/plain; charset=utf-8\\n"
"Content-Transfer-Encoding: 8bit\\n"

"""


def updated(file: Path, english: list[str]) -> int:
    """Write a catalogue with each English text, in their order; answers how many are not translated."""
    with file.open("rb") as source:
        known = read_po(source, file.stem)
    fresh = Catalog(file.stem)
    for text in english:
        old = known.get(text)
        fresh.add(text, old.string if old else "").flags.difference_update(("python-format", "python-brace-format"))
    with file.open("wb") as target:
        target.write(HEAD.format(language=file.stem).encode())
        write_po(target, fresh, width=100, omit_header=True)
    return sum(not one.string for one in fresh if one.id)


if __name__ == "__main__":
    for place in sorted(catalogue.FOLDER.glob("*.po")):
        print(f"{place.name}: {updated(place, texts())} texts to translate")
