"""Events of groups, each named after what its events show: how incidents end, and what a minute of lag leaves out."""

from typing import Any

from support.pipeline.event_rows import event_row
from support.pipeline.row_times import second_at

Rows = list[dict[str, Any]]


def _incidents() -> Rows:
    return [
        # Its own close, with a verdict from REST in between; the worst status and the largest lag are kept.
        event_row(0, "ok", consumer="closed"),
        event_row(60, "warn", "a", consumer="closed", total_lag=5, topics=["t2"]),
        event_row(120, "err", consumer="closed", total_lag=9, topics=["t1", "t2"]),
        event_row(180, "close", "a", consumer="closed", total_lag=0),
        # Burrow gives its start; then another id.
        event_row(60, "warn", "a", consumer="followed", incident_start=second_at(-86_400 * 2)),
        event_row(120, "warn", "b", consumer="followed"),
        event_row(150, "ok", consumer="followed"),
        event_row(60, "err", "a", consumer="deleted"),
        event_row(90, "gone", consumer="deleted"),
        # Silent, then OK: the status in between is unknown.
        event_row(60, "warn", "a", consumer="silent"),
        event_row(4_000, "ok", consumer="silent"),
        # Silent, then the same incident again: it did not end.
        event_row(60, "warn", "a", consumer="resumed"),
        event_row(4_000, "warn", "a", consumer="resumed"),
        event_row(4_060, "close", "a", consumer="resumed"),
        # Only its end was reported.
        event_row(60, "close", "a", consumer="close alone"),
        event_row(87_000, "warn", "a", consumer="open"),
        # The newest event of all groups is five minutes later: not yet silent.
        event_row(86_800, "warn", "a", consumer="heard five minutes ago"),
        event_row(60, "odd", "a", consumer="odd"),
        # A gap of exactly five minutes is no silence.
        event_row(0, "ok", consumer="five minutes apart"),
        event_row(300, "ok", consumer="five minutes apart"),
        # Verdicts without an id form an incident until a verdict has an id.
        event_row(0, "warn", consumer="nameless"),
        event_row(200, "err", consumer="nameless"),
        event_row(1_000, "warn", consumer="nameless"),
        event_row(1_100, "ok", consumer="nameless"),
        event_row(0, "warn", consumer="named late", total_lag=7),
        event_row(60, "warn", "a", consumer="named late", total_lag=3),
        event_row(90, "close", "a", consumer="named late"),
        # A known id does not open an incident again.
        event_row(0, "warn", "a", consumer="known again"),
        event_row(60, "close", "a", consumer="known again"),
        event_row(90, "warn", "a", consumer="known again"),
        # Observed before an event that arrived earlier: skipped, as in the service.
        event_row(0, "warn", "a", consumer="overtaken"),
        event_row(30, "ok", consumer="overtaken", late=40),
        event_row(60, "warn", "a", consumer="overtaken"),
    ]


def _statuses() -> Rows:
    said = [
        *((86_000, "ok", None), (86_200, "ok", None), (86_350, "warn", "i")),
        (86_410, "warn", "i"),  # after midnight
        (86_470, "warn", "j"),  # another incident, the same status
        *((86_500, "odd", None), (86_510, "gone", None)),
        (86_590, "ok", None),
        (86_790, "ok", None),  # the next one comes after five minutes of silence
        (87_100, "ok", None),
    ]
    return [event_row(seconds, word, name, consumer="statuses") for seconds, word, name in said]


def _lags() -> Rows:
    of = {"consumer": "lags", "log_id": "of lags"}
    return [
        event_row(0, "ok", total_lag=1, lag_seconds=0.0, **of),
        event_row(20, "err", total_lag=30, lag_seconds=12.5, **of),
        # Of two events of the same moment, the one with the larger number is the last.
        event_row(30, "warn", total_lag=7, seq=2, **of),
        event_row(30, "warn", total_lag=8, seq=1, **of),
        event_row(59.999, "odd", **of),
        event_row(60, "gone", **of),
        # The budget is spent by minutes beyond the target.
        *(event_row(60 * minute, "ok", consumer="budget", lag_seconds=1.0) for minute in range(96)),
        event_row(6_000, "ok", consumer="budget", lag_seconds=60.0),
        _listing(6_060, "err", "budget", {"partition": 2, "current_lag": 8}, lag_seconds=61.0),
        event_row(6_120, "ok", consumer="budget", lag_seconds=2.0),
        _listing(6_121, "warn", "budget", {"partition": 1, "current_lag": 9}, lag_seconds=90.0),
        event_row(6_180, "ok", consumer="budget"),  # not measured
        event_row(6_240, "gone", consumer="budget"),  # not seen
    ]


def _listing(seconds: float, word: str, consumer: str, *listed: dict[str, Any], **columns: Any) -> dict[str, Any]:
    return event_row(seconds, word, consumer=consumer, listed=[{"topic": "t", **each} for each in listed], **columns)


def _rates() -> Rows:
    def told(seconds: float, committed: int, lag: int, of: int = 1) -> dict[str, Any]:
        one = {"partition": 3, "end_offset": committed, "current_lag": lag, "owner": "o"}
        return _listing(seconds, "ok", "rates", one, source="rest", partition_count=of)

    return [
        told(30, 0, 0),
        told(90, 60, 60),
        told(100, 5_000, 0, of=2),  # a webhook: lists one of two
        told(150, 300, 0),
        told(180, 200, 100),  # a rewind
        told(210, 200, 100),
        told(811, 900, 0),  # longer ago than rates are interpolated
        told(2_000, 9_999, 0),
        told(2_030, 2**60, 0),  # more than 10^9 messages per second
    ]


def _skew() -> Rows:
    lags: dict[str, tuple[list[int | None], str, int]] = {
        "evenly spread": ([5, 5, 5, 5], "abcd", 4),
        "at rest": ([0, 0, 0, 0], "abcd", 4),
        "hot": ([0, 90, 0, 10], "aabb", 4),
        "slow": ([40, 60, 0, 0], "aabb", 4),
        "alone": ([100, 0, 0, 0], "abcd", 4),
        "bad ones": ([100, 0, 0, 0], "abcd", 9),
        "unknown lag": ([100, None, 0, 0], "abcd", 4),
    }
    return [
        _listing(
            0,
            "ok",
            name,
            *({"partition": at, "current_lag": lag, "owner": owners[at]} for at, lag in enumerate(each)),
            partition_count=of,
        )
        for name, (each, owners, of) in lags.items()
    ]


def verdict_scenarios() -> Rows:
    return [*_incidents(), *_statuses(), *_lags(), *_rates(), *_skew()]
