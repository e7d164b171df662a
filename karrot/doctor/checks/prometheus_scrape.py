"""Checks Prometheus: whether it scrapes Karrot, and stores the scraped labels and values."""

from collections.abc import Iterator
from typing import Any

from karrot.doctor.checks import Said, check, fault, note, only_if, warn
from karrot.doctor.snapshot_types import KarrotSeen, PrometheusSeen, Target, seconds
from karrot.text import counted_plain

_WRONG = "burrow.md#when-something-is-wrong"
_DOCTOR = "burrow.md#karrot-doctor"
_OURS = ("cluster", "consumer", "status", "topic", "partition")
_SELDOM_S, _LOOKBACK_S = 60, 300
_LATE = 3
_CLOCKS_APART_S = 30
_OF_SENDER = ("_last_poll_timestamp_seconds", "_last_batch_timestamp_seconds")


@check("Karrot not scraped", well="Prometheus scrapes Karrot", where=_DOCTOR)
def target(seen: PrometheusSeen) -> Iterator[Said]:
    """Prometheus has no target that is Karrot."""
    only_if(not any(each.what == "targets" for each in seen.unread))
    if not seen.targets:
        yield fault(
            "Prometheus has no target that is Karrot",
            "add scrape_configs: "
            "[{job_name: karrot, honor_labels: true, static_configs: [{targets: ['karrot:5000']}]}]",
        )


@check("Karrot not scraped", well="every scrape succeeds", where=_DOCTOR)
def scrape_fails(seen: PrometheusSeen) -> Iterator[Said]:
    """A target is down, for example because Karrot refuses the connection, or its URL is not Karrot's /metrics."""
    only_if(seen.targets)
    for each in seen.targets:
        if each.health == "down":
            yield fault(f"{each.scrape_url} is down: {each.last_error}", _why_down(each))
        elif not each.scrape_url.partition("?")[0].endswith("/metrics"):
            yield warn(f"{each.scrape_url} is not Karrot's /metrics", "set metrics_path: /metrics")


@check(well="Prometheus keeps Karrot's labels", where=_WRONG)
def honor_labels(seen: PrometheusSeen) -> Iterator[Said]:
    """A label of the target replaces Karrot's label. Prometheus renames Karrot's label, as in exported_cluster."""
    only_if(seen.targets)
    mend = "set honor_labels: true in the scrape config (honorLabels: true in a ServiceMonitor)"
    moved = {f"exported_{label}" for each in seen.targets for label in _clashes(seen, each)} | set(seen.exported)
    if moved:
        yield fault(f"Prometheus renames Karrot's labels: {', '.join(sorted(moved))}", mend)


@check(well="Karrot is scraped often enough", where=_DOCTOR)
def scrape_interval(seen: PrometheusSeen) -> Iterator[Said]:
    """The scrape interval is so long that changes appear late, or series have gaps."""
    pools = {each.scrape_pool: seconds(each.scrape_interval) for each in seen.targets}
    only_if(any(pools.values()))
    for pool, every in pools.items():
        mend = f"set scrape_interval: 15s in the job {pool}"
        if every >= _LOOKBACK_S:
            yield fault(
                f"{pool} scrapes every {every:.0f} s: Prometheus queries ignore samples older than {_LOOKBACK_S} s",
                mend,
            )
        elif every > _SELDOM_S:
            yield warn(f"{pool} scrapes every {every:.0f} s: a verdict appears that much later", mend)


@check(well="the last scrape is recent", where=_DOCTOR)
def late_scrape(seen: PrometheusSeen) -> Iterator[Said]:
    """A target was not scraped for several intervals."""
    only_if(seen.targets)
    for each in seen.targets:
        every = seconds(each.scrape_interval) or _SELDOM_S
        age = (seen.now - each.last_scrape).total_seconds() if each.last_scrape else 0.0
        if each.health == "unknown":
            yield note(f"{each.scrape_url} has not been scraped yet", f"wait for {every:.0f} s")
        elif age > _LATE * every:
            yield warn(
                f"the last scrape of {each.scrape_url} was {age:.0f} s ago", "check Prometheus' load and its log"
            )


