"""What is said of all sides together."""

import re
from pathlib import Path
from typing import Any

import pytest

from karrot.doctor import Level, Snapshot, examine
from karrot.doctor.checks import all_checks
from karrot.doctor.snapshot import Away, Unread
from support.doctor_snapshots import burrow_snapshot, karrot_snapshot, notifier_module, prometheus_snapshot

ROOT = Path(__file__).parents[2]
CHECKS = [each for _, each in all_checks()]


def test_where_nothing_is_wrong_every_check_says_so() -> None:
    found = examine(Snapshot(burrow=burrow_snapshot(), karrot=karrot_snapshot(), prometheus=prometheus_snapshot()))
    assert [each.check for each in found if each.level is not Level.OK] == ["unseen"]
    assert {each.check for each in found} == {each.name for each in CHECKS}


def test_faults_come_first() -> None:
    wrong = burrow_snapshot(notifier_module(threshold=2, method_close="DELETE"))
    found = examine(Snapshot(burrow=wrong, karrot=karrot_snapshot(), prometheus=prometheus_snapshot()))
    assert [each.check for each in found[:3]] == ["threshold", "method", "unseen"]
    assert [each.level for each in found] == sorted((each.level for each in found), key=list(Level).index)


def test_a_side_that_does_not_answer_is_a_fault_and_the_others_are_examined() -> None:
    found = examine(
        Snapshot(burrow=Away("Burrow", "http://b:8000", "no connection: refused"), karrot=karrot_snapshot())
    )
    (away,) = [each for each in found if each.level is Level.FAULT]
    assert away.what == "Burrow cannot be read at http://b:8000: no connection: refused"
    assert [each.what for each in found if each.level is Level.NOTE] == ["Prometheus was not looked at"]
    assert "silence" in {each.check for each in found}
    assert "lag" not in {each.check for each in found}


def test_a_part_that_could_not_be_read_is_a_warning_with_what_was_said() -> None:
    closed = karrot_snapshot(settings=None, unread=(Unread("settings (/config)", "HTTP 401 from /config"),))
    (warned,) = [each for each in examine(Snapshot(karrot=closed)) if each.level is Level.WARN]
    assert warned.what == "Karrot: settings (/config) could not be read: HTTP 401 from /config"
    assert warned.remedy == "KARROT_API_TOKEN (or _FILE) in the environment of karrot doctor"


def test_names_of_checks_are_their_own() -> None:
    names = [each.name for each in CHECKS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_check_says_what_it_looks_for_and_where_to_read_on(check: Any) -> None:
    assert check.trap.endswith(".")
    assert check.well or check.name == "unseen"
    page, _, anchor = check.where.partition("#")
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}
    assert not anchor or anchor in anchors


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_each_check_has_a_sick_case_beside_the_healthy_one(check: Any) -> None:
    function = check.name.replace("-", "_")
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert re.search(rf"only_finding\(\s*checks\.{function}\b|\(checks\.{function}, \"", tests)
