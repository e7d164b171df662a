import platform
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as ClientMetric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector  # noqa: TC002 - next to the import that it is used with

from karrot import __version__, mutes
from karrot.burrow.payload import parse_rest, parse_webhook, to_wire
from karrot.event import LagEvent, OffsetSample, Source
from karrot.eventlog.base import Cursor, GroupState, LogUnavailableError, ReporterState
from karrot.eventlog.event_log import EventLog
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.intake import observe
from karrot.reporters.base import PullReporter
from karrot.reporters.prometheus import LogCollector, build, group_metrics, render
from karrot.reporters.prometheus.group_metrics import label_value
from karrot.telemetry import CONSUMER_MUTED, METRICS, SERIES_DROPPED
from support.burrow.lag_events import event_strategy, make_event, make_partition
from support.burrow.recorded_bodies import recorded_body, recorded_rest_answer
from support.eventlog.mutes import make_mute
from support.eventlog.read_commits import ResyncedBurrow, cut_off_from_kafka
from support.manual_clock import ManualClock
from support.reporters.reporter_context import make_context

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "metrics"
OPENMETRICS = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5"
RECORDED = (
    "karrot_v1.9.5_warn.json",
    "karrot_v1.9.5_open_ok_t1.json",
    "karrot_v1.9.5_group_dots_spaces_slashes.json",
    "karrot_v1.9.5_group_unicode.json",
    "karrot_v1.9.5_burrow_self_group.json",
    "karrot_v1.9.5_status_unknown_SYNTHETIC.json",
    "karrot_v1.9.5_open_ok_maxlag_null.json",
    "karrot_v1.9.5_err_stop.json",
)
"""Bodies of several groups; the later of two bodies of one group is the newest."""

Labels = frozenset[tuple[str, str]]
Samples = dict[tuple[str, Labels], float]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(wall=1_746_950_405_000)


def collector(log: EventLog, **settings: str) -> LogCollector:
    return build(make_context("prometheus", settings, log=log)).collector(log)


def tell(log: EventLog, **overrides: Any) -> int:
    event = make_event(**overrides)
    return log.append(event, to_wire(event)).seq


def tell_recorded(log: EventLog, clock: ManualClock, names: Iterable[str] = RECORDED) -> None:
    for name in names:
        body = recorded_body(name)
        log.append(parse_webhook(body, observed_at_ms=clock.wall_ms()), body)


def openmetrics(text: str) -> Iterator[ClientMetric]:
    families: Iterator[ClientMetric] = parse_openmetrics(text)  # type: ignore[no-untyped-call]
    return families


def exposition(log: EventLog, accept: str = "", names: Sequence[str] = (), **settings: str) -> str:
    _, pieces = render({"prometheus": collector(log, **settings)}, accept, names)
    return b"".join(pieces).decode()


def read(families: Iterable[ClientMetric]) -> Samples:
    """Return the samples by name and labels; two samples of one series are an error."""
    samples: Samples = {}
    for family in families:
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples
            samples[key] = sample.value
    return samples


def scraped(log: EventLog, **settings: str) -> Samples:
    return read(parse_text(exposition(log, **settings)))


def of(samples: Samples, name: str) -> dict[Labels, float]:
    return {labels: value for (found, labels), value in samples.items() if found == name}


def labels(**values: str) -> Labels:
    return frozenset(values.items())


def one_version(text: str) -> str:
    """Return the exposition with this machine's versions replaced."""
    return text.replace(__version__, "VERSION").replace(platform.python_version(), "PYTHON")


ORDERS = labels(cluster="prod-eu", consumer="orders-svc")


@pytest.mark.parametrize(
    ("accept", "golden"),
    [("", "recorded.prom"), (OPENMETRICS, "recorded.openmetrics.prom")],
    ids=["the text format", "OpenMetrics"],
)
def test_recorded_bodies_give_the_recorded_exposition(
    log: MemoryEventLog, clock: ManualClock, accept: str, golden: str
) -> None:
    tell_recorded(log, clock)
    log.save_reporter(ReporterState("stdout", Cursor(log.log_id, 5)))
    observe(log.count, 0.004)
    clock.advance(2_500)
    chosen = {"partition_metrics": "true", "expected_clusters": "prod-eu, dr", "reporters": "prometheus,stdout"}
    assert one_version(exposition(log, accept, **chosen)) == (GOLDEN / golden).read_text(encoding="utf-8")


