"""Checks Karrot itself: whether it stores the events that it gets, and delivers them to its reporters."""

from collections.abc import Iterator, Mapping

from karrot.doctor.checks import Check, Problem, check, fault, not_due, note, only_if, warn
from karrot.doctor.read_karrot import KarrotSeen
from karrot.runbooks_and_remedies import CODES, REFUSED_LATELY_S, WATCH, runbook_of_failing
from karrot.text import counted_plain, shell_word

_WRONG = "burrow.md#when-something-is-wrong"
_BEHIND_S = 300
_MINUTE_S = 60
_TEMPLATE, _CREDENTIALS = "unsupported_template", "unauthorized"
_NOT_STORED = ("overloaded", "log_unavailable", "unconfirmed", "internal_error")
_DAMAGE = {
    "karrot_log_replaced_total": "a damaged log was set aside",
    "karrot_log_lost_events_total": "the log lost an acknowledged event",
    "karrot_log_damaged_total": "the state of a group did not match its checksum",
}


@check("KarrotLogNotWritable", success="the event log is writable", where="data-directory.md")
def log_writable(seen: KarrotSeen) -> Iterator[Problem]:
    """The event log is not writable. Karrot answers every event with 503, and Burrow does not repeat events."""
    log = seen.components.get("log")
    only_if(log)
    if log is not None and log.state != "ok":
        yield fault(
            f"Karrot cannot store events: {log.detail or log.state}",
            (
                "check PostgreSQL and its standby, and the hosts in KARROT_EVENT_LOG"
                if seen.is_on_postgresql
                else "check the disk of KARROT_DATA_DIR: free space, write permission, writes that hang"
            )
            + f"; runbook: {seen.url}/runbooks/KarrotLogNotWritable",
        )


@check("KarrotNoLeader", success="a replica leads", where="high-availability.md#when-something-fails")
def leader(seen: KarrotSeen) -> Iterator[Problem]:
    """No replica leads, so no reporter gets events."""
    only_if(seen.reporters and seen.is_on_postgresql)
    if seen.reporters and seen.reporters.leader is None:
        yield fault(
            "no replica leads, so no reporter gets events",
            f"see the log of each replica; runbook: {seen.url}/runbooks/KarrotNoLeader",
        )


@check("KarrotResyncFailing", "KarrotWatchSilent", success="no component of Karrot is failing", where="operations.md")
def components(seen: KarrotSeen) -> Iterator[Problem]:
    """A component of Karrot is failing: the resync with Burrow's REST API, or watch, which polls Kafka."""
    only_if(seen.components)
    for name, each in seen.components.items():
        has_own_check = name == "log" or (seen.reporters and name.startswith("reporter "))
        if each.state == "failing" and not has_own_check:
            yield fault(
                f"{name} is failing: {each.detail or 'see the reason in the log of Karrot or on its home page'}",
                f"fix the cause in this message; the settings of {name} are at {seen.url}/config; "
                f"runbook: {seen.url}/runbooks/{runbook_of_failing(name)}",
            )


@check(
    "KarrotCloudWatchRefusing",
    "KarrotNotifyFailing",
    "KarrotReporterBacklog",
    success="every reporter passes on its events",
    where="reporters.md",
)
def reporters(seen: KarrotSeen) -> Iterator[Problem]:
    """A reporter is failing, for example cloudwatch without permissions, or is far behind."""
    only_if(seen.reporters)
    for each in seen.reporters.reporters if seen.reporters else ():
        if each.state == "failing":
            yield fault(
                f"the reporter {each.name} is failing: {each.last_error}",
                f"fix the cause in this message; the reporter's page: {seen.url}/reporters/{each.name}",
            )
        elif (each.backlog_age_seconds or 0) > _BEHIND_S:
            waiting = counted_plain(each.backlog_events or 0, "event")
            yield warn(
                f"the reporter {each.name} is {each.backlog_age_seconds:.0f} s behind ({waiting})",
                f"see the reporter's page: {seen.url}/reporters/{each.name}",
            )


