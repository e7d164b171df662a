"""The notify reporter says once when an incident opens, gets worse and closes, whatever happens in between."""

from pathlib import Path
from random import Random

import pytest

from karrot.delivery import Feed
from karrot.event import ABANDONED, GroupKey, OffsetSample, Source
from support.burrow.lag_events import make_partition
from support.reporters.notify_rig import STALE_AFTER_MS, NotifyRig, Receiver
from support.waiting import wait_for

HOUR_S = 3600


@pytest.fixture
def rig(tmp_path: Path, receiver: Receiver) -> NotifyRig:
    return NotifyRig(tmp_path, f'[channels.ops]\nurl = "{receiver.url()}"\n[owners]\n"^ord" = "payments"\n')


def titles(receiver: Receiver, path: str = "/hook") -> list[str]:
    return [each.partition("\n")[0] for each in receiver.messages(path)]


def test_a_message_has_the_lag_the_cause_the_owner_the_team_and_links(tmp_path: Path, receiver: Receiver) -> None:
    routes = f'[channels.ops]\nurl = "{receiver.url()}"\n[owners]\n"^ord" = "payments"\n'
    rig = NotifyRig(tmp_path, routes, external_url="https://karrot")
    now_ms = rig.clock.wall_ms()
    times = {"start": OffsetSample(1, now_ms - 90_000, lag=1), "end": OffsetSample(10, now_ms - 60_000, lag=10)}
    stopped = make_partition(status_text="STOP", **times)
    rig.tell("ERR", partitions=(stopped,), max_lag=stopped, incident_start=None)
    rig.run(12)
    [message] = receiver.messages()
    assert message.splitlines()[0] == "ERR: orders on prod-eu"
    lines = dict(line.split(": ", 1) for line in message.splitlines()[1:])
    assert lines == {
        "Since": "2027-01-15 08:00:00 UTC (11 s)",
        "Behind": "11,020 messages behind, the oldest is 1 min 21 s old",
        "Cause": "1 of 12 partitions stopped: messages wait, and the group has committed no new offset for 1 min 11 s.",
        "Not known": "Whether the group has members. With watch, Karrot reads this from Kafka.",
        "Worst partition": "orders.v1 1, owner 10.20.30.40 (consumer-orders-1)",
        "Check": "Check the consumer of these partitions: it is down, hangs, or was never assigned.",
        "Team": "payments",
        "Page": "https://karrot/group?cluster=prod-eu&consumer=orders",
        "Runbook": "https://karrot/runbooks/KarrotPartitionStopped",
    }


def test_a_message_says_when_the_lag_is_a_bound_or_not_known(rig: NotifyRig, receiver: Receiver) -> None:
    rig.tell("WARN", "bound")
    rig.tell("WARN", "unknown", total_lag=None, max_lag=None, partitions=())
    rig.run(15)
    behind = {message.splitlines()[0]: message.splitlines()[2] for message in receiver.messages()}
    assert "the oldest is ≥ 614 d old" in behind["WARN: bound on prod-eu"]
    assert behind["WARN: unknown on prod-eu"] == "Behind: lag not known"


def test_opening_worsening_and_closing_are_three_messages_through_restarts(rig: NotifyRig, receiver: Receiver) -> None:
    for status in ("WARN", "WARN", "ERR", "WARN", "ERR", "OK"):
        rig.tell(status)
        rig.restart()
        rig.run(30)
        rig.restart()
        rig.run(30)
    assert titles(receiver) == ["WARN: orders on prod-eu", "Worse, ERR: orders on prod-eu", "Over: orders on prod-eu"]


def test_a_new_incident_ends_the_one_before(rig: NotifyRig, receiver: Receiver) -> None:
    rig.tell("ERR", incident="a")
    rig.run(20)
    rig.tell("WARN", incident="b")
    rig.run(40)
    assert titles(receiver) == ["ERR: orders on prod-eu", "Over: orders on prod-eu", "WARN: orders on prod-eu"]
    assert "End: the group has a new incident" in receiver.messages()[1]


