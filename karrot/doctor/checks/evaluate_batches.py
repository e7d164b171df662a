"""Checks ``karrot pipeline evaluate``: whether it judges the groups in time, and whether its verdicts reach Karrot."""

from collections.abc import Iterator

from karrot.doctor.checks import Said, check, fault, note, only_if, warn
from karrot.doctor.snapshot_types import EvaluateSeen, KarrotSeen
from karrot.known_problems import WATCH
from karrot.text import counted_plain

_WATCH_IT = "evaluate.md#watch-it"
_HOW = "evaluate.md#how-it-works"
_OPTIONS = "reference/commands.md#karrot-pipeline-evaluate"
_ACCEPTED = "karrot_events_accepted_total"
_RARELY = 0.1


@check(well="evaluate reports that it is healthy", where=_WATCH_IT)
def evaluate_health(seen: EvaluateSeen) -> Iterator[Said]:
    """Evaluate reports at /healthz that it is not healthy."""
    if seen.trouble is not None:
        yield fault(f"evaluate is not healthy: {seen.trouble}", "fix the cause in this message, and restart evaluate")


@check("evaluate behind", well="evaluate has new verdicts", where=_WATCH_IT)
def last_batch(seen: EvaluateSeen) -> Iterator[Said]:
    """Evaluate has made no verdicts for three intervals, or none since its start."""
    told = f"the interval is {seen.interval:g} s"
    if seen.is_catching_up:
        yield note(
            "evaluate reads records that waited, and judges no group until it has read them",
            f"run karrot doctor again after {seen.patience:g} s; if it takes too long, give Spark more cores",
        )
    elif seen.batches and seen.age > seen.patience:
        yield fault(
            f"the last verdicts of evaluate are {seen.age:.0f} s old, and {told}",
            "look for the reason in the last lines of its log: Karrot, Kafka or the checkpoint cannot be reached, or "
            "a batch takes too long",
        )
    elif not seen.batches and seen.age > seen.patience:
        yield fault(
            f"evaluate has made no verdicts since its start {seen.age:.0f} s ago, and {told}",
            "look at its log; if it still reads old records of __consumer_offsets, wait or give Spark more cores",
        )
    elif not seen.batches:
        yield note(
            f"evaluate started {seen.age:.0f} s ago, and has made no verdicts yet",
            f"run karrot doctor again after {seen.patience:g} s",
        )


@check("evaluate behind", well="a batch of evaluate is shorter than the interval", where=_WATCH_IT)
def batch_time(seen: EvaluateSeen) -> Iterator[Said]:
    """A batch takes longer than the interval. So evaluate cannot keep up."""
    only_if(seen.batch_seconds is not None)
    if (took := seen.batch_seconds or 0.0) > seen.interval:
        told = f"the last batch of evaluate took {took:.0f} s, longer than the interval of {seen.interval:g} s"
        if seen.batches == 1:
            yield note(f"{told}: the first batch reads all records since the last run", "run karrot doctor again later")
        else:
            yield warn(told, "give Spark more cores, raise --every, or list fewer partitions with --partitions bad")


@check(well="evaluate knows consumer groups", where=_OPTIONS)
def evaluate_groups(seen: EvaluateSeen) -> Iterator[Said]:
    """Evaluate knows no consumer group."""
    only_if(seen.groups is not None)
    if not seen.groups:
        yield fault(
            "evaluate knows no consumer group",
            "check that --bootstrap-servers names the Kafka cluster on which the groups commit, that evaluate may read "
            "__consumer_offsets, and that --group-allowlist and --group-denylist admit the groups",
        )


@check(well="Karrot accepted every verdict of evaluate", where=_HOW)
def refused_verdicts(seen: EvaluateSeen) -> Iterator[Said]:
    """Karrot refused verdicts of evaluate because of their content, for example because they are too large."""
    only_if(seen.batches)
    if seen.refused:
        total = counted_plain(seen.refused + seen.delivered, "verdict")
        yield warn(
            f"Karrot refused {seen.refused} of {total} since the start of evaluate",
            "read the codes in CHECKPOINT/refused, where evaluate keeps these verdicts; for too_large, raise "
            "KARROT_MAX_BODY or use --partitions bad",
        )


@check(well="evaluate could read every record of __consumer_offsets", where=_HOW)
def unreadable_records(seen: EvaluateSeen) -> Iterator[Said]:
    """Evaluate could not read records of __consumer_offsets, so it does not have the commits in them."""
    only_if(seen.batches)
    if seen.unreadable:
        yield warn(
            f"evaluate could not read {counted_plain(seen.unreadable, 'record')} of __consumer_offsets since its start",
            "read the reasons in the table quarantine; a newer Kafka can need a newer Karrot",
        )


@check(well="Kafka answered every request for log ends", where=_WATCH_IT)
def log_end_requests(seen: EvaluateSeen) -> Iterator[Said]:
    """Kafka did not answer requests of evaluate for log end offsets. The lag then lacks the newest messages."""
    if seen.log_end_failures:
        failures = counted_plain(seen.log_end_failures, "request")
        say = note if seen.log_end_failures < _RARELY * seen.batches else warn
        yield say(
            f"Kafka did not answer {failures} for log ends since the start of evaluate "
            f"({counted_plain(seen.batches, 'batch', 'batches')})",
            "look for the reason in its log; it needs the right to describe all topics on which groups commit",
        )


@check(well="Karrot gets the verdicts of evaluate", where=_OPTIONS)
def evaluate_arrival(seen: EvaluateSeen, karrot: KarrotSeen) -> Iterator[Said]:
    """Evaluate delivers verdicts, but not to this Karrot."""
    only_if(seen.delivered and karrot.samples and WATCH not in karrot.components)  # watch has the same source
    if karrot.total(_ACCEPTED, source="kafka"):
        return
    told = (
        f"evaluate has delivered {counted_plain(seen.delivered, 'verdict')} since its start, but {karrot.url} has no "
        "event with the source kafka"
    )
    mend = f"start evaluate with --to karrot={karrot.url}; without --to, it only prints the verdicts"
    if min(karrot.heard.values(), default=float("inf")) > max(seen.patience, karrot.stale_after):
        yield fault(told, mend)
    else:
        yield note(
            f"{told}: its events come from Burrow, or from evaluate with --partitions bad",
            f"without --partitions bad, {mend}",
        )


@check(well="only one program sends verdicts for each cluster", where="evaluate.md#when-to-use-it")
def two_senders(seen: EvaluateSeen, karrot: KarrotSeen) -> Iterator[Said]:
    """Karrot gets verdicts on the same groups from Burrow and from evaluate."""
    only_if(karrot.histories and WATCH not in karrot.components)
    sources = {
        key: {each.source for each in events if karrot.age(each.received_at) <= seen.patience}
        for key, events in karrot.histories.items()
    }
    for cluster in sorted({key.cluster for key, lately in sources.items() if lately >= {"webhook", "kafka"}}):
        yield warn(
            f"Karrot gets verdicts on the same groups of {cluster} from Burrow and from evaluate",
            f"stop one of the two, or give evaluate a name with --cluster that is not {cluster}",
        )


ALONE = (
    evaluate_health,
    last_batch,
    batch_time,
    evaluate_groups,
    refused_verdicts,
    unreadable_records,
    log_end_requests,
)
"""Each takes an `EvaluateSeen`."""

WITH_KARROT = (evaluate_arrival, two_senders)
"""Each takes an `EvaluateSeen` and a `KarrotSeen`."""