@check(
    "KarrotReporterDropping", "KarrotCloudWatchOverCap", success="no reporter leaves out a value", where="cloudwatch.md"
)
def dropped(seen: KarrotSeen) -> Iterator[Problem]:
    """A reporter left out values, because its target refuses a name, there are too many groups, or a value is old."""
    only_if(seen.samples)
    for sample in seen.of("karrot_reporter_dropped_total"):
        if sample.value:
            reporter, reason = sample.labels.get("reporter", ""), sample.labels.get("reason", "")
            yield note(
                f"{reporter} left out {sample.value:.0f} values or events ({reason}) since the log began",
                f"see the newest ones at {seen.url}/reporters/{reporter}",
            )


@check("KarrotRejectingEvents", success="every body was the output of Karrot's template", where=_WRONG)
def templates_refused(seen: KarrotSeen) -> Iterator[Problem]:
    """Karrot refused bodies as unsupported_template: a notifier has another template, or another program posts."""
    yield from _refused(seen, {_TEMPLATE: CODES[_TEMPLATE].remedy})


@check("KarrotRejectingEvents", success="no request had wrong credentials", where="burrow.md#why-each-line")
def credentials(seen: KarrotSeen) -> Iterator[Problem]:
    """Karrot refused requests with 401, because Burrow's notifier has another password or token than Karrot."""
    remedy = "set the notifier's username and password to KARROT_BURROW_USERNAME and KARROT_BURROW_PASSWORD"
    if seen.setting("BURROW_TOKEN") and not seen.setting("BURROW_USERNAME"):
        remedy = "set Authorization in the notifier's headers to Bearer and KARROT_BURROW_TOKEN"
    yield from _refused(seen, {_CREDENTIALS: remedy})


@check("KarrotRejectingEvents", success="every body was valid", where="reference/codes.md")
def bodies(seen: KarrotSeen) -> Iterator[Problem]:
    """Karrot refused bodies for another reason, for example because they were empty, cut off or too large."""
    codes = {sample.labels.get("code", "") for sample in seen.of("karrot_events_rejected_total")}
    others = sorted(codes - {_TEMPLATE, _CREDENTIALS, *_NOT_STORED})
    see = f"See the bodies at {seen.url}/rejects"
    yield from _refused(seen, {code: f"{CODES[code].remedy} {see}" if code in CODES else see for code in others})


@check(
    "KarrotRejectingEvents",
    "KarrotLogNotWritable",
    success="every event was stored",
    where="reference/codes.md",
)
def not_stored(seen: KarrotSeen) -> Iterator[Problem]:
    """Karrot answered events with 503, because the disk was slow or full. Burrow does not repeat these events."""
    heals = "" if WATCH in seen.components else " Set KARROT_BURROW_URL: resync then replaces lost events."
    yield from _refused(seen, {code: f"{CODES[code].remedy}{heals}" for code in _NOT_STORED})


@check("KarrotBurrowSilent", success="every cluster has a recent event", where=_WRONG)
def silence(seen: KarrotSeen) -> Iterator[Problem]:
    """The Burrow of a cluster has sent no event for a long time, and its events do not come from Kafka either."""
    only_if(seen.samples)
    from_kafka = {
        each.cluster.casefold()
        for each in seen.groups or ()
        if each.source == "kafka" and seen.age(each.last_event_at) <= seen.stale_after
    }
    that = " that Karrot accepted" if seen.unless_refused else ""
    by_burrow = (
        f"{seen.unless_refused}check Burrow's log, or wait two minutes if it has just started; "
        f"on its host, run karrot send-sample --karrot {seen.url}; "
        "if the cluster is gone, "
    )
    from_kafka |= {each.labels["cluster"].casefold() for each in seen.of("karrot_watch_last_poll_timestamp_seconds")}
    yield from map(not_due, seen.not_due, seen.not_due.values())
    for cluster, age in seen.heard.items():
        if age > seen.stale_after and cluster.casefold() not in from_kafka and cluster not in seen.not_due:
            what = f"never sent an event{that}" if age == float("inf") else f"sent its last event{that} {age:.0f} s ago"
            forget = f"run karrot forget-cluster {shell_word(cluster)} --karrot {seen.url}"
            gone = "take it out of KARROT_EXPECTED_CLUSTERS" if age == float("inf") else forget
            yield fault(f"the Burrow of {cluster} {what}", f"{by_burrow}{gone}")
    # Neither watch nor evaluate needs a Burrow.
    if not (seen.heard or seen.not_due or from_kafka or WATCH in seen.components):
        yield fault(
            f"no Burrow ever sent an event{that}",
            f"{seen.unless_refused}add the section that karrot burrow-config --karrot {seen.url} prints to burrow.toml",
        )


