"""On a real broker, `watch`, the judge and the tables say the same about the same groups."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from pyspark.sql import SparkSession

from e2e.chain import SPARK
from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.kafka import Kafka
from e2e.stack.processes import Server, Servers
from e2e.truth.members import Member
from e2e.waiting import wait_for
from karrot.pipeline.derive.job import DeriveRules, derive
from karrot.pipeline.store.table_files import Tables
from support.pipeline.expected_tables.comparison import table_rows
from support.service.karrot_service import Service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

WATCHED, JUDGED = "watched", "judged"
_PATIENCE_S = 300
_STILL = {"STOP": "stands still", "STALL": "stands still"}

States = dict[str, tuple[str, int | None, dict[tuple[str, int], tuple[str, int | None]]]]
"""The status and the lag of each group, and of its partitions. STOP and STALL count as one."""

EXPECTED: States = {
    "same-read": ("OK", 0, {("same-read", 0): ("OK", 0)}),
    "same-deleted": ("OK", 0, {("same-deleted", 0): ("OK", 0)}),
    "same-stopped": ("ERR", 40, {("same-stopped", 0): ("stands still", 40)}),
    "same-beyond": ("ERR", None, {("same-beyond", 0): ("BEYOND_END", None)}),
    "same-never": ("ERR", None, {("same-never", 0): ("NEVER_COMMITTED", None)}),
    "same-half": ("OK", 0, {("same-half", 0): ("OK", 0), ("same-half", 1): ("NEVER_COMMITTED", None)}),
    "same-left": ("OK", 0, {("same-left", 0): ("OK", 0), ("same-before", 0): ("LEFT", None)}),
}


@contextmanager
def _groups(kafka: Kafka) -> Iterator[Callable[[str, int], None]]:
    """Make the topics and groups of `EXPECTED`. The consumers of the living ones run until the end.

    The result writes messages to a topic.
    """
    admin, producer, members = kafka.admin(), Producer(kafka.client), dict[str, Member]()

    def write(topic: str, count: int) -> None:
        for _ in range(count):
            producer.produce(topic, b"x", partition=0)
        assert producer.flush(60) == 0

    def committed(group: str, topic: str) -> int:
        asked = ConsumerGroupTopicPartitions(group)
        found = admin.list_consumer_group_offsets([asked])[group].result(60).topic_partitions
        return next((each.offset for each in found if each.topic == topic and each.partition == 0), -1)

    def set_offset(group: str, topic: str, offset: int) -> None:
        told = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])]
        admin.alter_consumer_group_offsets(told)[group].result(60)

    def read(group: str, *topics: str, commits: bool = True) -> None:
        members[group] = Member(kafka.client, group, [*topics], commit_every_s=1 if commits else None).start()

    for topic in ("read", "deleted", "stopped", "beyond", "never", "left", "before"):
        kafka.create_topic(f"same-{topic}", 1)
    kafka.create_topic("same-half", 2)
    try:
        for topic in ("read", "deleted", "stopped", "beyond", "left", "before"):
            write(f"same-{topic}", 60)
        read("same-read", "same-read")
        read("same-left", "same-left", "same-before")
        read("same-never", "same-never", commits=False)
        read("same-half", "same-half")
        write("same-half", 60)
        set_offset("same-deleted", "same-deleted", 10)
        set_offset("same-stopped", "same-stopped", 20)
        set_offset("same-beyond", "same-beyond", 10_000)
        for each in admin.delete_records([TopicPartition("same-deleted", 0, 60)]).values():
            each.result(60)
        wait_for(lambda: committed("same-left", "same-before") == 60)
        members["same-left"].close()
        read("same-left", "same-left")
        write("same-before", 30)
        wait_for(lambda: committed("same-half", "same-half") == 60 and bool(members["same-never"].owned))
        yield write
    finally:
        for member in members.values():
            member.close()


def _judge(servers: Servers, kafka: Kafka, service: Service, tables: Tables) -> Server:
    jars = ",".join(map(str, Downloads(default_cache()).spark_kafka()))
    command = ["offsets", "--judge=burrow", f"--tables={tables.directory}", f"--cluster={JUDGED}"]
    command += [
        f"--bootstrap-servers={kafka.bootstrap}",
        f"--to=karrot=http://127.0.0.1:{service.port}",
        "--every=1s",
        "--ends-every=1s",
    ]
    command += [f"--conf=spark.jars={jars}", *SPARK]
    return servers.start("judge", [sys.executable, "-m", "karrot", "pipeline", *command])


def _states(service: Service, cluster: str) -> States:
    found: States = {}
    for group in EXPECTED:
        answer = service.get(f"/api/v1/group?{urlencode({'cluster': cluster, 'consumer': group})}")
        if answer.status == 200 and answer.json["partitions"] is not None:
            partitions = {
                (one["topic"], one["partition"]): (_STILL.get(one["status"], one["status"]), one["lag"])
                for one in answer.json["partitions"]
            }
            found[group] = answer.json["status"], answer.json["lag"], partitions
    return found


def test_watch_the_judge_and_the_tables_give_the_same_states_for_the_same_groups(
    kafka: Kafka, kafka_spark: SparkSession, tmp_path: Path
) -> None:
    tables = Tables(str(tmp_path / "tables"))
    service = Service(
        tmp_path / "data",
        watch_bootstrap=kafka.bootstrap,
        watch_cluster=WATCHED,
        watch_interval="1s",
        abandoned_after="0s",
    )
    with ExitStack() as stack:
        stack.enter_context(service)
        write = stack.enter_context(_groups(kafka))
        servers = stack.enter_context(Servers(tmp_path / "logs"))
        judge = _judge(servers, kafka, service, tables)

        def agree() -> bool:
            assert judge.exit_code is None, judge.tail()
            return _states(service, WATCHED) == _states(service, JUDGED) == EXPECTED

        def is_waiting(cluster: str) -> bool:
            assert judge.exit_code is None, judge.tail()
            found = _states(service, cluster)
            never, half = (found.get(f"same-{name}", ("", None, {}))[2].values() for name in ("never", "half"))
            return all(("NEVER_COMMITTED", None) in partitions for partitions in (never, half))

        wait_for(lambda: is_waiting(WATCHED) and is_waiting(JUDGED), _PATIENCE_S)
        write("same-never", 30)
        wait_for(agree, _PATIENCE_S)

        def landed() -> States:
            derive(kafka_spark, tables, DeriveRules())
            return _landed(Path(tables.directory))

        wait_for(lambda: landed() == _without_statuses(EXPECTED), _PATIENCE_S)


def _landed(tables: Path) -> States:
    """The newest minute of each group, and the newest row of each partition."""
    found: States = {}
    for row in sorted(table_rows(tables, "lag_minute"), key=lambda row: row["minute"]):
        found[row["consumer"]] = "", row["lag_last"], {}
    for row in sorted(table_rows(tables, "partition_lag_minute"), key=lambda row: row["minute"]):
        found[row["consumer"]][2][row["topic"], row["partition"]] = row["state"] or "", row["lag"]
    return {group: state for group, state in found.items() if group in EXPECTED}


def _without_statuses(states: States) -> States:
    """The tables have no verdicts, only the states that say why a lag is unknown."""
    return {
        group: ("", lag, {place: ("" if lag is not None else state, lag) for place, (state, lag) in partitions.items()})
        for group, (_, lag, partitions) in states.items()
    }
