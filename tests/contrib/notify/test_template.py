"""What a notification says: strict, word for word, and harmless where it is shown."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.contrib.notify import Template, Words
from mainspring.contrib.notify import template as module
from mainspring.contrib.notify.values import normalised
from mainspring.errors import ConfigurationError, DeclarationError, PayloadTooLarge, ValidationError
from mainspring.text.document import stable_hash

NAIVE = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
WORKER_RELEASED = Template(
    "worker_released",
    "Worker Released",
    "[Worker] has been released. Their last day is Sunday, [Sunday date]. Booking [ID].",
    style="brackets",
)


@pytest.mark.rule("STAFF-14.10")
def test_placeholders_are_filled_and_no_bracket_is_left() -> None:
    data = {"Worker": "Ana [the elder]", "Sunday date": "2026-11-15", "ID": 7}

    said = WORKER_RELEASED.render(data)

    assert said.title == "Worker Released"
    assert said.text == "Ana [the elder] has been released. Their last day is Sunday, 2026-11-15. Booking 7."


@pytest.mark.parametrize("missing", ["Worker", "Sunday date", "ID"])
def test_a_missing_value_is_named(missing: str) -> None:
    data: dict[str, Any] = {"Worker": "Ana", "Sunday date": "2026-11-15", "ID": 7, missing: None}

    with pytest.raises(ValidationError, match=rf"^data\.{missing}: is missing, which template worker_released needs$"):
        WORKER_RELEASED.render(data)


@pytest.mark.rule("STAFF-14.10")
@pytest.mark.parametrize(
    ("value", "zone", "shown"),
    [
        (date(2026, 11, 15), None, "2026-11-15"),
        (datetime(2026, 11, 15, 23, 30, tzinfo=UTC), "Asia/Tokyo", "2026-11-16"),
        (datetime(2026, 11, 16, 0, 30, tzinfo=UTC), "America/New_York", "2026-11-15"),
    ],
)
def test_dates_are_those_of_the_zone_that_is_said(value: Any, zone: str | None, shown: str) -> None:
    assert msgspec.json.decode(normalised({"Sunday date": value}, zone, dates=True)) == {"Sunday date": shown}


def test_an_instant_is_no_date_until_its_zone_is_said() -> None:
    with pytest.raises(ValidationError, match=r"^data\.Sunday date: is an instant"):
        normalised({"Sunday date": datetime(2026, 11, 15, tzinfo=UTC)}, dates=True)


@pytest.mark.rule("RENT-5.08")
def test_values_are_shown_as_text_in_html_whatever_they_hold() -> None:
    data = {"name": "<b onclick=x>Ana</b> & co"}
    jinja = Template("t", "Hi {{ name }}", "Dear {{ name }}", html="<p>{{ name }}</p>")
    brackets = Template("t", "Hi", "Dear [name]", html="<p>[name]</p>", style="brackets")

    for template in (jinja, brackets):
        said = template.render(data)
        assert said.text == "Dear <b onclick=x>Ana</b> & co"
        assert said.html == "<p>&lt;b onclick=x&gt;Ana&lt;/b&gt; &amp; co</p>"


def test_a_title_is_one_line_so_that_no_header_can_be_added() -> None:
    said = Template("t", "Hi {{ name }}", "x").render({"name": "Ana\r\nBcc: eve@example.com"})

    assert said.title == "Hi Ana Bcc: eve@example.com"


def test_short_channels_have_a_text_of_their_own_and_only_mail_has_html() -> None:
    template = Template("t", "T", "long", html="<p>x</p>", sms="short", link="/x")

    assert [template.render({}, channel).text for channel in ("email", "sms", "push", "in_app")] == [
        "long", "short", "short", "long",
    ]  # fmt: skip
    assert [template.render({}, channel).html is None for channel in ("email", "sms")] == [False, True]
    assert template.render({}, "in_app").link == "/x"


@pytest.mark.parametrize("link", ["https://shop.example/orders/7?a=b#c", "HTTP://shop.example", "/", "/orders/7"])
def test_a_link_of_an_inbox_leads_to_an_address_or_a_path(link: str) -> None:
    assert Template("t", "T", "x", link="{{ link }}").render({"link": link}, "in_app").link == link


@pytest.mark.parametrize(
    "link",
    [
        "javascript:alert(1)", " javascript:alert(1)", "JaVaScRiPt:alert(1)", "java\nscript:alert(1)",
        "data:text/html,x",
        "vbscript:x", "file:///etc/passwd", "//evil.test", "/\\evil.test", "https://shop.example\\@evil.test", "x", "",
        "http://", "https://shop.example/\njavascript:x", "\x01javascript:alert(1)",
    ],
)  # fmt: skip
def test_a_link_that_a_browser_would_run_is_refused(link: str) -> None:
    with pytest.raises(ValidationError, match=r"^data: the link of t is neither an http\(s\) address nor a path"):
        Template("t", "T", "x", link="{{ link }}").render({"link": link}, "in_app")


@pytest.mark.parametrize(
    ("source", "data", "field"),
    [
        ("{{ name }}", {}, "data.name"),
        ("{{ order.total }}", {"order": {}}, "data.total"),
        ("{% for x in rows %}{{ x }}{% endfor %}", {}, "data.rows"),
        ("{{ ''.__class__.__mro__ }}", {}, "data"),  # out of the sandbox
        ("{{ 1 / count }}", {"count": 0}, "data"),
        ("{{ name }}", {"name": " "}, "data"),  # nobody wants an empty message
    ],
)
def test_jinja_is_strict_and_stays_in_its_sandbox(source: str, data: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Template("t", "T", source).render(data)

    assert refused.value.field == field


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"name": ""}, "name: is empty"),
        ({"title": " "}, "title: is empty"),
        ({"text": "{% if %}"}, "text: Expected"),
        ({"channels": ("fax",)}, "channels: 'fax' is not one of email, sms, push, in_app"),
        ({"channels": "email"}, "channels: is not a list"),
        ({"class_": "urgent"}, "class_: 'urgent' is not one of critical, time_bound, normal"),
        ({"style": "mustache"}, "style: 'mustache' is not one of"),
    ],
)
def test_a_wrong_declaration_is_refused_where_it_stands(wrong: dict[str, Any], problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        Template(**{"name": "t", "title": "T", "text": "x", **wrong})


def test_without_jinja_one_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    module.environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    try:
        assert Template("t", "T", "[x]", style="brackets").render({"x": 1}).text == "1"
        with pytest.raises(ConfigurationError, match=r"mainspring\[notify\]"):
            Template("t", "T", "{{ x }}")
    finally:
        module.environment.cache_clear()


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.rule("PLAN-3.04")
@given(st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), values), st.randoms())
def test_the_hash_does_not_depend_on_the_order_of_names(data: dict[str, Any], random: Any) -> None:
    names = list(data)
    random.shuffle(names)
    data = {name.replace("\0", ""): value for name, value in data.items()}

    try:
        raw = normalised(data)
    except ValidationError:  # a text with NUL
        return
    assert stable_hash(raw) == stable_hash(normalised({name: data[name] for name in names}))


@pytest.mark.parametrize(
    ("data", "kind", "problem"),
    [
        (
            {"at": datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)},
            ValidationError,
            r"^data\.at: is a time without a time zone$",
        ),
        ({"x": object()}, ValidationError, r"^data: holds what JSON cannot$"),
        ({"x": "\ud800"}, ValidationError, r"^data: holds what JSON cannot$"),
        ({"x": "a\0b"}, ValidationError, r"^data\.x: has a NUL character$"),
        ({"api_key": "x"}, ValidationError, r"^data\.api_key: looks like a secret"),
        ({"x": "y" * 300_000}, PayloadTooLarge, r"^data: is larger than 256 KiB$"),
        ([1], ValidationError, r"^data: is not an object"),
    ],
)
def test_data_that_cannot_be_kept_are_refused_by_name(data: Any, kind: type[Exception], problem: str) -> None:
    with pytest.raises(kind, match=problem):
        normalised(data)


def dated(data: Mapping[str, Any], language: str) -> Mapping[str, Any]:
    day = date.fromisoformat(data["Sunday date"])
    return {**data, "Sunday date": f"{day:%d.%m.%Y}" if language == "de" else str(day)}


def test_a_template_speaks_the_language_or_what_it_is_a_kind_of_and_else_its_own() -> None:
    german = Words("Frei", "Frei ab [Sunday date].", sms="ab [Sunday date]")
    template = Template(
        "free", "Free", "Free from [Sunday date].", sms="from [Sunday date]", style="brackets", say=dated,
        languages={"de": german, "pt-BR": Words("Livre", "Livre a partir de [Sunday date].", sms="[Sunday date]")},
    )  # fmt: skip
    data = {"Sunday date": "2026-11-15"}

    said = {tag: template.render(data, language=tag) for tag in ("de", "de-AT", "DE", "pt-br", "pt", "fr", "")}
    assert {tag: one.title for tag, one in said.items()} == {
        "de": "Frei", "de-AT": "Frei", "DE": "Frei", "pt-br": "Livre", "pt": "Free", "fr": "Free", "": "Free",
    }  # fmt: skip
    assert said["de-AT"].text == "Frei ab 15.11.2026."
    assert said["fr"].text == "Free from 2026-11-15."
    assert template.render(data, "sms", "de").text == "ab 15.11.2026"


@pytest.mark.parametrize(
    ("languages", "problem"),
    [
        (
            {"german!": Words("T", "t", "<p>")},
            r"^template t: languages: 'german!' is not the tag of a language, such as",
        ),
        ({"de": Words("T", "t")}, r"^template t: de: html: is said in one language, and not in the other$"),
        (
            {"de": Words("T", "t", "<p>", sms="t")},
            r"^template t: de: sms: is said in one language, and not in the other$",
        ),
        ({"de": Words("", "t", "<p>")}, r"^template t: de: title: is empty$"),
        ({"de": Words("T", "{{", "<p>")}, r"^template t: de: text: unexpected"),
    ],
)
def test_a_language_says_all_that_the_template_says(languages: Any, problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        Template("t", "T", "t", "<p>t</p>", link="/t", languages=languages)
