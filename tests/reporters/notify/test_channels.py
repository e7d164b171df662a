"""A channel that is broken delays no other channel, and no channel reads names as markup or shows a secret."""

import ssl
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from apprise.plugins.slack import NotifySlack
from markdown_it import MarkdownIt

from karrot.reporters.notify.routes import Quiet, Sender, read_routes
from karrot.settings import types
from support.burrow.lag_events import make_partition
from support.reporters.notify_rig import NotifyRig, Receiver
from support.servers.self_signed_certificate import make_self_signed
from support.service.free_ports import free_port

FAILURES = "karrot_reporter_failures_total"
EVIL = "<!channel> @everyone *b* _i_ ~s~ [x](http://evil) <b>`c` &amp; # -"


def tell_evil(rig: NotifyRig) -> None:
    """Tell of a group whose name and whose client have markup."""
    worst = make_partition(client_id=EVIL)
    rig.tell("ERR", EVIL, max_lag=worst, partitions=(worst,))


def two_channels(tmp_path: Path, broken: str, good: str, name: str = "broken") -> NotifyRig:
    return NotifyRig(tmp_path, f'[channels.{name}]\nurl = "{broken}"\n[channels.good]\nurl = "{good}"\n')


def test_a_channel_that_hangs_delays_no_other_and_says_it_once_when_it_answers(
    tmp_path: Path, receiver: Receiver, other: Receiver
) -> None:
    other.free.clear()
    rig = two_channels(tmp_path, other.url("secret") + "?rto=600", receiver.url(), "hanging")
    rig.tell("WARN")
    rig.run_until(lambda: other.tried == 1)
    rig.run(20)
    rig.tell("ERR")
    rig.run(50)
    assert len(receiver.seen) == 2
    assert other.tried == 1
    assert "the service does not answer (1 failure in a row, 1 change waiting)" in rig.facts()["Channel hanging"]
    for minutes in (1, 2, 3):
        rig.run(59)
        rig.tell("ERR")
        rig.run(1)
        assert rig.counted(FAILURES) == {"timeout": 1 + minutes}
        assert rig.state() == ("failing", "channel hanging: the service does not answer")
    other.free.set()
    rig.run_until(lambda: len(other.seen) == 2)
    rig.run_until(lambda: "sent a message" in rig.facts()["Channel hanging"])
    rig.tell("ERR")
    rig.run(1)
    assert rig.state()[0] == "ok"
    assert [message.partition(":")[0] for message in other.messages("/secret")] == ["WARN", "Worse, ERR"]


@pytest.mark.parametrize(("status", "reason"), [(429, "throttled"), (403, "unauthorized"), (500, "refused")])
def test_a_channel_that_refuses_is_tried_again_alone(
    tmp_path: Path, receiver: Receiver, other: Receiver, status: int, reason: str
) -> None:
    other.status = status
    rig = two_channels(tmp_path, other.url("secret"), receiver.url())
    rig.tell("WARN")
    rig.run(11)
    rig.tell("WARN")
    rig.run(1)
    assert (len(receiver.seen), other.tried) == (1, 1)
    assert rig.counted(FAILURES) == {reason: 1}
    assert rig.state() == ("failing", f"channel broken: the server answered {status}")
    assert f"the server answered {status} (1 failure in a row, 1 change waiting)" in rig.facts()["Channel broken"]
    if status == 429:  # Retry-After is 45 seconds, which Apprise does not tell
        rig.run(50)
        assert other.tried == 1
    other.status = 200
    rig.run(60)
    assert len(other.messages("/secret")) == 1
    assert "sent a message" in rig.facts()["Channel broken"]
    rig.tell("WARN")
    rig.run(1)
    assert rig.state()[0] == "ok"
    assert "secret" not in str(rig.facts())


def test_a_wrong_host_and_a_closed_port_are_counted_as_unreachable(tmp_path: Path, receiver: Receiver) -> None:
    rig = two_channels(tmp_path, "json://no-such-host.invalid/secret", receiver.url())
    rig.tell("WARN")
    rig.run(11)
    rig.tell("WARN")
    rig.run(1)
    assert len(receiver.seen) == 1
    assert rig.counted(FAILURES) == {"unreachable": 1}


