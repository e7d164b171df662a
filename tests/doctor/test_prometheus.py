"""The check of Prometheus' scrape of Karrot."""

from karrot.doctor import read_and_check_prometheus as checks
from karrot.doctor.reader_helpers import Unread
from support.doctor_snapshots import (
    finds_nothing,
    only_finding,
    passes,
    prometheus_snapshot,
    scrape_target,
)


def test_a_prometheus_without_karrot_is_a_fault() -> None:
    assert passes(checks.target, prometheus_snapshot())
    assert only_finding(checks.target, prometheus_snapshot(targets=()))[:2] == (
        "fault",
        "Prometheus has no target that is Karrot",
    )
    assert finds_nothing(checks.target, prometheus_snapshot(targets=(), unread=(Unread("targets", "HTTP 404"),)))


def test_a_target_that_is_down_is_a_fault_with_its_reason() -> None:
    down = scrape_target(health="down", last_error="server returned HTTP status 401")
    assert only_finding(checks.target, prometheus_snapshot(down)) == (
        "fault",
        "http://karrot:5000/metrics is down: server returned HTTP status 401",
        "fix this cause; try curl http://karrot:5000/metrics",
    )


def test_labels_that_prometheus_renames_are_a_fault() -> None:
    assert only_finding(checks.target, prometheus_snapshot(has_moved=True)) == (
        "fault",
        "Prometheus renames Karrot's label cluster to exported_cluster",
        "set honor_labels: true in the scrape config (honorLabels: true in a ServiceMonitor)",
    )