@check("KarrotBurrowCutOff", success="Burrow still reads commits from Kafka", where="burrow.md#cut-off-from-kafka")
def cut_off(seen: KarrotSeen) -> Iterator[Problem]:
    """Burrow has read no commit for a long time, although the groups used to commit. It judges its old commits."""
    only_if(found := list(seen.of("karrot_burrow_cut_off")))
    for cluster in [each.labels["cluster"] for each in found if each.value]:
        yield fault(
            f"the Burrow of {cluster} reads no more commits, so its verdicts and lags are old",
            "check that Kafka runs, and that Burrow reaches it and may read __consumer_offsets; see Burrow's log",
        )


@check("KarrotSeriesDropped", success="every group has its series", where="reference/metrics.md")
def series_dropped(seen: KarrotSeen) -> Iterator[Problem]:
    """Groups or their partitions have no series: there are too many, or two shortened names are the same."""
    only_if(seen.samples)
    if dropped := seen.total("karrot_series_dropped_total"):
        yield warn(
            f"a group was left without series {counted_plain(dropped, 'time')} since the log began; "
            f"{seen.total('karrot_consumers'):.0f} groups have series",
            f"raise KARROT_MAX_CONSUMERS above {seen.setting('MAX_CONSUMERS') or 50000}, "
            "or exclude groups with "
            f"{'KARROT_WATCH_EXCLUDE_GROUPS' if WATCH in seen.components else 'a denylist in Burrow'}. "
            "With fewer groups: set KARROT_PARTITION_METRICS=false",
        )


@check("KarrotLogDamaged", success="the log was never damaged", where="data-directory.md")
def damage(seen: KarrotSeen) -> Iterator[Problem]:
    """The event log was damaged: the disk lost data which it had confirmed, or somebody changed the files."""
    only_if(seen.samples)
    for metric, what in _DAMAGE.items():
        if times := seen.total(metric):
            remedy = "check its disk, unless a backup was restored, its files were changed, or a standby took over"
            yield warn(f"{what}, {counted_plain(times, 'time')}", remedy)


def _refused(seen: KarrotSeen, remedies: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a fault for recent refusals, a note for older refusals, a warning for refusals at an unknown time."""
    only_if(seen.samples)
    rejects = seen.rejects.rejects if seen.rejects else ()
    for code, text in remedies.items():
        remedy = text.replace("`", "")  # a terminal shows no Markdown
        if not (times := seen.total("karrot_events_rejected_total", code=code)):
            continue
        newest = next((each for each in rejects if each.code == code), None)
        what = f"refused as {code}: {counted_plain(times, 'request')} since the log began"
        if newest is None:
            yield warn(what, remedy)
        elif seen.age(newest.received_at) <= REFUSED_LATELY_S:
            yield fault(f"{what}, the newest {seen.age(newest.received_at):.0f} s ago: {newest.detail}", remedy)
        else:
            yield note(f"{what}, the newest at {newest.received_at}: {newest.detail}", remedy)


CHECKS = [each for each in tuple(globals().values()) if isinstance(each, Check)]
"""Every check of this module, in source order."""
