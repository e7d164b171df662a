"""Checks Karrot itself: whether it stores the events that it gets and delivers them to the reporters."""

from collections.abc import Iterator, Mapping

from karrot.doctor.checks import Said, check, fault, note, only_if, warn
from karrot.doctor.snapshot_types import KarrotSeen
from karrot.known_problems import CODES, REFUSED_LATELY_S, WATCH, runbook_of_failing
from karrot.text import counted_plain

_WRONG = "burrow.md#when-something-is-wrong"
_BEHIND_S = 300
_TEMPLATE, _CREDENTIALS = "unsupported_template", "unauthorized"
_NOT_STORED = ("overloaded", "log_unavailable", "unconfirmed", "internal_error")
_DAMAGE = {
    "karrot_log_replaced_total": "a damaged log was set aside",
    "karrot_log_damaged_total": "the state of a group did not match its checksum",
}


@check("log not writable", well="the event log can be written", where="data-directory.md")
def log_writable(seen: KarrotSeen) -> Iterator[Said]:
    """Karrot's log is not writable: every event is answered with 503, and Burrow does not repeat it."""
    log = seen.components.get("log")
    only_if(log)
    if log is not None and log.state != "ok":
        yield fault(
            f"Karrot cannot store events: {log.detail or log.state}", "room and rights for KARROT_DATA_DIR on that disk"
        )


@check("resync failing", "watch failing", well="no component of Karrot is failing", where="operations.md")
def components(seen: KarrotSeen) -> Iterator[Said]:
    """A duty of Karrot is failing: resync or watch."""
    only_if(seen.components)
    for name, each in seen.components.items():
        if each.state == "failing" and name != "log" and not name.startswith("reporter "):
            yield fault(
                f"{name} is failing: {each.detail or 'Karrot logs why, and its home page says so'}",
                f"the settings of {name}: {seen.url}/config; {seen.url}/runbooks/{runbook_of_failing(name)}",
            )


@check("cloudwatch failing", "reporter failing", well="every reporter hands on what it gets", where="reporters.md")
def reporters(seen: KarrotSeen) -> Iterator[Said]:
    """A reporter is failing, as cloudwatch does without rights, or is far behind."""
    only_if(seen.components or seen.reporters is not None)
    for each in seen.reporters or ():
        if each.state == "failing":
            yield fault(
                f"the reporter {each.name} is failing: {each.last_error}",
                f"what it says; its page is {seen.url}/reporters/{each.name}",
            )
        elif (each.backlog_age_seconds or 0) > _BEHIND_S:
            waiting = counted_plain(each.backlog_events or 0, "event")
            yield warn(
                f"the reporter {each.name} is {each.backlog_age_seconds:.0f} s behind ({waiting})",
                f"its page: {seen.url}/reporters/{each.name}",
            )
    if seen.reporters is None:
        for name, component in seen.components.items():
            if name.startswith("reporter ") and component.state == "failing":
                yield fault(f"the {name} is failing", "KARROT_API_TOKEN for karrot doctor, which then says why")


@check("values dropped", "groups left out of CloudWatch", well="reporters leave nothing out", where="cloudwatch.md")
def dropped(seen: KarrotSeen) -> Iterator[Said]:
    """A reporter left values out: names that do not fit, too many groups, too old."""
    only_if(seen.samples)
    for sample in seen.of("karrot_reporter_dropped_total"):
        if sample.value:
            reporter, reason = sample.labels.get("reporter", ""), sample.labels.get("reason", "")
            yield note(
                f"{reporter} left {sample.value:.0f} out as {reason}, since the log began",
                f"{seen.url}/reporters/{reporter} shows the newest",
            )


@check("events refused", well="no body came from one of Burrow's own templates", where=_WRONG)
def templates_refused(seen: KarrotSeen) -> Iterator[Said]:
    """Bodies were refused as unsupported_template: a template is one of Burrow's own."""
    yield from _refused(seen, {_TEMPLATE: CODES[_TEMPLATE].remedy})


@check("events refused", well="nobody was refused for credentials", where="burrow.md#why-each-line")
def credentials(seen: KarrotSeen) -> Iterator[Said]:
    """Somebody was refused with 401: Karrot has a password or token that Burrow's section does not."""
    remedy = "username and password of the notifier as KARROT_BURROW_USERNAME and KARROT_BURROW_PASSWORD"
    yield from _refused(seen, {_CREDENTIALS: remedy})


@check("events refused", well="every body was understood", where="reference/codes.md")
def bodies(seen: KarrotSeen) -> Iterator[Said]:
    """Bodies were refused for other reasons: cut, too large, or not Burrow's."""
    codes = {sample.labels.get("code", "") for sample in seen.of("karrot_events_rejected_total")}
    others = sorted(codes - {_TEMPLATE, _CREDENTIALS, *_NOT_STORED})
    yield from _refused(seen, dict.fromkeys(others, f"the bodies: {seen.url}/rejects"))


