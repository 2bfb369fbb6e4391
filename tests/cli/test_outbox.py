"""`mainspring outbox` and `mainspring sandbox`: what the providers received, and what shall go wrong."""

from __future__ import annotations

import json
import os
import signal
import smtplib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest
from tests.cli.conftest import Answer

from mainspring.cli import main
from mainspring.cli.sandbox import announced
from mainspring_sandbox import Sandbox

Outbox = Callable[..., Answer]


@pytest.fixture(scope="module")
def running() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(running: Sandbox) -> Sandbox:
    running.ledger.clear()
    running.faults.clear()
    return running


@pytest.fixture
def outbox(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Outbox:
    """Run a command beside the sandbox."""
    monkeypatch.setenv("MAINSPRING_SANDBOX", sandbox.url)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Answer:
        capsys.readouterr()
        code = main(["outbox", *map(str, arguments)])
        out, err = capsys.readouterr()
        return Answer(code, out, err)

    return run


def a_mail(sandbox: Sandbox, id: str = "mail_1", **body: object) -> None:
    mail = {"provider": "smtp", "from": "shop@example.com", "to": ["jo@example.com"], "subject": "Olá", "text": "x\ny"}
    sandbox.ledger.add("mail", id, mail | body)


def test_list_shows_what_left_the_house_the_newest_first(sandbox: Sandbox, outbox: Outbox) -> None:
    a_mail(sandbox)
    sandbox.ledger.add("sms", "SM1", {"to": "+4930901820", "text": "Hello"})
    sandbox.ledger.add("charge", "ch_1", {"amount": 1250, "currency": "eur", "status": "succeeded"})

    shown = outbox("list")

    lines = [" ".join(line.split()) for line in shown.out.strip().splitlines()[-3:]]
    assert [line.split()[0] for line in lines] == ["ch_1", "SM1", "mail_1"]
    assert lines[0].endswith("1250 eur · succeeded")
    assert lines[1].endswith("+4930901820 Hello")
    assert lines[2].endswith("jo@example.com Olá")


def test_list_may_be_of_some_kinds_and_short(sandbox: Sandbox, outbox: Outbox) -> None:
    for number in range(3):
        a_mail(sandbox, f"mail_{number}")
    sandbox.ledger.add("sms", "SM1", {"to": "+4930901820", "text": "Hello"})
    sandbox.ledger.add("push", "push_1", {"to": "device", "title": "Hello"})

    assert [one["id"] for one in outbox("list", "--kind", "mail", "--limit", 2, "--json").json] == ["mail_2", "mail_1"]
    found = outbox("list", "--kind", "sms", "--kind", "push", "--json").json
    assert [one["kind"] for one in found] == ["push", "sms"]
    assert outbox("list", "--kind", "refund").out == "The outbox has no refund.\n"
    assert (outbox("list", "--limit", 0).code, outbox("list", "--limit", "x").code) == (2, 2)


def test_show_finds_an_entry_whatever_its_kind(sandbox: Sandbox, outbox: Outbox) -> None:
    a_mail(sandbox, html="<p>token=abc</p>")

    assert "<p>token=abc</p>" in outbox("show", "mail_1").out
    assert outbox("show", "mail_1", "--json").json["subject"] == "Olá"
    missing = outbox("show", "mail/../2")
    assert (missing.code, missing.out) == (3, "")
    assert "no entry mail/../2" in missing.err


def test_terminal_is_not_driven_by_what_somebody_wrote(sandbox: Sandbox, outbox: Outbox) -> None:
    a_mail(sandbox, subject="\x1b[2Jgone", text="a\x1b]0;title\x07b")

    assert "\x1b" not in outbox("list").out + outbox("show", "mail_1").out + outbox("show", "mail_1", "--json").out


def test_faults_are_switched_on_shown_and_off(sandbox: Sandbox, outbox: Outbox) -> None:
    assert "smtp" in outbox("fault", "smtp", "drop", "--times", 3).out
    outbox("fault", "twilio", "error", "--status", 503, "--rate", 0.2, "--retry-after", 9, "--path", "/Messages")

    shown = outbox("faults", "--json").json

    assert [(one["provider"], one["kind"], one["times"]) for one in shown] == [
        ("smtp", "drop", 3),
        ("twilio", "error", None),
    ]
    assert [getattr(sandbox.faults.on[1], name) for name in ("status", "rate", "retry_after", "path")] == [
        503, 0.2, 9, "/Messages",
    ]  # fmt: skip
    assert len(outbox("clear", "smtp", "--json").json) == 1
    assert "Nothing goes wrong." in outbox("clear").out
    assert sandbox.faults.on == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("nobody", "drop"), "provider"),
        (("smtp", "explode"), "explode"),
        (("smtp", "drop", "--rate", "7"), "rate"),
        (("smtp", "drop", "--times", "-1"), "times"),
        (("smtp", "error", "--status", "200"), "status"),
    ],
)
def test_fault_that_makes_no_sense_is_refused_by_name(
    sandbox: Sandbox, outbox: Outbox, arguments: tuple[str, ...], named: str
) -> None:
    answer = outbox("fault", *arguments)

    assert (answer.code, answer.out) == (2, "")
    assert named in answer.err
    assert sandbox.faults.on == []


