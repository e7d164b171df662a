"""The causes of faults on a real broker. `make truth` recorded what Karrot knew of each group (`tests/data/explained`).

Each file has the planted cause and the inputs of the diagnosis.
"""

import re
import subprocess
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from karrot.diagnosis.explanations import Explanation, explain
from karrot.diagnosis.known_facts import Known
from karrot.event import PartitionLag, Source

FOLDER = Path(__file__).parents[1] / "data" / "explained"


class Recorded(msgspec.Struct):
    cause: str
    known: Known


def recorded(name: str) -> Recorded:
    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=Recorded)


def known(name: str) -> Known:
    return recorded(name).known


def changed(facts: Known, number: int, **fields: object) -> Known:
    """Change a partition of the newest event."""
    partitions = tuple(replace(one, **fields) if one.partition == number else one for one in facts.partitions)
    return replace(facts, partitions=partitions)


def stuck_number(facts: Known) -> int:
    return next(one.partition for one in facts.partitions if one.status_text != "OK")


NAMES = sorted(each.stem for each in FOLDER.glob("*.json"))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "starved"])
def test_a_planted_fault_is_named_with_its_evidence_and_commands(name: str) -> None:
    told = recorded(name)
    found = explain(told.known)
    assert found.cause == told.cause
    assert found.sentence
    assert found.evidence
    assert found.check
    assert found.runbook
    assert found.missing == []
    assert found.commands
    assert not re.search(
        "[{}]|None", " ".join([found.sentence, *found.evidence, *(one.command for one in found.commands)])
    )


def test_all_ten_kinds_are_recorded() -> None:
    kinds = "hot_key hung_consumer left_topic no_members offsets_reset poison_record producer_burst rebalance_storm"
    assert {*kinds.split(), "retention_near", "slow_consumer", "starved"} == set(NAMES)


def told_unknown(facts: Known, missing: str) -> Explanation:
    found = explain(facts)
    assert found.cause == "not_known"
    assert any(missing in each for each in found.missing), found.missing
    return found


def test_a_consumer_that_stops_everywhere_at_different_times_is_not_known() -> None:
    told_unknown(known("starved"), "Whether one record or the whole consumer")


def test_a_stopped_partition_is_no_poison_record_if_its_owner_can_be_another_member() -> None:
    facts = known("poison_record")
    assert facts.watched is not None
    told_unknown(replace(facts, watched=replace(facts.watched, members=2)), "Whether one record")


def test_a_stopped_partition_is_no_poison_record_if_its_consumer_is_too_slow_for_the_others() -> None:
    facts = known("poison_record")
    others = [one.partition for one in facts.partitions if one.status_text == "OK"]
    for number in others:
        told_unknown(changed(facts, number, current_lag=400), "Whether one record")


def test_a_partition_that_is_the_only_one_with_messages_shows_no_difference() -> None:
    for name in ("poison_record", "hung_consumer"):
        facts = known(name)
        only = tuple(one for one in facts.partitions if one.partition == stuck_number(facts))
        told_unknown(replace(facts, partitions=only), "Whether one record")


def test_a_stopped_partition_without_a_readable_record_is_no_poison_record() -> None:
    facts = known("poison_record")
    number = stuck_number(facts)
    first = next(one.first_unread for one in facts.partitions if one.partition == number)
    assert first is not None
    assert explain(changed(facts, number, first_unread=first._replace(written_ms=None))).cause == "not_known"


def test_without_members_from_kafka_a_stopped_group_is_not_known() -> None:
    for name in ("hung_consumer", "no_members", "poison_record"):
        facts = replace(known(name), watched=None)
        assert facts.newest is not None
        facts = replace(facts, newest=facts.newest._replace(source=Source.REST))
        told_unknown(facts, "Whether the group has members")


def test_a_stopped_partition_without_an_owner_is_not_known() -> None:
    facts = known("poison_record")
    told_unknown(changed(facts, stuck_number(facts), owner="", client_id=""), "Why no member owns")


