import pytest

from karrot.diagnosis.causes import Cause, cause
from karrot.event import GroupKey, LagEvent, OffsetSample, Source
from karrot.eventlog.base import GroupState, IncidentState
from karrot.eventlog.next_group_state import summarize
from support.burrow.lag_events import make_event, make_partition


def state(event: LagEvent) -> GroupState:
    return GroupState(GroupKey(event.cluster, event.consumer), 1, 0, summarize(event, 0), IncidentState())


def told(*, total_lag: int = 40_000, count: int = 12, **partition: object) -> Cause:
    worst = make_partition(**partition)
    found = cause(state(make_event(total_lag=total_lag, max_lag=worst, partitions=(worst,), partition_count=count)), 90)
    assert found is not None
    return found


def test_a_healthy_group_has_no_cause() -> None:
    assert cause(state(make_event(status_text="OK")), None) is None


@pytest.mark.parametrize(
    ("status", "brief", "part", "runbook"),
    [
        ("STOP", "1 of 12 stopped", "the group has committed no new offset for 1 min 30 s", "KarrotPartitionStopped"),
        ("STALL", "1 of 12 stalled", "commits the same offset again and again", "KarrotPartitionStopped"),
        ("REWIND", "1 of 12 went back", "a committed offset was lower than the previous one", "KarrotConsumerError"),
    ],
)
def test_burrows_findings_on_partitions_are_explained(status: str, brief: str, part: str, runbook: str) -> None:
    found = told(status_text=status)
    assert (found.brief, found.runbook) == (brief, runbook)
    assert part in found.sentence
    assert found.look


@pytest.mark.parametrize(("seconds", "since"), [(90, " for 1 min 30 s"), (None, "")], ids=["since a poll", "unknown"])
def test_a_stalled_partition_of_watch_has_an_offset_that_does_not_move_and_no_commits(
    seconds: float | None, since: str
) -> None:
    worst = make_partition(status_text="STALL", moved_at_ms=0)
    event = make_event(source=Source.KAFKA, max_lag=worst, partitions=(worst,))
    found = cause(state(event), seconds)
    assert found is not None
    assert found.sentence == f"1 of 12 partitions stalled: the offset has not moved{since}."


def test_a_stalled_partition_whose_commits_were_read_from_kafka_has_commits() -> None:
    worst = make_partition(status_text="STALL")
    found = cause(state(make_event(source=Source.KAFKA, max_lag=worst, partitions=(worst,))), 2)
    assert found is not None
    assert found.sentence.endswith("the group commits the same offset again and again.")


def test_an_offset_past_the_log_end_is_explained_with_both_offsets() -> None:
    found = told(status_text="BEYOND_END", end=OffsetSample(10_000, 0, lag=0), current_lag=None, log_end=1_331)
    assert (found.brief, found.runbook) == ("1 of 12 past the log end", "KarrotOffsetBeyondEnd")
    assert found.sentence == (
        "The group's offset 10,000 is past the end 1,331: somebody or a tool set the offset, or the topic was restored "
        "or cut off."
    )


def test_an_error_of_partitions_that_never_committed_is_explained() -> None:
    owned = make_partition(status_text="NEVER_COMMITTED", current_lag=None, start=None, end=None)
    found = cause(state(make_event(status_text="ERR", max_lag=owned, partitions=(owned,), partition_count=2)), None)
    assert found is not None
    assert (found.brief, found.runbook) == ("1 of 2 never committed", "KarrotConsumerError")
    assert "KARROT_WATCH_OFFSETS_ELSEWHERE" in found.look


def test_an_open_transaction_is_explained_before_other_findings() -> None:
    held, stopped = make_partition(status_text="OPEN_TRANSACTION"), make_partition(partition=1, status_text="STOP")
    found = cause(state(make_event(status_text="ERR", partitions=(held, stopped), partition_count=9)), None)
    assert found is not None
    assert (found.brief, found.runbook) == ("1 of 9 behind an open transaction", "KarrotPartitionStopped")
    assert "command that finds the producer" in found.look


def test_an_error_without_its_partition_is_not_called_slow() -> None:
    found = cause(state(make_event(status_text="ERR", max_lag=None, partitions=())), None)
    assert found is not None
    assert (found.brief, found.runbook) == ("partition not listed", "KarrotConsumerError")
    assert "slow" not in found.sentence
    assert "consumers" not in found.look


def test_a_slow_group_is_shown_with_its_rates() -> None:
    found = told()
    assert (found.brief, found.runbook) == ("1 of 12 too slow", "KarrotConsumerLagGrowing")
    assert found.sentence == (
        "The consumer is slower than its topic: on the worst partition it reads 48 messages/s, and 106/s arrive."
    )


def test_a_lag_on_one_partition_is_a_separate_cause() -> None:
    found = told(total_lag=11_000, current_lag=10_440)
    assert (found.brief, found.runbook) == ("95 % on one partition", "KarrotConsumerLagGrowing")
    assert "More consumers would not help" in found.look
    assert told(total_lag=11_000, current_lag=10_440, count=1).brief == "1 of 1 too slow"


def test_burrows_own_group_has_its_own_cause() -> None:
    worst = make_partition(topic="__consumer_offsets")
    found = cause(state(make_event(consumer="burrow-prod", max_lag=worst)), None)
    assert found is not None
    assert (found.brief, found.runbook) == ("Burrow itself is behind", "KarrotBurrowLagging")


def test_an_unknown_status_is_named_as_unknown() -> None:
    found = cause(state(make_event(status_text="ODD\u202e")), None)
    assert found == Cause("Karrot does not know the status ODD\\u{202e}.")