@pytest.mark.parametrize("address", [None, "http://127.0.0.1:9", "nonsense", "file:///etc/passwd"])
def test_where_no_sandbox_runs_one_line_says_so(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    monkeypatch.delenv("MAINSPRING_SANDBOX")

    answer = outbox("list", *(["--sandbox", address] if address else []))

    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert "sandbox:" in answer.err


def test_sandbox_in_the_foreground_is_found_from_its_directory_and_ends_at_a_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [sys.executable, "-m", "mainspring.cli", "sandbox", "run", "--data", "kept/x.sqlite", "--json"]
    environment = {name: value for name, value in os.environ.items() if name != "MAINSPRING_SANDBOX"}
    with subprocess.Popen(
        arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            said = _announced(tmp_path / ".data" / "sandbox.json")
            mail = EmailMessage()
            mail["From"], mail["To"], mail["Subject"] = "a@example.com", "b@example.com", "Hi"
            with smtplib.SMTP("127.0.0.1", said["smtp_port"], timeout=10) as line:
                line.send_message(mail)

            assert main(["outbox", "list", "--json"]) == 0
            assert [one["subject"] for one in json.loads(capsys.readouterr().out)] == ["Hi"]
        finally:
            process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)

    assert (process.returncode, err) == (0, "")
    assert json.loads(out)["url"] == said["url"]
    assert not (tmp_path / ".data" / "sandbox.json").exists()
    assert (tmp_path / "kept" / "x.sqlite").exists()


def _announced(place: Path) -> dict[str, int]:
    """Wait until it runs."""
    for _ in range(1500):
        if place.exists() and place.read_text().endswith("}"):
            said: dict[str, int] = json.loads(place.read_text())
            return said
        time.sleep(0.02)
    raise AssertionError("it does not start")


@pytest.mark.parametrize("option", ["--port", "--smtp-port"])
def test_port_that_is_none_or_taken_is_refused(
    sandbox: Sandbox, outbox: Outbox, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = sandbox.url.rpartition(":")[2] if option == "--port" else str(sandbox.smtp_port)

    codes = [main(["sandbox", "run", option, port]) for port in ("70000", taken)]

    assert codes == [2, 2]
    assert capsys.readouterr().err.count("\n") == 2


def test_what_is_typed_wrongly_names_the_option_and_changes_nothing(sandbox: Sandbox, outbox: Outbox) -> None:
    for words, said in {
        ("fault", "strpe", "drop"): "provider: is not one of stripe, ",
        ("fault", "stripe", "drop", "--rate", "2"): "rate: Expected",
        ("fault", "stripe", "drop", "--times", "0"): "times: must be at least 1",
        ("list", "--limit", "1001"): "limit: is not between 1 and 1000",
    }.items():
        answer = outbox(*words)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith(f"mainspring: {said}")
    assert sandbox.faults.on == []


def test_an_empty_list_says_of_what(outbox: Outbox) -> None:
    assert outbox("list").out == "The outbox is empty.\n"
    assert outbox("list", "--kind", "carge", "--kind", "sms").out == "The outbox has no carge and no sms.\n"


def test_env_prints_what_an_application_in_another_terminal_needs(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["sandbox", "env"]) == 2
    assert "no sandbox runs in .data" in capsys.readouterr().err

    with announced(sandbox):
        assert main(["sandbox", "env"]) == 0
    printed = capsys.readouterr().out
    wanted = {name: value for name, value in sandbox.environment("").items() if value}
    script = printed + "\n".join(f'printf "%s\n" "${name}"' for name in wanted)
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()

    assert dict(zip(wanted, said, strict=True)) == wanted
    assert wanted["STRIPE_API_KEY"] == "sk_test_sandbox"  # as it is, or no application could use it