def test_prometheus_is_a_pull_reporter(log: MemoryEventLog) -> None:
    assert isinstance(build(make_context("prometheus", log=log)), PullReporter)


def test_an_empty_log_has_no_groups_and_all_counters_at_zero(log: MemoryEventLog) -> None:
    samples = scraped(log)
    assert not [name for name, _ in samples if name.startswith("karrot_consumer_")]
    assert of(samples, "karrot_consumers") == {labels(): 0}
    assert of(samples, "karrot_consumers_expired_total") == {labels(): 0}
    assert of(samples, "karrot_events_accepted_total") == {
        labels(source="webhook"): 0,
        labels(source="rest"): 0,
        labels(source="kafka"): 0,
    }


def test_every_declared_metric_is_exported_in_the_order_of_the_register(log: MemoryEventLog) -> None:
    text = exposition(log, partition_metrics="true", topic_metrics="true", watch="true")
    assert re.findall(r"# TYPE (\S+)", text) == [metric.name for metric in METRICS]


def test_no_sample_has_a_timestamp_or_is_about_a_worker_process(log: MemoryEventLog) -> None:
    tell(log)
    for line in exposition(log).splitlines():
        assert line.startswith(("# HELP karrot_", "# TYPE karrot_")) or re.fullmatch(r"karrot_\S+({.*})? \S+", line)


def test_a_verdict_gives_the_samples_of_its_group(log: MemoryEventLog, clock: ManualClock) -> None:
    tell(log, observed_at_ms=clock.wall_ms())
    samples = {
        (name, dict(where).get("status")): value for (name, where), value in scraped(log).items() if where >= ORDERS
    }
    assert samples == {
        ("karrot_consumer_lag", None): 11_020,
        ("karrot_consumer_max_lag", None): 10_440,
        ("karrot_consumer_scalable_lag", None): 11_020,
        ("karrot_consumer_lag_seconds", None): 103.002,
        ("karrot_consumer_lag_seconds_kind", None): 0,
        ("karrot_consumer_produce_rate", None): 106.103896,
        ("karrot_consumer_consume_rate", None): 47.651007,
        ("karrot_consumer_status", "OK"): 0,
        ("karrot_consumer_status", "WARN"): 1,
        ("karrot_consumer_status", "ERR"): 0,
        ("karrot_consumer_status_code", None): 2,
        ("karrot_consumer_partitions", None): 12,
        ("karrot_consumer_bad_partitions", "WARN"): 1,
        ("karrot_consumer_bad_partitions", "STOP"): 0,
        ("karrot_consumer_bad_partitions", "STALL"): 0,
        ("karrot_consumer_bad_partitions", "REWIND"): 0,
        ("karrot_consumer_complete_ratio", None): 1,
        ("karrot_consumer_last_event_timestamp_seconds", None): 1_746_950_405,
        ("karrot_consumer_last_commit_timestamp_seconds", None): 1_746_950_399,
        ("karrot_consumer_incident_start_timestamp_seconds", None): 1_746_950_292.304,
        ("karrot_consumer_incidents_total", None): 1,
    }


def test_a_lower_bound_of_the_lag_in_seconds_is_marked_by_a_metric_of_its_own(
    log: MemoryEventLog, clock: ManualClock
) -> None:
    for _ in range(2):
        clock.advance(60_000)
        idle = make_partition(current_lag=4, start=None, end=OffsetSample(6, clock.wall_ms(), lag=4))
        tell(log, observed_at_ms=clock.wall_ms(), max_lag=idle, partitions=(idle,))
    samples = scraped(log)
    assert of(samples, "karrot_consumer_lag_seconds_kind") == {ORDERS: 2}
    assert of(samples, "karrot_consumer_lag_seconds_at_least") == {ORDERS: 60}
    assert of(samples, "karrot_consumer_lag_seconds") == {ORDERS: 60}


def test_an_unknown_value_has_no_sample(log: MemoryEventLog) -> None:
    tell(
        log,
        status_text="PUZZLED",
        incident_id=None,
        incident_start=None,
        total_lag=None,
        max_lag=None,
        partitions=(),
        complete=None,
        partition_count=None,
    )
    assert {name for name, where in scraped(log) if where >= ORDERS} == {
        "karrot_consumer_bad_partitions",
        "karrot_consumer_last_event_timestamp_seconds",
        "karrot_consumer_incidents_total",
    }


