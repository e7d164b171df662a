"""The checks of Burrow's section `[notifier.X]`."""

from typing import Any

import pytest

from karrot.doctor.checks import burrow_notifier as checks
from karrot.doctor.read_burrow import ReadWebhook
from support.doctor_snapshots import (
    KARROT,
    WEBHOOK,
    burrow_snapshot,
    finds_nothing,
    notifier_module,
    only_finding,
    passes,
)

ALL_BUT_THE_FIRST = checks.CHECKS[1:]


def test_a_burrow_that_posts_only_to_other_urls_is_a_fault() -> None:
    assert passes(checks.notifier, burrow_snapshot())
    elsewhere = notifier_module(url_open="http://user:s3cret@pager.example:1467/v1/event?key=s3cret", url_close="")
    level, what, remedy = only_finding(checks.notifier, burrow_snapshot(elsewhere))
    assert (level, what) == (
        "fault",
        "no notifier posts to Karrot: Burrow's notifiers are a (http, http://***@pager.example:1467/v1/event?***)",
    )
    assert remedy == f"run karrot burrow-config --karrot {KARROT}, and add its output to burrow.toml"
    assert "Burrow has no notifier" in only_finding(checks.notifier, burrow_snapshot(notifiers={}))[1]
    slack = notifier_module(url_open="https://hooks.slack.com/services/T0001/B0001/XXXXXXXXXXXXXXXX1234", url_close="")
    assert (
        "(http, https://hooks.slack.com/services/T0001/B0001/***)"
        in only_finding(checks.notifier, burrow_snapshot(slack))[1]
    )


@pytest.mark.parametrize("check", ALL_BUT_THE_FIRST, ids=lambda check: check.name)
def test_a_missing_notifier_is_not_judged(check: Any) -> None:
    assert finds_nothing(check, burrow_snapshot(notifiers={}, webhooks={}))


@pytest.mark.parametrize(
    ("fields", "is_meant"),
    [
        pytest.param({"url_open": "http://10.0.0.5:5000/burrow"}, True, id="the path of the webhook"),
        pytest.param({"url_open": "https://lag.example/karrot/v1"}, True, id="karrot in the path"),
        pytest.param({"url_open": "http://karrot:5000/"}, True, id="karrot as the host"),
        pytest.param({"url_open": "http://10.0.0.5:5000/event"}, False, id="another path"),
        pytest.param({"url_open": WEBHOOK, "class_name": "slack"}, False, id="a notifier of class slack"),
    ],
)
def test_the_url_shows_which_notifier_is_karrot_s(fields: dict[str, Any], *, is_meant: bool) -> None:
    assert bool(burrow_snapshot(notifier_module(**fields)).to_karrot) is is_meant


@pytest.mark.parametrize(
    ("threshold", "said"),
    [
        (2, "Burrow sends only groups in WARN and ERR"),
        (3, "Burrow sends only groups in ERR"),
        (4, "Burrow sends only the closes of incidents"),
    ],
)
def test_a_threshold_above_1_hides_groups(threshold: int, said: str) -> None:
    assert only_finding(checks.threshold, burrow_snapshot(notifier_module(threshold=threshold))) == (
        "fault",
        f"[notifier.a] has threshold {threshold}: {said}",
        "[notifier.a] threshold = 1",
    )


@pytest.mark.parametrize("threshold", [0, 1])
def test_a_threshold_of_1_or_less_sends_every_group(threshold: int) -> None:
    assert passes(checks.threshold, burrow_snapshot(notifier_module(threshold=threshold)))


def test_a_notifier_without_send_close_does_not_report_the_end_of_incidents() -> None:
    assert passes(checks.send_close, burrow_snapshot())
    assert only_finding(checks.send_close, burrow_snapshot(notifier_module(send_close=False))) == (
        "warn",
        "[notifier.a] has send-close off: an incident ends with the next OK verdict",
        "[notifier.a] send-close = true",
    )
    assert (
        "only through silence"
        in only_finding(checks.send_close, burrow_snapshot(notifier_module(send_close=False, threshold=2)))[1]
    )


def test_send_close_needs_an_address_and_a_template_of_its_own() -> None:
    assert only_finding(checks.send_close, burrow_snapshot(notifier_module(url_close=""))) == (
        "fault",
        "[notifier.a] has send-close without url-close: Burrow panics at its next start",
        f'[notifier.a] url-close = "{WEBHOOK}"',
    )
    assert only_finding(checks.send_close, burrow_snapshot(notifier_module(template_close="")))[2] == (
        '[notifier.a] template-close = "/etc/burrow/karrot.tmpl"'
    )


def test_closes_must_go_to_the_same_url_as_opens() -> None:
    level, what, _ = only_finding(checks.send_close, burrow_snapshot(notifier_module(url_close="http://other/burrow")))
    assert (level, what) == ("warn", f"[notifier.a] sends opens to {WEBHOOK} and closes to http://other/burrow")


@pytest.mark.parametrize("url_close", ["", "http://other/burrow"])
def test_a_remedy_has_no_password_of_an_address(url_close: str) -> None:
    each = notifier_module(url_open="http://burrow:s3cret@karrot:5000/burrow", url_close=url_close)
    remedy = only_finding(checks.send_close, burrow_snapshot(each))[2]
    assert remedy == '[notifier.a] url-close = "http://***@karrot:5000/burrow"'


@pytest.mark.parametrize(
    ("method", "level"), [("POST", "ok"), ("post", "ok"), ("PUT", "ok"), ("DELETE", "warn"), ("PATCH", "fault")]
)
def test_delete_may_lose_its_body_and_other_methods_are_refused(method: str, level: str) -> None:
    assert only_finding(checks.method, burrow_snapshot(notifier_module(method_close=method)))[0] == level