def test_a_partial_list_of_partitions_names_no_record_and_no_hot_key() -> None:
    told_unknown(replace(known("poison_record"), has_all=False), "The other partitions")
    assert explain(replace(known("hot_key"), has_all=False)).cause != "hot_key"


def test_without_the_time_before_the_incident_a_slow_group_is_not_known() -> None:
    for name in ("slow_consumer", "producer_burst"):
        told_unknown(replace(known(name), before=None), "What changed")


def test_a_partition_that_has_just_stopped_is_no_slow_consumer() -> None:
    facts = known("slow_consumer")
    assert facts.newest is not None
    told_unknown(changed(facts, 0, moved_at_ms=facts.newest.observed_at_ms - 12_000), "What changed")


def test_a_group_that_reads_one_partition_as_fast_as_before_is_no_slow_consumer() -> None:
    facts = known("slow_consumer")
    assert facts.before is not None
    (fast,) = (one for one in facts.before.partitions if one.partition == 0)
    (now,) = (one for one in facts.partitions if one.partition == 0)
    assert fast.start and fast.end and now.start and now.end  # noqa: PT018
    offset = now.end.offset - (fast.end.offset - fast.start.offset)
    start = now.start._replace(offset=offset, lag=now.start.offset + (now.start.lag or 0) - offset)
    told_unknown(changed(facts, 0, start=start), "What changed")


def test_a_healthy_group_with_many_deployments_is_no_storm() -> None:
    facts = known("rebalance_storm")
    assert facts.watched is not None
    assert facts.state.summary.status_text == "OK"
    assert explain(replace(facts, watched=replace(facts.watched, members=4))).cause == "none"


def test_a_slower_consumer_and_a_faster_producer_together_are_not_known() -> None:
    for name, slower, faster in (("producer_burst", 0.3, 0), ("slow_consumer", 1, 2000)):
        facts = known(name)
        told_unknown(
            replace(facts, partitions=tuple(other_rates(one, slower, faster) for one in facts.partitions)), "changed"
        )


def other_rates(one: PartitionLag, slower: float, faster: int) -> PartitionLag:
    """Return a partition that gets more messages, and where the group reads less in the window."""
    assert one.start is not None
    assert one.end is not None
    assert one.start.lag is not None
    read = one.end.offset - int((one.end.offset - one.start.offset) * slower)
    lag = one.start.lag - (read - one.start.offset)
    more = {"log_end": (one.log_end or 0) + faster, "current_lag": (one.current_lag or 0) + faster}
    return replace(one, start=one.start._replace(offset=read, lag=max(0, lag)), **more)


def with_topic_id(facts: Known, text: str) -> Known:
    """Change the id of the topic in the newest event."""
    assert facts.newest is not None
    extras = tuple((dict(facts.newest.extras) | {"topic_ids": text}).items())
    return replace(facts, newest=facts.newest._replace(extras=extras))


def test_offsets_that_went_back_in_a_recreated_topic_were_not_reset_although_its_log_is_longer() -> None:
    found = explain(with_topic_id(known("offsets_reset"), "explain-offsets-reset-1=F7qB9zRkSXm0aYy1uQ2w3g"))
    assert found.cause == "topic_recreated"
    assert found.evidence[-1] == (
        "The id of explain-offsets-reset-1 was UZIT6hZ1Rkq1NrEy74N7xg, and is F7qB9zRkSXm0aYy1uQ2w3g."
    )
    assert not any("--reset-offsets" in each.command for each in found.commands)


def test_without_the_ids_of_a_topic_a_reset_and_a_recreated_topic_are_both_possible() -> None:
    found = explain(with_topic_id(known("offsets_reset"), ""))
    assert (found.cause, len(found.missing)) == ("went_back", 1)
    assert "reset, or the topic was deleted and created again" in found.sentence
    assert found.evidence
    assert not any("--reset-offsets" in each.command for each in found.commands)


def test_a_topic_with_a_shorter_log_was_not_reset() -> None:
    facts = known("offsets_reset")
    shorter = tuple(one._replace(log_end=400) for one in facts.partitions)
    assert explain(replace(facts, partitions=shorter)).cause != "offsets_reset"


