import datetime as dt
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from karrot.pipeline.derive.lag_minute import lag_minute
from karrot.pipeline.derive.rates_minute import rates_minute, whole_listings
from karrot.pipeline.derive.skew_minute import skew_minute
from karrot.pipeline.derive.slo_daily import Objective, slo_daily
from karrot.pipeline.derive.status_intervals import status_intervals, verdict_runs
from karrot.pipeline.schemas_and_conversions import DERIVED, with_day
from support.pipeline.event_rows import event_row, events_frame, partitions_frame
from support.pipeline.row_times import MIDNIGHT, second_at

SILENCE = dt.timedelta(seconds=300)


def _rows(df: DataFrame, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Check that the frame has its table's schema; return some columns of its rows, sorted."""
    told = [(field.name, field.dataType.simpleString()) for field in df.schema]
    assert told == [(field.name, field.dataType.simpleString()) for field in with_day(DERIVED[table])]
    return sorted((tuple(map(_utc, row)) for row in df.select(*columns).collect()), key=repr)


def _utc(value: Any) -> Any:
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value


def test_a_minute_of_lag_leaves_out_unknown_values(spark: SparkSession) -> None:
    same_moment = [event_row(30, "warn", total_lag=7, seq=2), event_row(30, "warn", total_lag=8, seq=1)]
    rows = [
        event_row(0, "ok", total_lag=1, lag_seconds=0.0),
        event_row(20, "err", total_lag=30, lag_seconds=12.5),
        *same_moment,
        event_row(59.999, "odd"),
        event_row(60, "gone"),
    ]
    found = _rows(
        lag_minute(events_frame(spark, rows)),
        "lag_minute",
        *(
            "minute",
            "count",
            "lag_min",
            "lag_max",
            "lag_avg",
            "lag_last",
            "lag_seconds_max",
            "worst_status",
            "not_ok",
            "day",
        ),
    )
    assert found == [
        (second_at(0), 5, 1, 30, 11.5, 7, 12.5, "ERR", 3, MIDNIGHT.date()),
        (second_at(60), 1, None, None, None, None, None, "NOTFOUND", 0, MIDNIGHT.date()),
    ]


def test_a_status_lasts_until_the_next_verdict_silence_or_now_and_is_cut_at_midnight(spark: SparkSession) -> None:
    rows = [
        event_row(86_000, "ok"),
        event_row(86_200, "ok"),
        event_row(86_350, "warn", "i"),
        event_row(86_410, "warn", "i"),  # after midnight
        event_row(86_470, "warn", "j"),  # another incident, the same status
        event_row(86_500, "odd"),
        event_row(86_510, "gone"),
        event_row(90_000, "ok"),
        event_row(91_000, "ok"),  # the previous status lasted five minutes
    ]
    runs = verdict_runs(events_frame(spark, rows), partitions_frame(spark, rows), silence=SILENCE)
    found = status_intervals(runs, silence=SILENCE, as_of=second_at(91_200))
    assert _rows(found, "status_intervals", "from_at", "to_at", "status", "day") == [
        (second_at(86_000), second_at(86_350), "OK", MIDNIGHT.date()),
        (second_at(86_350), second_at(86_400), "WARN", MIDNIGHT.date()),
        (second_at(86_400), second_at(86_500), "WARN", second_at(86_400).date()),
        (second_at(90_000), second_at(90_300), "OK", second_at(86_400).date()),
        (second_at(91_000), second_at(91_200), "OK", second_at(86_400).date()),
    ]


def _look(seconds: float, *, committed: int, lag: int, listed_of: int = 1) -> dict[str, Any]:
    one = {"topic": "t", "partition": 3, "end_offset": committed, "current_lag": lag, "owner": "o"}
    return event_row(seconds, "ok", source="rest", partition_count=listed_of, listed=[one])


def test_rates_are_interpolated_between_verdicts_that_list_all_partitions(spark: SparkSession) -> None:
    rows = [
        _look(30, committed=0, lag=0),
        _look(90, committed=60, lag=60),  # after the longest gap: 2 messages per second arrived, 1 was read
        _look(100, committed=5_000, lag=0, listed_of=2),  # a webhook: lists one of two
        _look(150, committed=300, lag=0),  # 3 messages per second arrived, 4 were read
        _look(180, committed=200, lag=100),  # a rewind
        _look(210, committed=200, lag=100),
        _look(2_000, committed=9_999, lag=0),  # too long ago
        _look(2_030, committed=2**60, lag=0),  # more than 10^9 messages per second
    ]
    listings = whole_listings(events_frame(spark, rows), partitions_frame(spark, rows))
    found = _rows(
        rates_minute(listings, longest=dt.timedelta(seconds=60)),
        "rates_minute",
        *(
            "minute",
            "partition",
            "produced",
            "consumed",
            "produce_rate",
            "consume_rate",
            "catch_up_seconds",
            "coverage",
        ),
    )
    assert found == [
        (second_at(0), 3, 60, 30, 2.0, 1.0, None, 0.5),
        (second_at(60), 3, 150, 150, 2.5, 2.5, 0.0, 1.0),
        (second_at(120), 3, 90, 120, 3.0, 4.0, 0.0, 0.5),
        (second_at(180), 3, 0, 0, 0.0, 0.0, None, 0.5),
    ]


def _spread(consumer: str, lags: list[int | None], owners: str, *, listed_of: int = 4) -> dict[str, Any]:
    listed = [
        {"topic": "t", "partition": number, "current_lag": lag, "owner": owner}
        for number, (lag, owner) in enumerate(zip(lags, owners, strict=True))
    ]
    return event_row(0, "ok", consumer=consumer, partition_count=listed_of, listed=listed)


def test_skew_distinguishes_a_hot_partition_from_a_slow_owner(spark: SparkSession) -> None:
    rows = [
        _spread("even", [5, 5, 5, 5], "abcd"),
        _spread("idle", [0, 0, 0, 0], "abcd"),
        _spread("hot", [0, 90, 0, 10], "aabb"),
        _spread("slow", [40, 60, 0, 0], "aabb"),
        _spread("alone", [100, 0, 0, 0], "abcd"),
        _spread("bad ones", [100, 0, 0, 0], "abcd", listed_of=9),
        _spread("unknown", [100, None, 0, 0], "abcd"),
    ]
    found = _rows(
        skew_minute(whole_listings(events_frame(spark, rows), partitions_frame(spark, rows))),
        "skew_minute",
        *("consumer", "max_share", "gini", "worst_partition", "owner", "owner_share", "cause", "coverage"),
    )
    assert found == [
        ("alone", 1.0, 0.75, 0, "a", 1.0, None, 1.0),
        ("even", 0.25, 0.0, 3, "d", 0.25, None, 1.0),
        ("hot", 0.9, 0.7, 1, "a", 0.9, "hot_partition", 1.0),
        ("idle", None, 0.0, None, None, None, None, 1.0),
        ("slow", 0.6, 0.55, 1, "a", 1.0, "slow_owner", 1.0),
    ]


def test_the_budget_is_spent_by_minutes_beyond_the_target(spark: SparkSession) -> None:
    in_time = [event_row(60 * minute, "ok", lag_seconds=1.0) for minute in range(96)]
    rows = [
        *in_time,
        event_row(6_000, "ok", lag_seconds=60.0),
        event_row(6_060, "err", lag_seconds=61.0, listed=[{"topic": "t", "partition": 2, "current_lag": 8}]),
        event_row(6_120, "ok", lag_seconds=2.0),
        event_row(6_121, "warn", lag_seconds=90.0, listed=[{"topic": "t", "partition": 1, "current_lag": 9}]),
        event_row(6_180, "ok"),  # not measured
        event_row(6_240, "gone"),  # not seen
        event_row(0, "ok", consumer="never measured"),
    ]
    found = slo_daily(lag_minute(events_frame(spark, rows)), partitions_frame(spark, rows), Objective(60, 0.99))
    columns = ("consumer", "minutes_seen", "minutes_ok", "minutes_measured", "minutes_within_target", "budget_minutes")
    assert _rows(found, "slo_daily", *columns, "burn_rate", "worst_partition", "target_seconds", "objective") == [
        ("g", 100, 98, 99, 97, 0.99, round(200 / 99, 6), "t/1", 60.0, 0.99),
        ("never measured", 1, 1, 0, 0, 0.0, None, None, 60.0, 0.99),
    ]