def test_a_verdict_without_an_id_belongs_to_the_open_incident(rig: NotifyRig, receiver: Receiver) -> None:
    rig.tell("WARN", incident=None, source=Source.REST)
    rig.run(20)
    rig.tell("WARN", incident="a")
    rig.tell("WARN", incident=None, source=Source.REST)
    rig.run(20)
    assert len(receiver.seen) == 1


def test_deletion_silence_and_an_abandoned_group_close_an_incident(rig: NotifyRig, receiver: Receiver) -> None:
    ended = {"deleted": "no verdicts", "silent": "no verdicts", "abandoned": "has no members"}
    for consumer in ended:
        rig.tell("ERR", consumer, consumer)
    rig.run(30)
    rig.tell("NOTFOUND", "deleted", None)
    idle = make_partition(status_text=ABANDONED)
    rig.tell("OK", "abandoned", None, partitions=(idle,), max_lag=idle)
    for _ in range(STALE_AFTER_MS // 60_000 + 1):
        rig.tell("OK", "other", None)
        rig.run(60)
    closed = [each for each in receiver.messages() if each.startswith("Over")]
    assert len(receiver.seen) == 6
    for consumer, words in ended.items():
        [message] = [each for each in closed if consumer in each.partition("\n")[0]]
        assert words in message


def test_an_outage_of_karrot_or_of_the_source_ends_no_incident(rig: NotifyRig, receiver: Receiver) -> None:
    rig.tell("ERR")
    rig.run(20)
    rig.clock.advance(2 * STALE_AFTER_MS)
    rig.restart()
    rig.tell("OK", "heard-first", None)
    rig.run(60)
    rig.tell("ERR")
    rig.run(60)
    assert titles(receiver) == ["ERR: orders on prod-eu"]


@pytest.mark.parametrize("later_s", [60, 200])
def test_a_source_that_stops_ends_no_incident_although_its_groups_expire_one_by_one(
    rig: NotifyRig, receiver: Receiver, later_s: int
) -> None:
    for _ in range(6):
        rig.tell("ERR")
        rig.tell("OK", "other", None)
        rig.run(60)
    rig.run(later_s)
    rig.tell("OK", "other", None)  # the newest verdict for a long time
    rig.run(STALE_AFTER_MS // 1000 - later_s - 10)
    rig.tell("OK", "other", None)  # the source is back
    rig.run(30)
    rig.tell("ERR")
    rig.run(60)
    assert titles(receiver) == ["ERR: orders on prod-eu"]


@pytest.mark.parametrize("status", ["STOP", "STALL", "REWIND", "NEW"])
def test_a_group_with_an_unknown_status_silences_no_other_group(
    rig: NotifyRig, receiver: Receiver, status: str
) -> None:
    rig.tell(status, "odd")
    rig.tell("ERR")
    rig.run(20)
    assert titles(receiver) == ["ERR: orders on prod-eu"]


@pytest.mark.parametrize("status", ["OK", "ERR"])
def test_a_crash_between_a_message_and_its_note_loses_no_end_of_an_incident(
    tmp_path: Path, receiver: Receiver, status: str
) -> None:
    rig = NotifyRig(tmp_path, f'[channels.hanging]\nurl = "{receiver.url()}?rto=600"\n')
    receiver.free.clear()
    rig.tell("ERR")
    rig.run_until(lambda: receiver.tried == 1)
    rig.restart()  # the old process is gone, and its message arrives
    receiver.free.set()
    wait_for(lambda: len(receiver.seen) == 1)
    rig.tell(status)
    rig.run_until(lambda: len(receiver.seen) == 2)
    rig.tell("OK")
    rig.run_until(lambda: "sent a message" in rig.facts()["Channel hanging"])
    rig.run_until(lambda: titles(receiver)[-1].startswith("Over"))
    assert titles(receiver) == ["ERR: orders on prod-eu"] * (1 + (status == "ERR")) + ["Over: orders on prod-eu"]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_an_incident_that_no_message_told_has_no_end(rig: NotifyRig, receiver: Receiver, *, is_restarted: bool) -> None:
    receiver.status = 500
    rig.tell("ERR")
    rig.run(12)
    assert receiver.tried == 1
    if is_restarted:
        assert "(1 failure in a row" in str(rig.facts())
        rig.restart()
    rig.tell("OK")
    receiver.status = 200
    rig.run(60)
    assert receiver.seen == []


def test_an_end_is_told_although_new_incidents_use_up_the_hourly_limit(tmp_path: Path, receiver: Receiver) -> None:
    rig = NotifyRig(tmp_path, f'[channels.ops]\nurl = "{receiver.url()}"\nper_hour = 1\n')
    rig.tell("ERR")
    rig.run(20)
    rig.tell("OK")
    rig.run(20)
    rig.tell("ERR", "newer")
    rig.clock.advance(HOUR_S * 1000)
    rig.tell("OK")
    rig.tell("ERR", "newer")
    rig.run(20)
    assert titles(receiver)[1:] == ["Over: orders on prod-eu"]


def test_what_another_version_noted_about_a_channel_is_no_error(rig: NotifyRig, receiver: Receiver) -> None:
    rig.log.remember("notify", "channel ops", b'{"version": 9}')
    rig.restart()
    rig.tell("ERR")
    rig.run(20)
    assert titles(receiver) == ["ERR: orders on prod-eu"]


def test_no_message_is_about_tests_burrow_itself_or_an_abandoned_group(rig: NotifyRig, receiver: Receiver) -> None:
    rig.tell("ERR", "sample", cluster="karrot-sample")
    own = make_partition(topic="__consumer_offsets")
    rig.tell("ERR", "burrow-default", max_lag=own, partitions=(own,))
    idle = make_partition(status_text=ABANDONED)
    rig.tell("OK", "idle", None, max_lag=idle, partitions=(idle,))
    rig.tell("WARN", "marker")
    rig.run(60)
    assert titles(receiver) == ["WARN: marker on prod-eu"]


@pytest.mark.parametrize("many", [6, 500, 1000])
def test_a_herd_is_one_message_with_a_count_and_so_is_its_end(rig: NotifyRig, receiver: Receiver, many: int) -> None:
    for number in range(many):
        rig.tell("ERR" if number == 5 else "WARN", f"group-{number}", f"id-{number}", total_lag=number)
        if number % 50 == 49:
            rig.run(1)
    rig.run(60)
    for number in range(many):
        rig.tell("OK", f"group-{number}", f"id-{number}")
    rig.run(60)
    opened, closed = receiver.messages()
    assert opened.splitlines()[0] == f"Trouble: {many:,} groups on prod-eu (1 ERR, {many - 1} WARN)"
    assert opened.splitlines()[1].startswith("ERR group-5 on prod-eu: 5 messages behind")
    assert opened.splitlines()[-1] == f"More: {many - 5}"
    assert closed.splitlines()[0].startswith(f"Over: {many:,} groups on prod-eu")


def test_a_channel_gets_only_what_its_patterns_and_its_status_choose(tmp_path: Path, receiver: Receiver) -> None:
    chosen = 'clusters = "^prod-"\ngroups = "ord"\nexclude_groups = "test"\nstatus = "ERR"'
    rig = NotifyRig(tmp_path, f'[channels.ops]\nurl = "{receiver.url()}"\n{chosen}\n')
    for consumer in ("orders", "orders-test", "stock"):
        rig.tell("ERR", consumer, cluster="prod-eu")
    rig.tell("ERR", "orders", cluster="dev")
    rig.tell("WARN", "orders-slow")
    rig.run(30)
    rig.tell("ERR", "orders-slow")
    rig.tell("WARN", "orders")
    rig.run(30)
    assert titles(receiver) == ["ERR: orders on prod-eu", "ERR: orders-slow on prod-eu"]


def test_after_a_quiet_time_only_what_is_still_true_is_sent(tmp_path: Path, receiver: Receiver) -> None:
    quiet = 'quiet = ["22:00-23:00 Asia/Tokyo", "08:30-09:30 Europe/Berlin"]'  # the clock of the rig: 09:00 in Berlin
    rig = NotifyRig(tmp_path, f'[channels.ops]\nurl = "{receiver.url()}"\n{quiet}\n')
    rig.tell("ERR", "brief", "a")
    rig.tell("WARN", "long", "b")
    rig.run(60)
    rig.tell("OK", "brief", "a")
    rig.run(60)
    assert receiver.seen == []
    for _ in range(4):
        rig.run(450)
        rig.tell("WARN", "long", "b")
    assert titles(receiver) == ["WARN: long on prod-eu"]


def test_the_limit_of_an_hour_holds_back_messages_through_a_restart(tmp_path: Path, receiver: Receiver) -> None:
    rig = NotifyRig(tmp_path, f'[channels.ops]\nurl = "{receiver.url()}"\nper_hour = 2\n')
    for consumer in "abcd":
        rig.tell("WARN", consumer, consumer)
        rig.run(20)
        rig.restart()
    assert titles(receiver) == ["WARN: a on prod-eu", "WARN: b on prod-eu"]
    for _ in range(10):
        for consumer in "abcd":
            rig.tell("WARN", consumer, consumer)
        rig.run(HOUR_S // 10)
    assert titles(receiver)[2:] == ["Trouble: 2 groups on prod-eu (2 WARN)"]


def test_a_channel_is_known_by_its_name_and_a_renamed_channel_gets_what_is_open(
    rig: NotifyRig, tmp_path: Path, receiver: Receiver
) -> None:
    def write(name: str, path: str) -> None:
        (tmp_path / "notify.toml").write_text(f'[channels.{name}]\nurl = "{receiver.url(path)}"\n')
        rig.restart()

    rig.tell("ERR", "open", "a")
    rig.tell("ERR", "ended", "b")
    rig.run(20)
    rig.tell("OK", "ended", "b")
    rig.run(20)
    write("ops", "moved")
    rig.run(60)
    assert titles(receiver, "/moved") == []
    write("renamed", "renamed")
    rig.run(60)
    assert titles(receiver, "/renamed") == ["ERR: open on prod-eu"]
    rig.tell("OK", "open", "a")
    rig.run(60)
    assert titles(receiver, "/renamed")[1:] == ["Over: open on prod-eu"]
    assert len(receiver.messages()) == 3


def test_the_reporter_takes_all_events_and_needs_no_new_event_to_send(rig: NotifyRig, receiver: Receiver) -> None:
    feed = Feed("notify", rig.log, rig.clock, Random(1), lambda: rig.reporter)
    rig.tell("WARN")
    while not receiver.seen:
        rig.clock.advance(1000)
        feed.step()
    assert rig.log.cursor("notify") == (rig.log.log_id, 1)


def test_a_muted_group_is_silent_and_its_state_is_told_when_the_mute_ends(rig: NotifyRig, receiver: Receiver) -> None:
    muted = {GroupKey("prod-eu", "orders"), GroupKey("prod-eu", "stock")}
    rig.tell("WARN", "orders", "a")
    rig.run(20)
    rig.mute(lambda keys: muted & set(keys))
    rig.tell("OK", "orders", "a")
    rig.tell("ERR", "stock", "b")
    rig.run(60)
    assert titles(receiver) == ["WARN: orders on prod-eu"]
    muted.clear()
    rig.run(30)
    assert titles(receiver)[1:] == ["ERR: stock on prod-eu", "Over: orders on prod-eu"]