def test_a_failing_channel_is_counted_and_shown_also_while_the_log_has_no_new_event(
    tmp_path: Path, receiver: Receiver
) -> None:
    rig = NotifyRig(tmp_path, f'[channels.broken]\nurl = "{receiver.url()}"\ngather_seconds = 5\n')
    receiver.status = 500
    rig.tell("ERR")
    rig.run_until(lambda: receiver.tried > 0)
    rig.run(1)
    assert rig.state() == ("failing", "channel broken: the server answered 500")
    rig.run_until(lambda: receiver.tried == 3)
    rig.run(1)
    assert rig.counted(FAILURES) == {"refused": 3}
    receiver.status = 200
    rig.run_until(lambda: bool(receiver.messages()))
    rig.tell("ERR")
    rig.run(1)
    assert rig.state()[0] == "ok"


def test_a_channel_with_nothing_to_send_any_more_is_not_failing(tmp_path: Path, receiver: Receiver) -> None:
    receiver.status = 500
    rig = NotifyRig(tmp_path, f'[channels.ops]\nurl = "{receiver.url()}"\n')
    rig.tell("WARN")
    rig.run(20)
    rig.tell("WARN")
    rig.run(1)
    assert rig.state()[0] == "failing"
    rig.tell("OK")
    rig.run(300)
    rig.tell("OK")
    rig.run(1)
    assert rig.state()[0] == "ok"
    assert "the server answered 500" in rig.facts()["Channel ops"]


def test_while_a_channel_is_broken_nothing_is_kept_but_the_newest_state(tmp_path: Path, receiver: Receiver) -> None:
    receiver.status = 500
    rig = NotifyRig(tmp_path, f'[channels.ops]\nurl = "{receiver.url()}"\n')
    rig.tell("WARN", "brief", "a")
    rig.tell("WARN", "long", "b")
    rig.run(100)
    rig.tell("OK", "brief", "a")
    rig.tell("ERR", "long", "b")
    receiver.status = 200
    rig.run(300)
    assert [message.partition("\n")[0] for message in receiver.messages()] == ["ERR: long on prod-eu"]


