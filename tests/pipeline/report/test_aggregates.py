import datetime as dt
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pyspark.sql import functions as F

from karrot.cli import main
from karrot.history.answers_and_errors import Incident
from karrot.history.time_ranges import DayRange
from karrot.pipeline.report import finding_types
from karrot.pipeline.report import job as aggregates
from karrot.pipeline.report.finding_types import (
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
from karrot.pipeline.report.job import NothingToReportError, find, period_of
from karrot.pipeline.schemas_and_conversions import PIECES, TABLES, rows, with_day
from karrot.pipeline.store.table_files import Tables
from support.pipeline.report_findings import MONDAY, WEEK, hour_at, make_incident

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TUESDAY = MONDAY + dt.timedelta(days=1)

Rows = list[dict[str, Any]]


def _iso(at_s: float) -> str:
    return dt.datetime.fromtimestamp(at_s, dt.UTC).isoformat()


def _of(group: str, **columns: Any) -> dict[str, Any]:
    return {"cluster": "prod", "consumer": group, **columns}


def _minute(group: str, at_s: int, seconds: float | None, lag: int | None, status: str, **more: Any) -> dict[str, Any]:
    known = {"minute": _iso(at_s), "lag_seconds_max": seconds, "lag_max": lag, "worst_status": status}
    return _of(group, **known, not_ok=status != "OK", **more)


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
        "orders", incident_id=incident_id, started_at=_iso(began), ended_by=by, worst_status="ERR", peak_lag=9, events=3
    )
    return told | {"ended_at": None if ended is None else _iso(ended), "topics": ["orders.v1"]}


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
        return _of(group, status=status, from_at=_iso(first), to_at=_iso(last))

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
        return _of(group, day=day.isoformat(), **told, **rules, **more)

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
        return _of("orders", topic="orders.v1", minute=_iso(at_s), cause=cause, coverage=1.0, **worst)

    return [
        *(minute(hour_at(0, 12) + 60 * n, 3, "hot_partition") for n in range(6)),
        *(minute(hour_at(0, 12) + 60 * n, 2, None) for n in range(6, 10)),
        # the group was OK, so its worst partition does not count
        *(minute(hour_at(1) + 60 * n, 7, "slow_owner") for n in range(20)),
        minute(hour_at(0), None, None, share=None),
        _of("idle", topic="idle.v1", minute=_iso(hour_at(1)), gini=0.0, coverage=1.0),
    ]


def _rates_minute() -> Rows:
    def minute(at_s: int, topic: str, partition: int, produced: int, consumed: int) -> dict[str, Any]:
        counted = {"produced": produced * 60, "consumed": consumed * 60, "coverage": 1.0}
        return _of("orders", topic=topic, partition=partition, minute=_iso(at_s), **counted)

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
    return [{"reason": "unreadable", "raw": "AA=="}, {"reason": "short_segment", "missing": 40}]


def _told() -> dict[str, Rows]:
    return {
        "lag_minute": _lag_minute(),
        "incidents": _incidents(),
        "status_intervals": _status_intervals(),
        "slo_daily": _slo_daily(),
        "skew_minute": _skew_minute(),
        "rates_minute": _rates_minute(),
        "quarantine": _quarantine(),
    }


def _day_of(row: dict[str, Any]) -> str:
    moment = row.get("minute") or row.get("started_at") or row.get("from_at")
    return str(row.get("day") or (moment or MONDAY.isoformat())[:10])


@pytest.fixture(scope="module")
def tables(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Write the first two days of the week, and the days around them."""
    made = Tables(str(tmp_path_factory.mktemp("tables")))
    for name, told in _told().items():
        lines = [row | {"day": _day_of(row)} for row in told]
        frame = spark.range(1).select(rows(lines, with_day(TABLES[name])))
        if name == "quarantine":
            made.append(frame, name, "b-0")
        else:
            days = {dt.date.fromisoformat(line["day"]) for line in lines}
            made.replace_days(frame.withColumn("piece", F.lit(0)) if name in PIECES else frame, name, days)
    return made


@pytest.fixture(scope="module")
def found(spark: "SparkSession", tables: Tables) -> Findings:
    return find(spark, tables, DayRange(MONDAY, TUESDAY))


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


def test_incidents_too_short_to_be_shown_are_counted(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding_types, "INCIDENTS_SHOWN", 2)
    flaps = [_incident(f"flap {n}", hour_at(0, n), hour_at(0, n + 0.1), "silence") for n in range(10)]
    told = [*flaps, _incident("long", hour_at(0), hour_at(1)), _incident("open", hour_at(1, 23), None, None)]
    told += [flap | {"consumer": "nine"} for flap in flaps[:9]]
    ask = aggregates.Queries({"incidents": spark.range(1).select(rows(told, TABLES["incidents"]))}, WEEK)
    ask.frames["incidents"] = ask.frame(aggregates._INCIDENTS)
    ask.numbers["now_s"] = hour_at(1, 23.01)
    assert [each.incident_id for each in ask.longest(only_open=False)] == ["long", "flap 0"]
    assert ask.rows(IncidentTotals, aggregates._INCIDENT_TOTALS) == [IncidentTotals(21, 1, 19)]
    assert ask.rows(Flapping, aggregates._FLAPPING) == [Flapping("prod", "orders", 11, 360.0)]
    assert [each.incident_id for each in ask.longest(only_open=True)] == ["open"]


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


def test_the_newest_seven_days_are_reported_by_default(spark: "SparkSession", tables: Tables) -> None:
    assert period_of(spark, tables, None, None) == DayRange(TUESDAY - dt.timedelta(days=6), TUESDAY)
    assert period_of(spark, tables, MONDAY, None) == DayRange(MONDAY, TUESDAY)
    assert period_of(spark, tables, None, MONDAY) == DayRange(MONDAY - dt.timedelta(days=6), MONDAY)


def test_days_without_tables_give_one_sentence(spark: "SparkSession", tables: Tables) -> None:
    with pytest.raises(NothingToReportError) as refused:
        period_of(spark, tables, WEEK.last, WEEK.last)
    assert str(refused.value) == (
        f"{tables.directory} has no day from 2026-11-22 to 2026-11-22; it has 2026-11-16 to 2026-11-17"
    )
    with pytest.raises(NothingToReportError, match="no derived tables: run karrot pipeline run --once --only derive"):
        period_of(spark, Tables(f"{tables.directory}/none"), None, None)


def test_days_in_the_wrong_order_are_refused_before_spark_starts() -> None:
    asked = ["pipeline", "report", "--tables", "t", "--from", "2026-11-22", "--to", "2026-11-16"]
    ended = CliRunner().invoke(main, asked)
    assert (ended.exit_code, ended.stderr) == (2, "karrot: --from 2026-11-22 is after --to 2026-11-16\n")
