"""The checks of the PostgreSQL server of the event log and of the replicas."""

from typing import Any

import pytest

from karrot.doctor.checks import event_log_server as checks
from karrot.doctor.snapshot_types import KarrotSeen, ReadStandby
from support.doctor_snapshots import KARROT, finds_nothing, karrot_snapshot, only_finding, passes, read_event_log

OTHER = "http://karrot-1:5000"


def seen(**fields: Any) -> KarrotSeen:
    return karrot_snapshot(event_log=read_event_log(**fields))


def server(**fields: Any) -> KarrotSeen:
    return seen(server=fields)


def standbys(*listed: ReadStandby) -> KarrotSeen:
    return server(standbys=listed)


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.name)
def test_an_event_log_without_replicas_is_not_judged(check: Any) -> None:
    assert finds_nothing(check, karrot_snapshot(event_log=None))
    assert finds_nothing(check, seen(replica=None, leader=None, database=None))
    assert passes(check, karrot_snapshot())


def test_a_database_that_is_away_is_a_fault_with_its_reason() -> None:
    away = seen(memory_age_seconds=44.6, fault="refused")
    assert only_finding(checks.database, away) == (
        "fault",
        "the database of the event log is away, and the groups are from 45 s ago: refused",
        "check that PostgreSQL runs, and that KARROT_EVENT_LOG lists every host of the cluster",
    )
    assert only_finding(checks.database, server(version="13.9"))[:2] == ("fault", "PostgreSQL 13.9 is too old")


@pytest.mark.parametrize(
    ("fields", "level", "sentence"),
    [
        ({"synchronous_commit": "off", "synchronous_standby_names": ""}, "fault", "synchronous_commit=off"),
        ({"synchronous_commit": "local"}, "fault", "does not wait for the synchronous standby"),
        ({"synchronous_commit": "remote_write"}, "fault", "in memory"),
        ({"encrypted": False}, "warn", "10.0.3.7 is not encrypted"),
    ],
)
def test_an_unsafe_setting_is_found(fields: dict[str, Any], level: str, sentence: str) -> None:
    found = only_finding(checks.database_settings, server(**fields))
    assert found[0] == level
    assert sentence in found[1]


def test_a_server_on_this_machine_needs_no_encryption() -> None:
    assert passes(checks.database_settings, server(encrypted=False, host="127.0.0.1"))
    alone = server(synchronous_commit="local", synchronous_standby_names="")
    assert passes(checks.database_settings, alone)


def test_a_missing_leader_is_a_fault_and_different_leaders_are_a_warning() -> None:
    nobody = karrot_snapshot(
        event_log=read_event_log(leader=None), replicas={OTHER: read_event_log(replica="karrot-1", leader=None)}
    )
    assert only_finding(checks.leader, nobody) == (
        "fault",
        "no replica leads, so no reporter gets events",
        f"see the log of each replica; runbook: {KARROT}/runbooks/KarrotNoLeader",
    )
    split = karrot_snapshot(replicas={OTHER: read_event_log(replica="karrot-1", leader=None)})
    assert only_finding(checks.leader, split)[:2] == (
        "warn",
        "the replicas do not agree on the leader: karrot-0, no replica",
    )
    away = karrot_snapshot(replicas={OTHER: read_event_log(leader="gone", memory_age_seconds=9.0)})
    assert passes(checks.leader, away)
    assert finds_nothing(checks.leader, seen(memory_age_seconds=1.0))


def test_a_replica_with_another_event_log_is_a_fault() -> None:
    other = karrot_snapshot(replicas={OTHER: read_event_log(replica="karrot-1", log_id="ffff")})
    assert only_finding(checks.replicas, other) == (
        "fault",
        f"{OTHER} has the event log ffff, but {KARROT} has 0123abcd",
        "give all replicas the same database and the same schema in KARROT_EVENT_LOG",
    )


def test_replicas_that_were_not_compared_are_noted() -> None:
    assert only_finding(checks.replicas, karrot_snapshot(replicas={})) == (
        "note",
        "only the replica karrot-0 was checked",
        "pass the other ones with --replica URL",
    )
    same = karrot_snapshot(replicas={OTHER: read_event_log()})
    assert only_finding(checks.replicas, same)[:2] == (
        "note",
        f"{OTHER} and {KARROT} have one name, karrot-0: one replica, or one machine",
    )


def test_standbys_that_are_missing_behind_or_hidden_are_found() -> None:
    behind = standbys(ReadStandby("zone_b", "sync", 7_000_000, 31.4))
    assert only_finding(checks.standbys, behind)[:2] == ("warn", "the standby zone_b is 31 s behind (7000000 bytes)")
    assert only_finding(checks.standbys, standbys(ReadStandby("zone_b", "async", 0, 0.0)))[:2] == (
        "note",
        "every standby is asynchronous: a failover can lose the newest events",
    )
    assert only_finding(checks.standbys, standbys())[:2] == ("note", "no standby streams from PostgreSQL")
    assert only_finding(checks.standbys, server(standbys=None))[2].startswith("GRANT pg_monitor")


@pytest.mark.parametrize("check", [checks.database_settings, checks.standbys, checks.connections])
def test_an_old_state_of_the_server_is_not_judged(check: Any) -> None:
    assert finds_nothing(check, seen(memory_age_seconds=20.0, server={"encrypted": False, "standbys": ()}))


def test_few_free_connections_are_a_warning_and_none_is_a_fault() -> None:
    assert only_finding(checks.connections, server(connections=80, max_connections=97))[:2] == (
        "warn",
        "80 of 97 connections of PostgreSQL are in use",
    )
    assert only_finding(checks.connections, server(connections=97, max_connections=97))[0] == "fault"