class Mailbox:
    """Keeps the messages that an SMTP server gets."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802 (aiosmtpd's name)
        self.seen.append(message_from_bytes(envelope.content, policy=default))
        return "250 OK"


def test_an_e_mail_shows_names_as_they_are(tmp_path: Path) -> None:
    mailbox = Mailbox()
    port = free_port()
    controller = Controller(mailbox, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        url = f"mailto://127.0.0.1:{port}?from=karrot@example.com&to=ops@example.com&format=html"
        rig = NotifyRig(tmp_path, f'[channels.mail]\nurl = "{url}"\n')
        tell_evil(rig)
        rig.run(12)
    finally:
        controller.stop()
    [mail] = mailbox.seen
    assert mail["Subject"].replace("\u200b", "") == f"ERR: {EVIL} on prod-eu"
    html = mail.get_body(("html",)).get_content()
    assert "<b>" not in html
    assert "&lt;!channel&gt;" in html


def test_slack_gets_names_as_plain_text(tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NotifySlack, "webhook_url", f"http://127.0.0.1:{receiver.server_port}")
    rig = NotifyRig(tmp_path, '[channels.slack]\nurl = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"\n')
    tell_evil(rig)
    rig.run(12)
    [(_, body)] = receiver.seen
    [attachment] = body["attachments"]
    assert body["mrkdwn"] is False
    assert "<" not in attachment["title"] + attachment["text"]
    assert "@everyone" not in str(body)


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
@pytest.mark.parametrize("kind", ["teams", "mattermost"])
def test_a_service_that_reads_markdown_shows_names_as_they_are(tmp_path: Path, receiver: Receiver, kind: str) -> None:
    place = f"127.0.0.1:{receiver.server_port}"
    url = f"mmost://{place}/abcdefghijklmnopqrstuvwxyz"
    if kind == "teams":
        certificate = make_self_signed(tmp_path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        (tmp_path / "both.pem").write_bytes(certificate.chain + certificate.key)
        context.load_cert_chain(tmp_path / "both.pem")
        receiver.socket = context.wrap_socket(receiver.socket, server_side=True)
        url = f"workflow://{place}/WORKFLOWID/SIGNATURE?verify=no"
    rig = NotifyRig(tmp_path, f'[channels.chat]\nurl = "{url}"\n', external_url="https://karrot")
    tell_evil(rig)
    rig.run(12)
    [(_, body)] = receiver.seen
    text = body["text"] if kind == "mattermost" else body["attachments"][0]["content"]["body"][-1]["text"]
    shown = MarkdownIt().parseInline(text)[0].children or []
    links = [token.attrs["href"] for token in shown if token.type == "link_open"]
    assert all(str(link).startswith("https://karrot/") for link in links)
    assert len(links) == 2
    assert {token.type for token in shown} <= {"text", "softbreak", "link_open", "link_close", "text_special"}
    assert "@everyone" not in text


WRONG = {
    "x = 1": "FILE: Object contains unknown field `x`",
    "x": "FILE: Expected '=' after a key in a key/value pair (at end of document)",
    "": "FILE has no channel: add a table [channels.NAME] with url or url_file",
    "[owners]\na = 1": "FILE: Expected `str`, got `int` - at `$.owners[...]`",
    '[owners]\n"(" = "team"': f"FILE: the pattern is '(': it must be {types.shared_pattern.allowed}",
    "[owners]\n'(?<!x)a' = 'team'": f"FILE: the pattern is '(?<!x)a': it must be {types.shared_pattern.allowed}",
    "[channels.a]": "[channels.a] in FILE: set url or url_file, and not both",
    '[channels.a]\nurl = "json://h"\nurl_file = "f"': "[channels.a] in FILE: set url or url_file, and not both",
    '[channels.a]\nurl = "slak://s3cret"': "[channels.a] in FILE: Apprise cannot send to this URL (scheme: slak)",
    '[channels.a]\nurl = "s3cret"': "[channels.a] in FILE: Apprise cannot send to this URL (scheme: none)",
    '[channels.a]\nurl = "slack://s3cret"': "[channels.a] in FILE: Apprise cannot send to this URL (scheme: slack)",
    '[channels.a]\nurl = "json://h/s3cret"\nroute = 1': "[channels.a] in FILE: Object contains unknown field `route`",
    '[channels.a]\nurl = "json://h/s3cret"\ngroups = "("': (
        "[channels.a] in FILE: the pattern is '(': it must be a regular expression - at `$.groups`"
    ),
    '[channels.a]\nurl = "json://h/s3cret"\nquiet = ["22:00-07:00 Mars/Base"]': (
        "[channels.a] in FILE: '22:00-07:00 Mars/Base' must be like '22:00-07:00 Europe/Berlin', with an IANA zone "
        "- at `$.quiet[0]`"
    ),
    '[channels.a]\nurl = "json://h/s3cret"\nstatus = "BAD"': (
        "[channels.a] in FILE: Invalid enum value 'BAD' - at `$.status`"
    ),
    '[channels.a]\nurl = "json://h/s3cret"\nper_hour = 0\n[channels.b]\nurl_file = "/no"': (
        "[channels.a] in FILE: Expected `int` >= 1 - at `$.per_hour`\n"
        "[channels.b] in FILE: url_file names '/no', which cannot be read: No such file or directory"
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_file_gets_a_sentence_for_each_problem_without_the_secret(tmp_path: Path, text: str) -> None:
    file = tmp_path / "notify.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r".") as raised:
        read_routes(file)
    assert str(raised.value).replace(str(file), "FILE") == WRONG[text]


def test_a_url_can_be_in_a_file_of_its_own_and_no_repr_shows_it(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("json://h/s3cret\n")
    (tmp_path / "notify.toml").write_text(
        f'[channels.a]\nurl_file = "{tmp_path}/url"\n[channels.b]\nurl = "json://h/s3cret"'
    )
    assert "s3cret" not in repr(read_routes(tmp_path / "notify.toml"))


@pytest.mark.parametrize(
    "text", ["22:00-22:00 UTC", "22:00Z-07:00Z UTC", "22:00+02:00-07:00+02:00 Europe/Berlin", "22-7"]
)
def test_a_quiet_time_that_would_never_hold_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be like '22:00-07:00 Europe/Berlin'"):
        Quiet(text)


@pytest.mark.parametrize("url", ["json://127.0.0.1/a json://127.0.0.1/b", "mailto://u:p@example.com?to=a@b.cc,c@d.ee"])
def test_a_url_with_several_targets_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="make a channel for each"):
        Sender(url)