def test_a_lag_of_zero_is_exported_as_zero(log: MemoryEventLog) -> None:
    tell(log, status_text="OK", total_lag=0, max_lag=make_partition(status_text="OK", current_lag=0), partitions=())
    samples = scraped(log)
    for name in ("lag", "max_lag", "scalable_lag", "lag_seconds", "catch_up_seconds"):
        assert of(samples, f"karrot_consumer_{name}") == {ORDERS: 0}


def test_a_silent_group_is_removed(log: MemoryEventLog, clock: ManualClock) -> None:
    tell(log, consumer="silent")
    clock.advance(200_000)
    tell(log)
    clock.advance(200_000)
    samples = scraped(log)
    assert of(samples, "karrot_consumer_lag") == {ORDERS: 11_020}
    assert of(samples, "karrot_consumers") == {labels(): 1}


def test_the_largest_number_of_burrow_is_exported_without_rounding(log: MemoryEventLog) -> None:
    tell(log, total_lag=2**64 - 1)
    assert f'karrot_consumer_lag{{cluster="prod-eu",consumer="orders-svc"}} {2**64 - 1}\n' in exposition(log)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("orders.v1", "orders.v1"),
        ("", ""),
        ("a\0b", "a�b"),
        ("x" * 512, "x" * 512),
        ("x" * 513, "x" * 503 + "~35ade009"),
        ("ü" * 600, "ü" * 503 + "~4e543a2a"),
    ],
    ids=["plain", "empty", "NUL", "longest", "too long", "too long, not ASCII"],
)
def test_any_name_becomes_a_label_value(name: str, value: str) -> None:
    assert label_value(name) == value


def test_the_newest_of_two_equal_label_values_wins_and_the_collision_is_counted(log: MemoryEventLog) -> None:
    tell(log, consumer="a\ufffdb", total_lag=1, partitions=())
    tell(log, consumer="a\0b", total_lag=2, partitions=())
    samples = scraped(log)
    assert of(samples, "karrot_consumer_lag") == {labels(cluster="prod-eu", consumer="a\ufffdb"): 2}
    assert of(samples, "karrot_consumers") == {labels(): 2}
    assert {counter.name: counter.value for counter in log.counters()}[SERIES_DROPPED.name] == 1


def test_excluded_groups_are_not_exported(log: MemoryEventLog) -> None:
    for consumer in ("my-console-consumer-7", "orders", "console"):
        tell(log, consumer=consumer)
    found = of(scraped(log, exclude_consumers="console-consumer-|^orders$"), "karrot_consumer_lag")
    assert set(found) == {labels(cluster="prod-eu", consumer="console")}


def test_burrows_own_group_has_its_own_metrics_even_if_excluded(log: MemoryEventLog) -> None:
    own = make_partition(topic="__consumer_offsets", current_lag=7)
    tell(log, consumer="burrow-a", total_lag=9, max_lag=own)
    tell(log, consumer="burrow-b", total_lag=5, max_lag=own)
    tell(log, consumer="burrow-dashboards", total_lag=3)
    samples = scraped(log, exclude_consumers="^burrow-(a|b)")
    assert of(samples, "karrot_burrow_self_lag") == {labels(cluster="prod-eu"): 9}
    assert of(samples, "karrot_consumer_lag") == {labels(cluster="prod-eu", consumer="burrow-dashboards"): 3}


def test_a_burrow_that_is_cut_off_from_kafka_keeps_its_statuses_and_loses_its_lags(
    log: MemoryEventLog, clock: ManualClock
) -> None:
    cut_off_from_kafka(log, clock)
    own = make_partition(topic="__consumer_offsets", current_lag=7)
    tell(log, consumer="burrow-prod", max_lag=own)
    tell(log, consumer="frozen", status_text="ERR")
    tell(log, consumer="polled", source=Source.KAFKA)
    tell(log, cluster="prod-us", consumer="other")
    samples = scraped(log, partition_metrics="true", topic_metrics="true")
    for lag in ("lag", "max_lag", "scalable_lag", "produce_rate", "consume_rate"):
        consumers = {dict(each)["consumer"] for each in of(samples, f"karrot_consumer_{lag}")}
        assert consumers == {"polled", "other"}, lag
    assert {dict(each)["consumer"] for each in of(samples, "karrot_partition_lag")} == {"polled", "other"}
    assert of(samples, "karrot_burrow_self_lag") == {}
    frozen = labels(cluster="prod-eu", consumer="frozen")
    assert of(samples, "karrot_consumer_status_code")[frozen] == 3
    assert frozen in of(samples, "karrot_consumer_last_event_timestamp_seconds")


