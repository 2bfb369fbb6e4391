"""The languages in which the marketplace speaks: texts by catalogues, values by locales.

English is what `texts.py` says. Each further language is a catalogue beside this module, `de.po`, as translators' tools
open them; the English text is the key, so that one that changes is untranslated until somebody has looked.
"""

from mainspring_apps.staffing.languages.catalogue import LANGUAGES, check, missing, texts, translated
from mainspring_apps.staffing.languages.values import ENGLISH, DayOfWeek, Phrase, Value, moment

__all__ = ["ENGLISH", "LANGUAGES", "DayOfWeek", "Phrase", "Value", "check", "missing", "moment", "texts", "translated"]