def test_a_rolling_deployment_is_no_storm() -> None:
    facts = known("rebalance_storm")
    assert facts.newest is not None
    assert facts.earlier is not None
    before = int(dict(facts.earlier.extras)["rebalances"])
    extras = tuple((dict(facts.newest.extras) | {"rebalances": str(before + 4)}).items())
    assert explain(replace(facts, newest=facts.newest._replace(extras=extras))).cause != "rebalance_storm"


def test_lost_messages_come_before_the_reason_of_the_lag() -> None:
    facts = known("slow_consumer")
    assert facts.watched is not None
    found = explain(replace(facts, watched=replace(facts.watched, messages_lost=12)))
    assert (found.cause, found.sentence) == ("messages_lost", "Kafka deleted 12 messages before the group read them.")
    assert explain(facts).sentence in found.evidence


def test_a_log_start_that_does_not_move_is_no_risk() -> None:
    facts = known("retention_near")
    assert facts.before is not None
    still = tuple(one._replace(log_start=facts.partitions[0].log_start) for one in facts.before.partitions)
    assert explain(replace(facts, before=facts.before._replace(partitions=still))).cause == "slow_consumer"


def test_the_commands_name_the_group_its_record_and_the_known_addresses() -> None:
    facts = known("poison_record")
    at = next(one for one in facts.partitions if one.partition == stuck_number(facts))
    assert at.end is not None
    settings = {"KARROT_WATCH_CLUSTER": "truth", "KARROT_WATCH_BOOTSTRAP": "b1:9092,b2:9092"}
    lines = [each.command for each in explain(facts, settings).commands]
    group = f"kafka-consumer-groups.sh --bootstrap-server b1:9092,b2:9092 --group {facts.state.key.consumer}"
    assert lines[-1] == (
        f"{group} --topic {at.topic}:{at.partition} --reset-offsets --to-offset {at.end.offset + 1} --dry-run"
    )
    assert f"--partition {at.partition} --offset {at.end.offset} --max-messages 1" in lines[-2]
    assert "kafka-1:9092" in explain(facts, settings | {"KARROT_WATCH_CLUSTER": "other"}).commands[0].command


def test_a_name_cannot_end_a_command() -> None:
    facts = known("hung_consumer")
    key = facts.state.key._replace(consumer="a b'; rm -rf $HOME #{x}")
    lines = [each.command for each in explain(replace(facts, state=replace(facts.state, key=key))).commands]
    assert all("""--group 'a b'"'"'; rm -rf $HOME #{x}' --describe""" in line for line in lines)


def test_a_name_with_control_characters_reaches_the_command_as_it_is() -> None:
    name = "a\nb'\\\u202ec\u00e9"
    facts = known("hung_consumer")
    lines = explain(replace(facts, state=replace(facts.state, key=facts.state.key._replace(consumer=name)))).commands
    for line in (each.command for each in lines):
        assert line.isprintable()
        script = f'kafka-consumer-groups.sh() {{ printf "%s\\0" "$@"; }}; {line}'
        words = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout.split(b"\0")
        assert name.encode() in words


def test_a_group_with_one_event_is_explained() -> None:
    facts = known("retention_near")
    assert explain(replace(facts, before=facts.newest)).cause == "not_known"


def test_a_topic_without_new_messages_has_no_hot_key() -> None:
    facts = known("hot_key")
    assert explain(replace(facts, partitions=tuple(map(quiet, facts.partitions)))).cause == "slow_consumer"


def quiet(one: PartitionLag) -> PartitionLag:
    """Return a partition that gets nothing, where the group reads nothing. The first one has most of the lag."""
    assert one.end is not None
    lag = 90 if one.partition == 0 else 4
    end = one.end._replace(lag=lag, log_end=None)
    start = end._replace(timestamp_ms=end.timestamp_ms - 60_000, observed_at_ms=end.timestamp_ms - 62_000)
    return replace(one, start=start, end=end, log_end=None, current_lag=lag)