def test_the_verdict_of_watch_counts_beside_a_burrow_that_is_cut_off(log: MemoryEventLog, clock: ManualClock) -> None:
    cut_off_from_kafka(log, clock)
    tell(log, status_text="ERR", total_lag=5000)
    tell(log, status_text="WARN", total_lag=4, source=Source.KAFKA)
    samples = scraped(log)
    assert of(samples, "karrot_consumer_lag") == {ORDERS: 4}
    assert of(samples, "karrot_consumer_status_code") == {ORDERS: 2}
    clock.advance(151_000)
    tell(log, status_text="ERR", total_lag=5000)
    assert of(scraped(log), "karrot_consumer_lag") == {}  # watch judges no more


def test_the_lags_come_back_with_the_first_commit_that_burrow_reads(log: MemoryEventLog, clock: ManualClock) -> None:
    source, burrow = collector(log), ResyncedBurrow(log, clock)
    burrow.reads_commits(3600)
    burrow.reads_none(600)
    tell(log, total_lag=5)
    assert of(read(source.collect()), "karrot_consumer_lag") == {}
    burrow.reads_commits(120)
    assert list(of(read(source.collect()), "karrot_consumer_lag").values()) == [5]


def test_the_newest_commit_that_burrow_read_shows_whether_it_is_cut_off(
    log: MemoryEventLog, clock: ManualClock
) -> None:
    assert of(scraped(log), "karrot_burrow_cut_off") == {}
    eu = labels(cluster="prod-eu")
    burrow = ResyncedBurrow(log, clock)
    burrow.reads_commits(3600)
    assert of(scraped(log), "karrot_burrow_cut_off") == {eu: 0}
    burrow.reads_none(600)
    assert of(scraped(log), "karrot_burrow_cut_off") == {eu: 1}
    assert of(scraped(log), "karrot_burrow_last_commit_timestamp_seconds") == {eu: burrow.newest_ms / 1000}
    clock.advance(3_600_000)
    samples = scraped(log)
    assert of(samples, "karrot_burrow_cut_off") == of(samples, "karrot_burrow_last_commit_timestamp_seconds") == {}


def test_a_cluster_is_heard_only_by_webhooks_and_an_expected_one_is_zero_until_then(log: MemoryEventLog) -> None:
    tell(log, cluster="prod-eu")
    tell(log, cluster="watched", source=Source.KAFKA)
    assert of(scraped(log, expected_clusters="Prod-EU, dr,"), "karrot_last_event_timestamp_seconds") == {
        labels(cluster="prod-eu"): 1_746_950_405,
        labels(cluster="dr"): 0,
    }


def test_hostile_cluster_names_become_label_values(log: MemoryEventLog, clock: ManualClock) -> None:
    tell(log, cluster="a\0")
    clock.advance(1_000)
    tell(log, cluster="a\ufffd")
    assert of(scraped(log), "karrot_last_event_timestamp_seconds") == {labels(cluster="a\ufffd"): 1_746_950_406}


def test_only_muted_groups_are_marked_even_after_they_vanish_until_the_mute_ends(
    log: MemoryEventLog, clock: ManualClock
) -> None:
    made = collector(log)

    def muted() -> set[str]:
        found = of(
            read(parse_text("".join(map(bytes.decode, render({"prometheus": made})[1])))), "karrot_consumer_muted"
        )
        assert set(found.values()) <= {1}
        return {dict(each)["consumer"] for each in found}

    for consumer in ("orders-svc", "orders\x00" + "x" * 600, "billing"):
        tell(log, consumer=consumer)
    assert muted() == set()
    mutes.begin(log, make_mute(clock, pattern="orders*", seconds=600))
    assert muted() == {"orders-svc", label_value("orders\x00" + "x" * 600)}
    mutes.begin(log, make_mute(clock, id="second", pattern="b*", seconds=60))
    tell(log, consumer="orders-new")
    assert muted() == {"orders-svc", label_value("orders\x00" + "x" * 600), "orders-new", "billing"}
    clock.advance(60_000)
    assert "billing" not in muted()
    clock.advance(539_999)
    assert len(muted()) == 3
    clock.advance(1)
    assert muted() == set()


