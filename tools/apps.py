"""The applications, as far as their pages and catalogues are made from code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

import mainspring as ms
from mainspring_apps.frame.catalogue import Languages
from mainspring_apps.frame.events import Events
from mainspring_apps.frame.settings import Choices
from mainspring_apps.frame.web import Site
from mainspring_apps.rental import events as rental_events
from mainspring_apps.rental import languages as rental_languages
from mainspring_apps.rental import settings as rental_settings
from mainspring_apps.rental import texts as rental_texts
from mainspring_apps.rental import web as rental_web
from mainspring_apps.rental.app import Rental
from mainspring_apps.rental.rules.parts import Part as RentalPart
from mainspring_apps.staffing.events import EVENTS
from mainspring_apps.staffing.languages import SPOKEN
from mainspring_apps.staffing.market import Market
from mainspring_apps.staffing.people import SUBJECTS
from mainspring_apps.staffing.rules.parts import Part
from mainspring_apps.staffing.settings import Settings
from mainspring_apps.staffing.texts import texts
from mainspring_apps.staffing.web import SITE


@dataclass(frozen=True, kw_only=True)
class AboutApp:
    """One application."""

    title: str
    noun: str  # what it is, after "the"
    where: str  # what an event is about that is about nothing in particular
    who: str  # how parts are played
    settings: Choices
    settings_intro: str
    events: Events[Any]
    site: Site[Any]
    parts: Sequence[str]
    subjects: Mapping[str, str]
    app: Callable[[], ms.App]
    spoken: Languages
    texts: Callable[[], list[str]]


APPS: Final = {
    "staffing": AboutApp(
        title="Staffing",
        noun="marketplace",
        where="the marketplace",
        who="""\
A part is always played in relation to what the event is about: a Lending Admin belongs to the company that lends the
worker of this booking, or that owns the account, policy or worker. Admins of other companies have no part in it.
Whoever has none of the marked parts is refused with 403, before anything is written or locked; for whoever has no part
at all it does not exist (404). `SYSTEM` is the marketplace itself, acting from a terminal.
""",
        settings=Settings(),
        settings_intro="""\
Set them in code, `Market(settings=Settings(auto_approval=timedelta(hours=5)))`, or in the environment,
`STAFFING_AUTO_APPROVAL=5h`, which takes precedence. `mainspring staffing settings` shows the current values and where
each one comes from.

Days and times of day are in the project's time zone unless stated otherwise. Values that make no sense are refused at
startup, and so are misspelt names: `STAFFING_AUTOAPPROVAL` asks whether you meant `auto_approval`.
""",
        events=EVENTS,
        site=SITE,
        parts=get_args(Part),
        subjects=SUBJECTS,
        app=lambda: Market({"STRIPE_WEBHOOK_SECRET": "whsec_none"}, maintenance=False),
        spoken=SPOKEN,
        texts=texts,
    ),
    "rental": AboutApp(
        title="Rental",
        noun="rental company",
        where="the company",
        who="""\
A part is the role of a login, whatever an event is about: a viewer looks, with personal data masked, an operator and an
admin act. Each act of people has a reason, and stands on the audit trail with it. `SYSTEM` is the company itself, in a
terminal.
""",
        settings=rental_settings.Settings(),
        settings_intro="""\
What the environment says wins over `Rental(settings=Settings(…))`. Secrets are no settings: `RENTAL_LINK_SECRET` signs
links to invoices, `RENTAL_LINK_SECRET_PREVIOUS` did until it was replaced, and providers have theirs
([settings](../settings.md)). What makes no sense is refused at the start by its name.
""",
        events=rental_events.EVENTS,
        site=rental_web.SITE,
        parts=get_args(RentalPart),
        subjects={"booking_id": "booking", "machine_id": "machine", "to_settle_id": "money to settle"},
        app=lambda: Rental(
            {"STRIPE_API_KEY": "sk_test_none", "VENDUS_API_KEY": "none", "RENTAL_LINK_SECRET": "x" * 32},
            maintenance=False,
        ),
        spoken=rental_languages.SPOKEN,
        texts=rental_texts.texts,
    ),
}