@check(well="scrapes take at most half of their timeout", where=_DOCTOR)
def slow_scrape(seen: PrometheusSeen) -> Iterator[Said]:
    """A scrape takes more than half of its timeout."""
    only_if(seen.targets)
    for each in seen.targets:
        if (limit := seconds(each.scrape_timeout)) and each.last_scrape_duration > limit / 2:
            yield warn(
                f"a scrape of {each.scrape_url} takes {each.last_scrape_duration:.1f} s of {limit:.0f} s",
                "set scrape_timeout: 30s, or make fewer series with KARROT_PARTITION_METRICS=false",
            )


@check(well="each group is scraped once", where=_DOCTOR)
def doubled(seen: PrometheusSeen) -> Iterator[Said]:
    """A group has several samples of its lag: a Karrot is scraped twice, or has replicas. So sums are doubled."""
    only_if(seen.series)
    if seen.doubled:
        yield warn(
            f"several samples of karrot_consumer_lag for {counted_plain(seen.doubled, 'group')}: sums count them twice",
            "configure one target for each Karrot; for replicas, use max by (cluster, consumer) in queries",
        )


@check(well="an alert fires when no more verdicts come", where="alerts.md#alerts")
def silence_alert(seen: PrometheusSeen) -> Iterator[Said]:
    """No alert uses the last event of Burrow or the last poll of watch or evaluate. You get no alert when they stop."""
    only_if(seen.rules is not None and seen.beats)
    for beat in seen.beats:
        metric, is_counter, _ = beat.partition("{")
        # The counter is for a Karrot that gets its verdicts by --post, which has no metric of the sender.
        if metric in (seen.rules or "") or (is_counter and any(each.endswith(_OF_SENDER) for each in seen.beats)):
            continue
        expression = f"sum(rate({beat}[5m])) == 0" if is_counter else f"time() - {beat} > 300"
        yield note(f"no alert rule of Prometheus uses {metric}", f"add an alert with expr: {expression}")


@check(well="Prometheus has the groups that Karrot exports", where=_DOCTOR)
def series(karrot: KarrotSeen, prometheus: PrometheusSeen) -> Iterator[Said]:
    """Prometheus scrapes Karrot, but has none of Karrot's groups. Relabelling drops the groups."""
    only_if(any(each.lag is not None for each in karrot.groups or ()))
    only_if("prometheus" in karrot.setting("REPORTERS") and any(each.health == "up" for each in prometheus.targets))
    if not prometheus.series:
        yield fault(
            "Prometheus scrapes Karrot but has no karrot_consumer_lag",
            "check metric_relabel_configs of the job, and KARROT_EXCLUDE_CONSUMERS; or wait for the first scrape",
        )


@check(well="the clocks of Karrot and Prometheus agree", where=_DOCTOR)
def clocks(karrot: KarrotSeen, prometheus: PrometheusSeen) -> Iterator[Said]:
    """The clocks of Karrot and Prometheus differ. So ages in alerts are wrong by the difference."""
    apart = abs((karrot.now - prometheus.now).total_seconds())
    if apart > _CLOCKS_APART_S:
        yield warn(f"the clocks of Karrot and Prometheus differ by {apart:.0f} s", "use NTP on both hosts")


def _clashes(seen: PrometheusSeen, target: Target) -> list[str]:
    """The labels of a target that replace Karrot's labels, if the target's scrape config was read."""
    jobs = [job for job in seen.config.get("scrape_configs") or [] if isinstance(job, dict)]
    job: dict[str, Any] = next((job for job in jobs if job.get("job_name") == target.scrape_pool), {})
    return [] if job.get("honor_labels", not job) else [label for label in _OURS if label in target.labels]


def _why_down(target: Target) -> str:
    if "401" in target.last_error:
        return "set authorization: {credentials: ...} to KARROT_API_TOKEN, or set KARROT_METRICS_AUTH=false"
    if "refused" in target.last_error or "no such host" in target.last_error:
        return "set targets to Karrot's host and port (KARROT_BIND)"
    if "exceeded" in target.last_error:
        return "set scrape_timeout: 30s, or raise the limit that the error names"
    return f"fix the cause in this message; try curl {target.scrape_url}"


ALONE = (target, scrape_fails, honor_labels, scrape_interval, late_scrape, slow_scrape, doubled, silence_alert)
"""Each takes a `PrometheusSeen`."""

WITH_KARROT = (series, clocks)
"""Each takes a `KarrotSeen` and a `PrometheusSeen`."""