def test_a_group_that_vanished_stays_muted_after_another_mute_and_a_restart(
    log: MemoryEventLog, clock: ManualClock
) -> None:
    def muted(made: LogCollector) -> str:
        [family] = [family for family in made.families() if family.metric is CONSUMER_MUTED]
        return "".join(family.pieces)

    made = collector(log, exclude_consumers="^hidden")
    for consumer in ("orders-deleted", "orders-silent", "hidden", "billing"):
        tell(log, consumer=consumer)
    tell(log, consumer="orders-deleted", status_text="NOTFOUND")
    clock.advance(300_001)
    log.expire()
    mutes.begin(log, make_mute(clock, pattern="orders*", seconds=600))
    mutes.begin(log, make_mute(clock, id="second", pattern="hidden", seconds=60))
    expected = "".join(
        f'karrot_consumer_muted{{cluster="prod-eu",consumer="orders-{name}"}} 1\n' for name in ("deleted", "silent")
    )
    assert muted(made) == expected
    mutes.end(log, lambda mute: mute.id == "second")
    assert muted(made) == expected
    assert muted(collector(log)) == expected
    clock.advance(600_000)
    assert muted(made) == ""


def test_scrapes_with_the_same_mutes_do_not_read_the_vanished_groups_again(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(log)
    mutes.begin(log, make_mute(clock, pattern="orders*", seconds=600))
    made, reads = collector(log), list[int]()

    def vanished() -> tuple[()]:
        reads.append(1)
        return ()

    monkeypatch.setattr(log, "vanished", vanished)
    for number in range(3):
        tell(log, consumer=f"orders-{number}")
        list(made.families())
    assert reads == [1]
    mutes.begin(log, make_mute(clock, id="second", pattern="b*", seconds=60))
    list(made.families())
    assert reads == [1, 1]


def test_a_group_stays_muted_while_the_mutes_cannot_be_read(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = collector(log)
    tell(log)
    mutes.begin(log, make_mute(clock))
    before = next(family for family in made.families() if family.metric is CONSUMER_MUTED).pieces
    assert before != ("",)
    recall = log.recall

    def recall_others(owner: str, name: str) -> bytes | None:
        if (owner, name) == mutes.NOTE:
            raise LogUnavailableError("away")
        return recall(owner, name)

    monkeypatch.setattr(log, "recall", recall_others)
    assert next(family for family in made.families() if family.metric is CONSUMER_MUTED).pieces == before


def test_a_webhook_gives_its_listed_partitions_and_the_worst_one_but_no_topics(log: MemoryEventLog) -> None:
    stopped = make_partition(partition=3, status_text="STOP", current_lag=5)
    odd = make_partition(partition=4, status_text="ODD", current_lag=None)
    tell(log, partitions=(stopped, odd), max_lag=make_partition(partition=1, status_text="OK", current_lag=50))

    def place(partition: int) -> Labels:
        return ORDERS | labels(topic="orders.v1", partition=str(partition))

    samples = scraped(log, partition_metrics="true", topic_metrics="True")
    assert of(samples, "karrot_partition_lag") == {place(1): 50, place(3): 5}
    assert of(samples, "karrot_partition_status_code") == {place(1): 1, place(3): 4}
    assert of(samples, "karrot_consumer_topic_lag") == {}


def test_a_source_that_lists_all_partitions_gives_topics_too(log: MemoryEventLog) -> None:
    event = parse_rest(recorded_rest_answer("lag-warn"), observed_at_ms=1_746_950_405_000)
    assert event is not None
    log.append(event, to_wire(event))
    samples = scraped(log, topic_metrics="true")
    assert of(samples, "karrot_consumer_topic_lag") == {
        labels(cluster="stack", consumer="skewed-consumer-group", topic="skewed-topic"): 536
    }
    assert of(samples, "karrot_partition_lag") == {}


def test_groups_with_the_most_partitions_are_left_out_beyond_the_bound_and_counted(
    log: MemoryEventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_metrics, "MOST_PARTITIONS", 4)

    def scraped_groups() -> tuple[list[str], float]:
        samples = scraped(log, partition_metrics="true")
        groups = sorted(dict(found)["consumer"] for found in of(samples, "karrot_partition_lag"))
        return groups, of(samples, "karrot_series_dropped_total").get(labels(), 0)

    for consumer, size in (("a large one", 3), ("small", 1)):
        listed = tuple(make_partition(partition=number) for number in range(size))
        tell(log, consumer=consumer, partitions=listed, max_lag=listed[0], partition_count=size)
    assert scraped_groups() == (["a large one"] * 3 + ["small"], 0)
    tell(log, consumer="too much", partitions=(make_partition(),), partition_count=2)
    assert scraped_groups() == (["small", "too much"], 1)
    # A wrong number of partitions displaces no other group.
    tell(log, consumer="a liar", partitions=tuple(make_partition(partition=n) for n in range(5)), partition_count=0)
    assert scraped_groups() == (["small", "too much"], 3)


def test_partitions_are_not_exported_by_default(log: MemoryEventLog) -> None:
    tell(log)
    assert "karrot_partition" not in exposition(log)
    assert "karrot_consumer_topic" not in exposition(log)


def test_the_histogram_is_cumulative(log: MemoryEventLog) -> None:
    for seconds in (0.0005, 0.02, 0.02, 60):
        observe(log.count, seconds)
    samples = scraped(log)
    buckets = of(samples, "karrot_event_handling_seconds_bucket")
    assert [buckets[labels(le=edge)] for edge in ("0.001", "0.01", "0.025", "2.5", "+Inf")] == [1, 1, 3, 3, 4]
    assert of(samples, "karrot_event_handling_seconds_sum") == {labels(): 60.0405}
    assert of(samples, "karrot_event_handling_seconds_count") == {labels(): 4}


def test_only_declared_counters_are_read_from_the_log(log: MemoryEventLog) -> None:
    log.count("karrot_reporter_failures_total", 3, reporter="cloudwatch", reason="Throttling")
    log.count("karrot_reporter_failures_total", 1, reporter="cloudwatch")
    log.count("karrot_somebody_total", 9)
    samples = scraped(log, reporters="stdout")
    assert of(samples, "karrot_reporter_failures_total") == {labels(reporter="cloudwatch", reason="Throttling"): 3}
    assert of(samples, "karrot_reporter_events_count_total") == {labels(reporter="stdout"): 0}
    assert "karrot_somebody" not in exposition(log)


def test_a_deprecated_name_has_the_counts_of_the_present_one_and_of_an_older_version(log: MemoryEventLog) -> None:
    """While an upgrade goes on, an older Karrot counts under the old name in the same log."""
    log.count("karrot_reporter_events_count_total", 5, reporter="stdout")
    log.count("karrot_reporter_events_total", 2, reporter="stdout")
    samples = scraped(log, reporters="stdout")
    for name in ("karrot_reporter_events_total", "karrot_reporter_events_count_total"):
        assert of(samples, name) == {labels(reporter="stdout"): 7}


def test_a_reporters_backlog_is_the_number_of_events_that_it_has_not_handled(
    log: MemoryEventLog, clock: ManualClock
) -> None:
    seqs = []
    for _ in range(3):
        seqs.append(tell(log))
        clock.advance(10_000)
    log.save_reporter(ReporterState("ahead", Cursor(log.log_id, seqs[2])))
    log.save_reporter(ReporterState("behind", Cursor(log.log_id, seqs[0])))
    log.save_reporter(ReporterState("new", None))
    samples = scraped(log)
    events = {dict(where)["reporter"]: value for where, value in of(samples, "karrot_reporter_backlog_events").items()}
    age = {
        dict(where)["reporter"]: value for where, value in of(samples, "karrot_reporter_backlog_age_seconds").items()
    }
    assert events == {"ahead": 0, "behind": 2, "new": 3}
    assert age == {"ahead": 0, "behind": 20, "new": 30}
    assert set(of(scraped(log, reporters="behind"), "karrot_reporter_backlog_events")) == {labels(reporter="behind")}


class UnreadableLog(MemoryEventLog):
    def live(self) -> Sequence[GroupState]:
        raise LogUnavailableError("no groups")


def test_an_unreadable_log_is_exported_as_unreadable(clock: ManualClock) -> None:
    assert {name: value for (name, _), value in scraped(UnreadableLog(clock)).items()} == {
        "karrot_build_info": 1,
        "karrot_log_writable": 0,
    }


def test_a_log_that_cannot_be_written_is_still_read(log: MemoryEventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(log)
    monkeypatch.setattr(log, "writable", lambda: "disk full")
    samples = scraped(log)
    assert of(samples, "karrot_log_writable") == {labels(): 0}
    assert of(samples, "karrot_consumer_lag") == {ORDERS: 11_020}


def test_the_name_parameter_selects_samples(log: MemoryEventLog) -> None:
    tell(log)
    chosen = ["karrot_consumer_max_lag", "karrot_event_handling_seconds_sum", "karrot_log_events", "no_such"]
    assert exposition(log, names=chosen) == (
        "# HELP karrot_consumer_max_lag Lag of the partition with the largest lag, in messages.\n"
        "# TYPE karrot_consumer_max_lag gauge\n"
        'karrot_consumer_max_lag{cluster="prod-eu",consumer="orders-svc"} 10440\n'
        "# HELP karrot_event_handling_seconds Seconds from the arrival of an event's body to its durable commit.\n"
        "# TYPE karrot_event_handling_seconds histogram\n"
        "karrot_event_handling_seconds_sum 0.0\n"
        "# HELP karrot_log_events Events in the event log.\n"
        "# TYPE karrot_log_events gauge\n"
        "karrot_log_events 1\n"
    )


@pytest.mark.parametrize(
    ("accept", "content_type", "last"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8", ""),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8", ""),
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4; charset=utf-8", ""),
        ("text/plain;version=odd", "text/plain; version=0.0.4; charset=utf-8", ""),
        (
            "application/openmetrics-text;version=1.0.0",
            "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores",
            "# EOF\n",
        ),
        (
            OPENMETRICS,
            "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
            "# EOF\n",
        ),
    ],
    ids=[
        "no Accept",
        "any format",
        "the text format",
        "an unknown version of the text format",
        "OpenMetrics",
        "the header of Prometheus",
    ],
)
def test_the_format_is_negotiated(log: MemoryEventLog, accept: str, content_type: str, last: str) -> None:
    tell(log)
    given_type, pieces = render({"prometheus": collector(log)}, accept)
    text = b"".join(pieces).decode()
    assert given_type == content_type
    assert text.endswith(last)
    assert text.count("# EOF") == (1 if last else 0)


class Stranger:
    """A collector of another package."""

    def collect(self) -> Iterator[ClientMetric]:
        yield GaugeMetricFamily("queue_size", "Waiting.", value=3)
        jobs = CounterMetricFamily("jobs", "Done.", labels=["kind"])
        jobs.add_metric(["mail"], 5)
        yield jobs


def test_each_name_that_ends_in_a_unit_has_this_unit_in_openmetrics_only(log: MemoryEventLog) -> None:
    tell(log)
    collectors: dict[str, Collector] = {
        "prometheus": collector(log, **ALL),
        "process": ProcessCollector(registry=None),
        "stranger": Stranger(),
    }
    text = b"".join(render(collectors, OPENMETRICS)[1]).decode()
    units = {family.name: family.unit for family in openmetrics(text)}
    assert units == {
        name: end if (end := name.split("_")[-1]) in {"bytes", "ratio", "seconds"} else "" for name in units
    }
    assert (
        units.items()
        >= {
            "karrot_consumer_lag_seconds": "seconds",
            "karrot_consumer_complete_ratio": "ratio",
            "karrot_event_handling_seconds": "seconds",
            "karrot_reporter_archive_bytes": "bytes",
            "process_cpu_seconds": "seconds",
            "queue_size": "",
        }.items()
    )
    assert "# UNIT" not in b"".join(render(collectors)[1]).decode()


class Failing:
    def collect(self) -> Iterator[ClientMetric]:
        yield GaugeMetricFamily("half", "Never seen.", value=1)
        raise ZeroDivisionError


def test_collectors_of_other_packages_are_exported_too(log: MemoryEventLog) -> None:
    for accept, parse in (("", parse_text), (OPENMETRICS, openmetrics)):
        _, pieces = render({"prometheus": collector(log), "stranger": Stranger()}, accept)
        samples = read(parse(b"".join(pieces).decode()))
        assert of(samples, "queue_size") == {labels(): 3}
        assert of(samples, "jobs_total") == {labels(kind="mail"): 5}
        assert of(samples, "karrot_consumers") == {labels(): 0}


def test_the_name_parameter_selects_samples_of_other_packages_too() -> None:
    _, pieces = render({"stranger": Stranger()}, names=["jobs_total"])
    assert b"".join(pieces) == b'# HELP jobs_total Done.\n# TYPE jobs_total counter\njobs_total{kind="mail"} 5.0\n'


def test_a_failing_collector_is_left_out_and_counted(log: MemoryEventLog) -> None:
    collectors: dict[str, Collector] = {"bad": Failing(), "stranger": Stranger(), "prometheus": collector(log)}
    _, pieces = render(collectors, count=log.count)
    samples = read(parse_text(b"".join(pieces).decode()))
    assert of(samples, "half") == {}
    assert of(samples, "queue_size") == {labels(): 3}
    assert of(samples, "karrot_reporter_failures_total") == {labels(reporter="bad", reason="collect"): 1}


def by_the_client(log: EventLog, generate: Callable[[CollectorRegistry], bytes]) -> str:
    registry = CollectorRegistry()
    registry.register(collector(log, **ALL))
    return generate(registry).decode()


def families(parsed: Iterable[ClientMetric]) -> list[tuple[str, str, str, list[tuple[str, Labels, float]]]]:
    return [
        (
            family.name,
            family.documentation,
            family.type,
            sorted(
                ((sample.name, frozenset(sample.labels.items()), float(sample.value)) for sample in family.samples),
                key=lambda sample: (sample[0], sorted(sample[1])),
            ),
        )
        for family in parsed
    ]


ALL = {"partition_metrics": "true", "topic_metrics": "true"}
HOSTILE = st.text(st.characters(codec="utf-8") | st.sampled_from('\\"\n\r\0\u2028{}=,# '), max_size=30)


@pytest.mark.parametrize("examples", [20, pytest.param(100, marks=pytest.mark.deep)])
def test_the_text_equals_that_of_the_official_client(examples: int) -> None:
    @settings(max_examples=examples)
    @given(
        st.lists(event_strategy(), max_size=4),
        st.lists(st.tuples(HOSTILE, HOSTILE, HOSTILE), max_size=4),
    )
    def is_equal(events: list[LagEvent], names: list[tuple[str, str, str]]) -> None:
        clock = ManualClock()
        log = MemoryEventLog(clock)
        for event in events:
            log.append(event, b"")
        for cluster, consumer, topic in [*names, ("\\n", '"\n\\', '\\"')]:
            tell(log, cluster=cluster, consumer=consumer, partitions=(make_partition(topic=topic),), source=Source.REST)
        ours, theirs = exposition(log, **ALL), by_the_client(log, generate_latest)
        assert families(parse_text(ours)) == families(parse_text(theirs))
        groups = [state for state in log.live() if not state.is_test and not state.is_of_burrow]
        assert set(of(read(parse_text(ours)), "karrot_consumer_incidents_total")) == {
            labels(cluster=label_value(state.key.cluster), consumer=label_value(state.key.consumer)) for state in groups
        }
        ours, theirs = exposition(log, OPENMETRICS, **ALL), by_the_client(log, generate_openmetrics)
        assert families(openmetrics(ours)) == families(openmetrics(theirs))
        assert not re.search(r"(?m)^karrot[^\n]* (NaN|[+-]?Inf|-[\d.e+-]+)$", exposition(log, **ALL))

    is_equal()


def test_a_negative_zero_is_exported_as_zero(log: MemoryEventLog) -> None:
    tell(log, complete=-0.0)
    assert re.search(r"(?m)^karrot_consumer_complete_ratio\{.*\} 0\.0$", exposition(log, **ALL))


def test_registering_does_not_collect(clock: ManualClock) -> None:
    registry = CollectorRegistry()
    registry.register(collector(UnreadableLog(clock)))
    assert registry.get_sample_value("karrot_log_writable") == 0


def test_a_count_is_written_the_same_for_integers_and_floats_in_the_log(log: MemoryEventLog) -> None:
    log.count("karrot_events_accepted_total", 2.0, source="webhook")
    log.count("karrot_events_accepted_total", 1, source="rest")
    observe(log.count, 1.0)
    text = exposition(log)
    assert 'karrot_events_accepted_total{source="webhook"} 2\n' in text
    assert 'karrot_events_accepted_total{source="rest"} 1\n' in text
    assert "karrot_event_handling_seconds_count 1\n" in text
    assert "karrot_event_handling_seconds_sum 1.0\n" in text
