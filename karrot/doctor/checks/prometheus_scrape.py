"""Checks Prometheus: whether it scrapes Karrot, and stores the labels and values that it gets."""

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


@check("Karrot not scraped", well="Prometheus scrapes Karrot", where=_DOCTOR)
def target(seen: PrometheusSeen) -> Iterator[Said]:
    """No target of Prometheus is Karrot."""
    only_if(not any(each.what == "targets" for each in seen.unread))
    if not seen.targets:
        yield fault(
            "Prometheus has no target that is Karrot",
            "scrape_configs: [{job_name: karrot, honor_labels: true, static_configs: [{targets: ['karrot:5000']}]}]",
        )


@check("Karrot not scraped", well="every scrape succeeds", where=_DOCTOR)
def scrape_fails(seen: PrometheusSeen) -> Iterator[Said]:
    """A target is down: refused, unauthorized, or not Karrot's /metrics."""
    only_if(seen.targets)
    for each in seen.targets:
        if each.health == "down":
            yield fault(f"{each.scrape_url} is down: {each.last_error}", _why_down(each))
        elif not each.scrape_url.partition("?")[0].endswith("/metrics"):
            yield warn(f"{each.scrape_url} is not Karrot's /metrics", "metrics_path: /metrics")


@check(well="labels stay as Karrot gives them", where=_WRONG)
def honor_labels(seen: PrometheusSeen) -> Iterator[Said]:
    """A label of the target takes the place of Karrot's, which becomes exported_cluster."""
    only_if(seen.targets)
    mend = "honor_labels: true in the scrape config (honorLabels: true in a ServiceMonitor)"
    moved = {f"exported_{label}" for each in seen.targets for label in _clashes(seen, each)} | set(seen.exported)
    if moved:
        yield fault(f"Prometheus moves Karrot's labels aside: {', '.join(sorted(moved))}", mend)


@check(well="Karrot is scraped often enough", where=_DOCTOR)
def scrape_interval(seen: PrometheusSeen) -> Iterator[Said]:
    """A scrape interval so long that changes are seen late, or series have gaps."""
    pools = {each.scrape_pool: seconds(each.scrape_interval) for each in seen.targets}
    only_if(any(pools.values()))
    for pool, every in pools.items():
        mend = f"scrape_interval: 15s in the job {pool}"
        if every >= _LOOKBACK_S:
            yield fault(f"{pool} scrapes every {every:.0f} s: Prometheus forgets a sample after {_LOOKBACK_S} s", mend)
        elif every > _SELDOM_S:
            yield warn(f"{pool} scrapes every {every:.0f} s: a verdict is seen that much later", mend)


@check(well="the last scrape is fresh", where=_DOCTOR)
def late_scrape(seen: PrometheusSeen) -> Iterator[Said]:
    """A target that was not scraped for several intervals."""
    only_if(seen.targets)
    for each in seen.targets:
        every = seconds(each.scrape_interval) or _SELDOM_S
        age = (seen.now - each.last_scrape).total_seconds() if each.last_scrape else 0.0
        if each.health == "unknown":
            yield note(f"{each.scrape_url} was not scraped yet", f"wait for {every:.0f} s")
        elif age > _LATE * every:
            yield warn(f"{each.scrape_url} was scraped {age:.0f} s ago", "Prometheus' own load and log")


@check(well="scrapes are well within their timeout", where=_DOCTOR)
def slow_scrape(seen: PrometheusSeen) -> Iterator[Said]:
    """A scrape that takes more than half of its timeout."""
    only_if(seen.targets)
    for each in seen.targets:
        if (limit := seconds(each.scrape_timeout)) and each.last_scrape_duration > limit / 2:
            yield warn(
                f"a scrape of {each.scrape_url} takes {each.last_scrape_duration:.1f} s of {limit:.0f} s",
                "scrape_timeout: 30s, or fewer series: KARROT_PARTITION_METRICS=false",
            )


@check(well="each group is scraped once", where=_DOCTOR)
def doubled(seen: PrometheusSeen) -> Iterator[Said]:
    """Groups have several samples of their lag: the same Karrot is scraped twice, and sums are double."""
    only_if(seen.series)
    if seen.doubled:
        doubled = counted_plain(seen.doubled, "group")
        yield warn(
            f"{doubled} with more than one sample of karrot_consumer_lag: sums count twice",
            "one target for each Karrot, or max by (cluster, consumer) in queries",
        )


@check(well="an alert watches for silence", where=_WRONG)
def silence_alert(seen: PrometheusSeen) -> Iterator[Said]:
    """No alert looks at karrot_last_event_timestamp_seconds: nobody is told when Burrow falls silent."""
    only_if(seen.rules is not None)
    if "karrot_last_event_timestamp_seconds" not in (seen.rules or ""):
        yield note(
            "no alert rule of Prometheus looks at karrot_last_event_timestamp_seconds",
            "expr: time() - karrot_last_event_timestamp_seconds > 300",
        )


@check(well="what Karrot exports is in Prometheus", where=_DOCTOR)
def series(karrot: KarrotSeen, prometheus: PrometheusSeen) -> Iterator[Said]:
    """Karrot exports groups and Prometheus has none, though it scrapes: relabelling drops them."""
    only_if(any(each.lag is not None for each in karrot.groups or ()))
    only_if("prometheus" in karrot.setting("REPORTERS") and any(each.health == "up" for each in prometheus.targets))
    if not prometheus.series:
        yield fault(
            "Prometheus scrapes Karrot and has no karrot_consumer_lag",
            "metric_relabel_configs of the job, or KARROT_EXCLUDE_CONSUMERS; the first scrape may be to come",
        )


@check(well="the clocks of Karrot and Prometheus agree", where=_DOCTOR)
def clocks(karrot: KarrotSeen, prometheus: PrometheusSeen) -> Iterator[Said]:
    """The clocks of Karrot and Prometheus are apart: ages in alerts are wrong by that much."""
    apart = abs((karrot.now - prometheus.now).total_seconds())
    if apart > _CLOCKS_APART_S:
        yield warn(f"the clocks of Karrot and Prometheus are {apart:.0f} s apart", "NTP on both hosts")


def _clashes(seen: PrometheusSeen, target: Target) -> list[str]:
    """The labels of a target that take the place of Karrot's, if the scrape config that it comes from was read."""
    jobs = [job for job in seen.config.get("scrape_configs") or [] if isinstance(job, dict)]
    job: dict[str, Any] = next((job for job in jobs if job.get("job_name") == target.scrape_pool), {})
    return [] if job.get("honor_labels", not job) else [label for label in _OURS if label in target.labels]


def _why_down(target: Target) -> str:
    if "401" in target.last_error:
        return "authorization: {credentials: ...} with KARROT_API_TOKEN, or KARROT_METRICS_AUTH=false"
    if "refused" in target.last_error or "no such host" in target.last_error:
        return "targets: Karrot's host and port, as KARROT_BIND has it"
    if "exceeded" in target.last_error:
        return "scrape_timeout: 30s, or the limit that it names"
    return f"what it says; curl {target.scrape_url}"


ALONE = (target, scrape_fails, honor_labels, scrape_interval, late_scrape, slow_scrape, doubled, silence_alert)
"""Each takes a `PrometheusSeen`."""

WITH_KARROT = (series, clocks)
"""Each takes a `KarrotSeen` and a `PrometheusSeen`."""
