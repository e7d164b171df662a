import datetime as dt
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from karrot.history import report_findings
from karrot.history.answers_and_errors import HistoryError, Incident, NothingToReport
from karrot.history.report_findings import (
    AnsweredTopics,
    Budget,
    Capacity,
    DayBurn,
    DayPeak,
    DayTotal,
    Findings,
    Flapping,
    GroupLag,
    Hours,
    IncidentTotals,
    LagPoint,
    Quarantined,
    Skewed,
)
from karrot.history.table_queries import History
from karrot.history.time_ranges import DayRange
from support.pipeline.table_files import write_note, write_rows
from support.report_findings import MONDAY, WEEK, hour_at, make_incident

TUESDAY = MONDAY + dt.timedelta(days=1)

Rows = list[dict[str, Any]]


def _time(at_s: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(at_s, dt.UTC)


def _of(group: str, **columns: Any) -> dict[str, Any]:
    return {"cluster": "prod", "consumer": group, **columns}


def _minute(group: str, at_s: int, seconds: float | None, lag: int | None, status: str, **more: Any) -> dict[str, Any]:
    known = {"minute": _time(at_s), "lag_seconds_max": seconds, "lag_max": lag, "worst_status": status}
    return _of(group, **known, not_ok=int(status != "OK"), **more)


def _lag_minute() -> Rows:
    return [
        # behind for twenty minutes, and farthest for two of them
        *(
            _minute(
                "orders",
                hour_at(0, 12) + 60 * n,
                900.0 if n in {7, 9} else 90.0,
                5_000 + n,
                "ERR",
                lag_seconds_kind="at_least" if n == 9 else "exact",
            )
            for n in range(20)
        ),
        _minute("orders", hour_at(1), 0.0, 0, "OK"),
        # lag in time is not known, and lag in messages is
        _minute("mail", hour_at(0), None, 70, "WARN"),
        _minute("mail", hour_at(0, 1), None, 7, "OK"),
        _minute("idle", hour_at(1, 23.5), 0.0, 0, "OK"),
        _minute("unread", hour_at(1, 12), None, None, "ERR"),
        _minute("half read", hour_at(1, 12), 0.0, 0, "OK", coverage=0.5, complete=0.5),
        _minute("half read", hour_at(1, 13), 0.0, 0, "OK", coverage=0.5, complete=0.5),
    ]


def _incident(incident_id: str, began: int, ended: int | None, by: str | None = "close") -> dict[str, Any]:
    told = _of(
        "orders",
        incident_id=incident_id,
        started_at=_time(began),
        ended_by=by,
        worst_status="ERR",
        peak_lag=9,
        events=3,
    )
    return told | {"ended_at": None if ended is None else _time(ended), "topics": ["orders.v1"]}


def _incidents() -> Rows:
    return [
        _incident("over before", hour_at(-2), hour_at(-1)),
        _incident("began before", hour_at(-2), hour_at(0, 1)),
        _incident("open", hour_at(1, 20), None, None),
        _incident("within", hour_at(0, 12), hour_at(0, 12.5)),
        _incident("later", hour_at(2), None, None),
    ]


def _status_intervals() -> Rows:
    def interval(group: str, status: str, first: int, last: int) -> dict[str, Any]:
        return _of(group, status=status, from_at=_time(first), to_at=_time(last))

    return [
        interval("orders", "OK", hour_at(0), hour_at(0, 12)),
        interval("orders", "WARN", hour_at(0, 12), hour_at(0, 13)),
        interval("orders", "ERR", hour_at(0, 13), hour_at(0, 15)),
        interval("mail", "WARN", hour_at(0), hour_at(0, 0.5)),
        interval("idle", "OK", hour_at(0), hour_at(1)),
    ]


def _slo_daily() -> Rows:
    def day(group: str, day: dt.date, minutes: tuple[int, int, int, int], **more: Any) -> dict[str, Any]:
        seen, ok, measured, within = minutes
        told = {"minutes_seen": seen, "minutes_ok": ok, "minutes_measured": measured, "minutes_within_target": within}
        rules = {"target_seconds": 60.0, "objective": 0.99, "budget_minutes": measured / 100}
        return _of(group, day=day, **told, **rules, **more)

    return [
        day("orders", MONDAY - dt.timedelta(days=1), (100, 100, 100, 100), burn_rate=0.0),
        day("orders", MONDAY, (1_000, 900, 1_000, 980), burn_rate=2.0, worst_partition="orders.v1/3"),
        day("orders", TUESDAY, (1_000, 1_000, 1_000, 1_000), burn_rate=0.0),
        day("mail", MONDAY, (50, 40, 0, 0)),
        day("idle", TUESDAY, (10, 10, 10, 10), burn_rate=0.0),
    ]


def _skew_minute() -> Rows:
    def minute(at_s: int, partition: int | None, cause: str | None, share: float | None = 0.75) -> dict[str, Any]:
        gini = 0.0 if share is None else 0.6
        worst = {"worst_partition": partition, "owner": f"owner-{partition}", "max_share": share, "gini": gini}
        return _of("orders", topic="orders.v1", minute=_time(at_s), cause=cause, coverage=1.0, **worst)

    return [
        *(minute(hour_at(0, 12) + 60 * n, 3, "hot_partition") for n in range(6)),
        *(minute(hour_at(0, 12) + 60 * n, 2, None) for n in range(6, 10)),
        # the group was OK, so its worst partition does not count
        *(minute(hour_at(1) + 60 * n, 7, "slow_owner") for n in range(20)),
        minute(hour_at(0), None, None, share=None),
        _of("idle", topic="idle.v1", minute=_time(hour_at(1)), gini=0.0, coverage=1.0),
    ]


def _rates_minute() -> Rows:
    def minute(at_s: int, topic: str, partition: int, produced: int, consumed: int) -> dict[str, Any]:
        counted = {"produced": produced * 60, "consumed": consumed * 60, "coverage": 1.0}
        return _of("orders", topic=topic, partition=partition, minute=_time(at_s), **counted)

    def five(at_s: int, rates: list[tuple[int, int]]) -> Iterable[dict[str, Any]]:
        return (
            minute(at_s + 60 * n, "orders.v1", partition, *rate)
            for n in range(5)
            for partition, rate in enumerate(rates)
        )

    return [
        *five(hour_at(0, 12), [(10, 10), (10, 10)]),
        # catches up: 60 per second is its capacity
        *five(hour_at(0, 13), [(20, 30), (20, 30)]),
        *five(hour_at(1, 13), [(25, 25), (25, 25)]),
        # half of the partitions are unknown, so the topic has no rate
        *five(hour_at(1, 14), [(90, 90)]),
        # too short to count as sustained
        minute(hour_at(1, 15), "orders.v1", 0, 500, 900),
        minute(hour_at(1, 15), "orders.v1", 1, 500, 900),
        # never under pressure
        *(minute(hour_at(1, 15) + 60 * n, "calm.v1", 0, 50, 50) for n in range(5)),
    ]


def _quarantine() -> Rows:
    return [
        {"day": MONDAY, "reason": "unreadable", "raw": "AA=="},
        {"day": MONDAY, "reason": "short_segment", "missing": 40},
    ]


def _write_two_days(tables: Path) -> None:
    """Write the first two days of the week, and the days around them."""
    write_rows(tables, "lag_minute", _lag_minute())
    write_rows(tables, "incidents", _incidents())
    write_rows(tables, "status_intervals", _status_intervals())
    write_rows(tables, "slo_daily", _slo_daily())
    write_rows(tables, "skew_minute", _skew_minute())
    write_rows(tables, "rates_minute", _rates_minute())
    write_rows(tables, "quarantine", _quarantine())
    write_note(tables)


@pytest.fixture(scope="module")
def two_days(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    tables = tmp_path_factory.mktemp("tables")
    _write_two_days(tables)
    with History(tables) as history:
        yield history


@pytest.fixture(scope="module")
def found(two_days: History) -> Findings:
    return two_days.findings(MONDAY, TUESDAY)


def test_a_report_names_its_days_and_the_days_that_they_are_compared_with(found: Findings) -> None:
    assert found.period == DayRange(MONDAY, TUESDAY)
    assert (found.heard_from_s, found.heard_until_s) == (hour_at(0), hour_at(1, 23.5) + 60)
    assert (found.target_seconds, found.objective, found.groups) == (60.0, 0.99, 3)
    assert found.days == [
        DayTotal(MONDAY, 2, 1_050, 940, 1_000, 980),
        DayTotal(TUESDAY, 2, 1_010, 1_010, 1_010, 1_010),
    ]
    assert found.days_before == [DayTotal(MONDAY - dt.timedelta(days=1), 1, 100, 100, 100, 100)]
    assert found.quarantined == Quarantined(lines=1, missing=40)
    assert found.unknown == 2


def test_groups_are_ranked_by_lag_in_time_then_by_messages(found: Findings) -> None:
    stretch = 1_028
    begins = [at_s - (at_s - hour_at(0)) % stretch for at_s in (hour_at(0, 12), hour_at(0, 12) + 19 * 60, hour_at(1))]
    assert found.lags == [
        GroupLag(
            "prod",
            "orders",
            900.0,
            5_019,
            hour_at(0, 12) + 9 * 60,
            "ERR",
            True,
            [LagPoint(begins[0], 900.0), LagPoint(begins[1], 90.0), LagPoint(begins[2], 0.0)],
        ),
        GroupLag(
            "prod",
            "mail",
            None,
            70,
            hour_at(0),
            "WARN",
            False,
            [LagPoint(hour_at(0), None), LagPoint(hour_at(0, 1) - 3_600 % stretch, None)],
        ),
    ]


def test_incidents_that_overlap_the_days_are_listed_longest_first(found: Findings) -> None:
    def told(incident_id: str, began: int, ended: int | None, by: str | None) -> Incident:
        return make_incident(began, ended, incident_id=incident_id, ended_by=by, peak_lag=9, events=3)

    assert found.incidents == [
        told("began before", hour_at(-2), hour_at(0, 1), "close"),
        told("open", hour_at(1, 20), None, None),
        told("within", hour_at(0, 12), hour_at(0, 12.5), "close"),
    ]
    assert found.open_incidents == found.incidents[1:2]
    assert (found.incident_totals, found.flapping) == (IncidentTotals(3, open=1, silent=0), [])


def test_incidents_too_short_to_be_shown_are_counted(
    tables: Path, history_in_folder: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_findings, "INCIDENTS_SHOWN", 2)
    flaps = [_incident(f"flap {n}", hour_at(0, n), hour_at(0, n + 0.1), "silence") for n in range(10)]
    told = [*flaps, _incident("long", hour_at(0), hour_at(1)), _incident("open", hour_at(1, 23), None, None)]
    told += [flap | {"consumer": "nine"} for flap in flaps[:9]]
    write_rows(tables, "incidents", told)
    write_rows(tables, "lag_minute", [_minute("orders", hour_at(1, 23), 90.0, 5, "ERR")])
    found = history_in_folder.findings(WEEK.first, WEEK.last)
    assert [each.incident_id for each in found.incidents] == ["long", "flap 0"]
    assert found.incident_totals == IncidentTotals(21, 1, 19)
    assert found.flapping == [Flapping("prod", "orders", 11, 360.0)]
    assert [each.incident_id for each in found.open_incidents] == ["open"]


def test_hours_are_listed_for_groups_that_were_not_ok(found: Findings) -> None:
    assert found.hours == [
        Hours("prod", "orders", ok=12 * 3_600, warn=3_600, err=2 * 3_600),
        Hours("prod", "mail", ok=0, warn=1_800, err=0),
    ]


def test_a_partition_is_hot_only_in_minutes_in_which_its_group_was_not_ok(found: Findings) -> None:
    assert found.skewed == [
        Skewed("prod", "orders", "orders.v1", 10, 0.75, pytest.approx(0.6), 3, "owner-3", "hot_partition")  # type: ignore[arg-type]
    ]
    assert found.skew_watched == AnsweredTopics(topics=2, answered=1)


def test_capacity_is_the_best_rate_under_pressure_against_the_peak_of_each_day(found: Findings) -> None:
    assert found.capacities == [
        Capacity("prod", "orders", "orders.v1", 60.0, [DayPeak(MONDAY, 40.0), DayPeak(TUESDAY, 50.0)])
    ]
    assert found.rates_watched == AnsweredTopics(topics=2, answered=1)


def test_budgets_are_listed_for_groups_that_spent_some(found: Findings) -> None:
    assert found.budgets == [
        Budget("prod", "orders", 2_000, 20, 20.0, 1.0, "orders.v1/3", [DayBurn(MONDAY, 2.0), DayBurn(TUESDAY, 0.0)])
    ]


def test_a_report_of_tables_in_s3_has_the_same_findings(found: Findings, tables: Path, history_in_s3: History) -> None:
    _write_two_days(tables)
    assert history_in_s3.findings(MONDAY, TUESDAY) == found


def test_the_newest_seven_days_are_reported_by_default(two_days: History) -> None:
    assert two_days.findings().period == DayRange(TUESDAY - dt.timedelta(days=6), TUESDAY)
    assert two_days.findings(MONDAY).period == DayRange(MONDAY, TUESDAY)
    assert two_days.findings(None, MONDAY).period == DayRange(MONDAY - dt.timedelta(days=6), MONDAY)


def test_a_report_has_the_derived_tables_of_one_run(tables: Path, history_in_folder: History) -> None:
    write_rows(tables, "lag_minute", [_minute("orders", hour_at(0), 90.0, 5, "ERR")])
    write_note(tables)
    write_rows(tables, "lag_minute", [_minute("orders", hour_at(0), 90.0, 7, "ERR")])
    write_rows(tables, "incidents", [_incident("of the next run", hour_at(0), None, None)])
    found = history_in_folder.findings()
    assert ([each.peak_lag for each in found.lags], found.incidents) == ([5], [])


def test_a_day_with_lag_alone_has_no_other_findings(tables: Path, history_in_folder: History) -> None:
    write_rows(tables, "lag_minute", [_minute("orders", hour_at(0), None, 5, "OK")])
    found = history_in_folder.findings()
    assert (found.groups, found.target_seconds, found.days, found.quarantined) == (0, None, [], Quarantined(0, 0))
    assert (found.skew_watched, found.incident_totals) == (AnsweredTopics(0, 0), IncidentTotals(0, 0, 0))
    assert [(each.consumer, each.peak_lag) for each in found.lags] == [("orders", 5)]


def test_days_without_tables_give_one_sentence(two_days: History) -> None:
    with pytest.raises(NothingToReport) as refused:
        two_days.findings(WEEK.last, WEEK.last)
    assert str(refused.value).endswith(" has no day from 2026-11-22 to 2026-11-22; it has 2026-11-16 to 2026-11-17")


def test_a_place_without_derived_tables_names_the_command_that_makes_them(
    tables: Path, history_in_folder: History
) -> None:
    write_rows(tables, "quarantine", _quarantine())
    with pytest.raises(HistoryError, match="no table lag_minute: run karrot pipeline run --once --only derive"):
        history_in_folder.findings()