@check("events refused", "log not writable", well="every event could be stored in time", where="reference/codes.md")
def not_stored(seen: KarrotSeen) -> Iterator[Said]:
    """Events were answered with 503, because the disk was slow or full: Burrow does not repeat them."""
    heals = "KARROT_BURROW_URL heals what was lost."
    yield from _refused(seen, {code: f"{CODES[code].remedy} {heals}" for code in _NOT_STORED})


@check("Burrow silent", well="every cluster was heard lately", where=_WRONG)
def silence(seen: KarrotSeen) -> Iterator[Said]:
    """Nothing came from the Burrow of a cluster for long."""
    only_if(seen.samples)
    for cluster, age in seen.heard.items():
        if age > seen.stale_after:
            said = "was never heard" if age == float("inf") else f"was heard {age:.0f} s ago for the last time"
            yield fault(
                f"the Burrow of {cluster} {said}", "Burrow's log; from its host: karrot send-sample --url " + seen.url
            )
    if not seen.heard and WATCH not in seen.components:  # watch needs no Burrow
        yield fault("no Burrow was ever heard", f"karrot burrow-config --url {seen.url}")


@check("too many groups", well="every group has its series", where="reference/metrics.md")
def series_dropped(seen: KarrotSeen) -> Iterator[Said]:
    """Groups got no series: more than KARROT_MAX_CONSUMERS, or two names met when cut."""
    only_if(seen.samples)
    if dropped := seen.total("karrot_series_dropped_total"):
        yield warn(
            f"groups got no series {counted_plain(dropped, 'time')} since the log began; "
            f"{seen.total('karrot_consumers'):.0f} have",
            f"KARROT_MAX_CONSUMERS above {seen.setting('MAX_CONSUMERS') or 50000}, or a denylist in Burrow",
        )


@check("log damaged", well="the log was never damaged", where="data-directory.md")
def damage(seen: KarrotSeen) -> Iterator[Said]:
    """The log was damaged: a disk that loses what it took."""
    only_if(seen.samples)
    for metric, said in _DAMAGE.items():
        if times := seen.total(metric):
            yield warn(f"{said}, {counted_plain(times, 'time')}", "another disk for KARROT_DATA_DIR")


@check(well="the prometheus reporter is on", where="reporters.md")
def exporter(seen: KarrotSeen) -> Iterator[Said]:
    """The prometheus reporter is off: /metrics has no group."""
    only_if(seen.settings)
    if "prometheus" not in seen.setting("REPORTERS").split(","):
        yield note("the prometheus reporter is off: /metrics has no group", "KARROT_REPORTERS=prometheus,...")


@check(
    well="Spark has nothing to publish that the cloudwatch reporter does already",
    where="pipeline.md#publishing-from-spark",
)
def published_twice(seen: KarrotSeen) -> Iterator[Said]:
    """Karrot publishes to CloudWatch and writes an archive or a topic, which Spark may publish again: samples twice."""
    only_if(seen.settings)
    reporters = set(seen.setting("REPORTERS").split(","))
    if "cloudwatch" in reporters and reporters & {"archive", "kafka"}:
        yield note(
            "karrot pipeline stream must not publish these events to CloudWatch: the cloudwatch reporter does already",
            "karrot pipeline stream --to tables; or KARROT_REPORTERS without cloudwatch",
        )


def _refused(seen: KarrotSeen, remedies: Mapping[str, str]) -> Iterator[Said]:
    """A fault while it goes on, as far as that can be told; a note once it is over."""
    only_if(seen.samples)
    for code, text in remedies.items():
        remedy = text.replace("`", "")  # a terminal shows no Markdown
        if not (times := seen.total("karrot_events_rejected_total", code=code)):
            continue
        newest = next((each for each in seen.rejects or () if each.code == code), None)
        told = f"refused as {code}: {counted_plain(times, 'request')} since the log began"
        if newest is None:
            yield warn(told, remedy)
        elif seen.age(newest.received_at) <= REFUSED_LATELY_S:
            yield fault(f"{told}, the last {seen.age(newest.received_at):.0f} s ago: {newest.detail}", remedy)
        else:
            yield note(f"{told}, the last at {newest.received_at}: {newest.detail}", remedy)


CHECKS = (
    log_writable,
    components,
    reporters,
    dropped,
    templates_refused,
    credentials,
    bodies,
    not_stored,
    silence,
    series_dropped,
    damage,
    exporter,
    published_twice,
)
"""Each takes a `KarrotSeen`."""