def test_the_method_of_a_close_that_is_never_sent_does_not_matter() -> None:
    assert passes(checks.method, burrow_snapshot(notifier_module(method_close="DELETE", send_close=False)))


def test_a_url_without_burrow_at_its_end_is_a_fault() -> None:
    assert passes(checks.url, burrow_snapshot(notifier_module(url_open=f"{WEBHOOK}/")))
    assert passes(checks.url, burrow_snapshot(notifier_module(url_open="https://proxy/monitoring/burrow")))
    wrong = burrow_snapshot(notifier_module(url_open=f"{KARROT}/", url_close=WEBHOOK))
    assert only_finding(checks.url, wrong) == (
        "fault",
        f"[notifier.a] posts to {KARROT}/, which is not Karrot's /burrow",
        f'[notifier.a] url-open = "{WEBHOOK}"',
    )


def test_a_template_in_a_url_breaks_on_unusual_names() -> None:
    level, what, _ = only_finding(
        checks.url, burrow_snapshot(notifier_module(url_open=KARROT + "/burrow?group={{.Group}}"))
    )
    assert (level, "? # or %" in what) == ("warn", True)


@pytest.mark.parametrize(
    ("found", "level", "said"),
    [
        (ReadWebhook(405, "", is_karrot=True), "ok", "Karrot answers at the notifier's URL, without a redirect"),
        (ReadWebhook(0, "no connection: refused", is_karrot=False), "note", "could not be reached from here"),
        (ReadWebhook(301, "https://karrot/burrow", is_karrot=False), "fault", "redirects to https://karrot/burrow"),
        (ReadWebhook(308, "https://karrot/burrow", is_karrot=False), "warn", "redirects to https://karrot/burrow"),
        (ReadWebhook(404, "", is_karrot=False), "fault", "it answers a GET with HTTP 404, not with Karrot's 405"),
        (ReadWebhook(405, "", is_karrot=False), "fault", "is not Karrot's /burrow"),
    ],
    ids=["Karrot", "no connection", "301", "308", "404", "405 of another server"],
)
def test_the_server_at_the_notifier_s_url_should_be_karrot(found: ReadWebhook, level: str, said: str) -> None:
    told = only_finding(checks.webhook, burrow_snapshot(webhooks={WEBHOOK: found}))
    assert told[0] == level
    assert said in told[1]


@pytest.mark.parametrize("name", ["default-http-post.tmpl", "default-http-delete.tmpl", "default-slack-post.tmpl"])
def test_burrow_s_own_templates_are_known_by_their_names(name: str) -> None:
    assert passes(checks.template, burrow_snapshot())
    level, what, _ = only_finding(
        checks.template, burrow_snapshot(notifier_module(template_open=f"conf/{name}", send_close=False))
    )
    assert (level, what) == ("fault", f"[notifier.a] has template-open conf/{name}: Karrot refuses its output")


def test_both_templates_are_checked() -> None:
    wrong = burrow_snapshot(notifier_module(template_close="conf/default-http-delete.tmpl"))
    assert only_finding(checks.template, wrong)[0] == "fault"


@pytest.mark.parametrize(
    ("timeout", "level"), [(0, "fault"), (1, "warn"), (5, "ok"), (25, "ok"), (30, "warn"), (60, "warn")]
)
def test_a_timeout_is_a_whole_number_shorter_than_the_interval(timeout: int, level: str) -> None:
    assert only_finding(checks.timeout, burrow_snapshot(notifier_module(timeout=timeout)))[0] == level


def test_a_timeout_that_holds_burrow_s_locks_too_long_is_reported() -> None:
    assert (
        "holds its locks" in only_finding(checks.timeout, burrow_snapshot(notifier_module(interval=120, timeout=60)))[1]
    )


def test_an_allowlist_that_excludes_some_groups_is_noted_and_one_that_excludes_all_is_a_fault() -> None:
    assert passes(checks.allowlist, burrow_snapshot(notifier_module(group_allowlist=".*")))
    assert only_finding(checks.allowlist, burrow_snapshot(notifier_module(group_allowlist="^bill"))) == (
        "note",
        "[notifier.a] group-allowlist excludes 2 of 3 groups: audit, burrow-prod",
        '[notifier.a] group-allowlist = ".*"',
    )
    assert only_finding(
        checks.allowlist, burrow_snapshot(notifier_module(group_allowlist=None, group_whitelist="nobody"))
    )[::2] == (
        "fault",
        '[notifier.a] group-whitelist = ".*"',
    )
    assert (
        "could not be checked"
        in only_finding(checks.allowlist, burrow_snapshot(notifier_module(group_allowlist=r"\pL+")))[1]
    )


def test_a_group_that_another_notifier_for_the_same_karrot_admits_is_not_excluded() -> None:
    bills, audits = notifier_module(group_allowlist="^bill"), notifier_module(group_allowlist="^(audit|burrow)")
    assert passes(checks.allowlist, burrow_snapshot(bills, audits))
    level, what, remedy = only_finding(checks.allowlist, burrow_snapshot(bills, notifier_module(group_allowlist="^a")))
    assert (level, what) == (
        "note",
        "[notifier.a] group-allowlist, [notifier.b] group-allowlist exclude 1 of 3 groups: burrow-prod",
    )
    assert remedy.startswith("add these groups to one of the lists, and to no other")
    elsewhere = notifier_module(group_allowlist="^(audit|burrow)", url_open="http://karrot-test:5000/burrow")
    assert [each.what for each in checks.allowlist(burrow_snapshot(bills, elsewhere))] == [
        "[notifier.a] group-allowlist excludes 2 of 3 groups: audit, burrow-prod",
        "[notifier.b] group-allowlist excludes 1 of 3 groups: billing",
    ]
