"""`karrot groups`, `status` and `lag` with Kafka and Burrow, or with Kafka alone."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from karrot.cli import main
from karrot.cli.errors import NotDone
from karrot.cli.groups_status_lag import (
    GroupAnswers,
    ask,
    ask_kafka,
    beside_burrow,
    groups_json,
    groups_table,
    partition_tables,
)
from karrot.event import TopicPartition
from karrot.watch.cluster_interface import ClusterError
from karrot.watch.cluster_reader import ClusterReader
from support.burrow.fake_burrow_rig import fake_burrow, simulated_group
from support.kafka.in_memory_kafka import InMemoryKafka, make_member

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
GROUPS = """\
GROUP    STATUS  LAG  SHARE  WORST     PARTITIONS  COMPLETE  STATE   MEMBERS  COORDINATOR  REBALANCES  LOST  MARGIN
audit    -         0      -  orders-0           1         -  Empty         0            1           -     0       -
billing  -        60    67%  orders-0           2         -  Stable        2            1           -    10       0
prod: 2 groups, lag 60; 1 Empty, 1 Stable"""


@pytest.fixture
def kafka() -> InMemoryKafka:
    simulated = InMemoryKafka(ends={A: 100, B: 50}, starts={A: 0, B: 30})
    simulated.put("billing", {A: 60, B: 20}, make_member(A), make_member(B, host="/10.0.0.2"))
    simulated.put("audit", {A: 100})
    return simulated


def test_kafka_alone_gives_a_table_without_verdicts(kafka: InMemoryKafka) -> None:
    asked = ask_kafka(ClusterReader("prod", kafka), ())
    assert "\n".join(groups_table(asked)) == GROUPS
    assert list(partition_tables(asked)) == [
        "GROUP  TOPIC   PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  STATUS  OWNER",
        "audit  orders          0             100             100    0  -       -",
        "audit: lag 0; 1 partition; Empty, 0 members, coordinator 1",
        "",
        "GROUP    TOPIC   PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  STATUS  OWNER",
        "billing  orders          0              60             100   40  -       /10.0.0.1",
        "billing  orders          1              20              50   20  -       /10.0.0.2",
        "billing: lag 60, 67% of it in orders-0; 2 partitions; Stable, 2 members, coordinator 1, 10 lost unread",
    ]


def test_rebalances_are_counted_from_the_second_poll_on(kafka: InMemoryKafka) -> None:
    cluster_reader = ClusterReader("prod", kafka)
    ask_kafka(cluster_reader, ())
    kafka.put("billing", {A: 60, B: 20}, make_member(A, B))
    [line] = groups_json(ask_kafka(cluster_reader, ["billing"]))
    [billing] = json.loads(line)["groups"]
    assert billing["status"] is None
    assert {name: billing[name] for name in ("state", "members", "coordinator", "rebalances")} == {
        "state": "Stable",
        "members": 1,
        "coordinator": 1,
        "rebalances": 1,
    }


def test_the_table_shows_burrows_verdicts_next_to_kafkas_figures_of_the_same_groups(kafka: InMemoryKafka) -> None:
    with fake_burrow(simulated_group("billing"), simulated_group("unheard")) as told:
        told.after(60)
        burrows = ask(told.burrow, "prod", (), with_all_partitions=False)
        both = beside_burrow(burrows, ClusterReader("prod", kafka))
    head, billing, unheard, total = groups_table(both)
    assert head.split()[-6:] == ["STATE", "MEMBERS", "COORDINATOR", "REBALANCES", "LOST", "MARGIN"]
    assert (billing.split()[1], billing.split()[-6:]) == ("OK", ["Stable", "2", "1", "-", "10", "0"])
    assert unheard.split()[-8:] == ["not", "in", "Kafka", "-", "-", "-", "-", "-"]
    assert total.endswith("; 2 OK; 1 Stable, 1 not in Kafka")
    assert set(kafka.asked) == {"billing"}
    [line] = groups_json(both)
    assert [(each["group"], each["state"]) for each in json.loads(line)["groups"]] == [
        ("billing", "Stable"),
        ("unheard", "not in Kafka"),
    ]


def test_a_group_that_burrow_lists_and_kafka_does_not_is_named_with_burrows_delete_call(kafka: InMemoryKafka) -> None:
    with fake_burrow(*map(simulated_group, ("billing", "unheard", "burrow-prod"))) as told:
        told.after(60)
        burrows = ask(told.burrow, "prod", (), with_all_partitions=False)
        both = beside_burrow(burrows, ClusterReader("prod", kafka))
    assert burrows.notes == []
    assert "burrow-prod" in {each.consumer for each in burrows.verdicts}, "Burrow's own group is never in Kafka"
    assert not both.has_failed
    [note] = both.notes
    assert note == (
        "Kafka does not list unheard: deleted, on other brokers, or hidden by ACLs. Before Kafka 4, Burrow can miss a "
        f"deletion. To make it forget the group, run curl -X DELETE {told.server.url}/v3/kafka/prod/consumer/GROUP"
    )
    named = beside_burrow(replace(burrows, verdicts=burrows.verdicts[:1]), ClusterReader("prod", kafka))
    assert named.notes == []


def test_a_burrow_without_groups_needs_no_kafka() -> None:
    asked = GroupAnswers("prod", (), {})
    assert beside_burrow(asked, ClusterReader("prod", InMemoryKafka(down=ClusterError("r", "away")))) is asked


def test_a_group_that_kafka_does_not_list_is_named(kafka: InMemoryKafka) -> None:
    asked = ask_kafka(ClusterReader("prod", kafka), ["nobody"])
    assert (asked.has_failed, asked.notes) == (True, ["'nobody' is not shown: Kafka lists no such consumer group"])
    assert ask_kafka(ClusterReader("prod", InMemoryKafka()), ()).notes == ["Kafka has no group in prod"]


def test_groups_that_are_no_consumer_groups_are_counted_and_named_without_an_error(kafka: InMemoryKafka) -> None:
    kafka.others = {"share-orders", "share\x1b[2J"}
    asked = ask_kafka(ClusterReader("prod", kafka), ())
    assert not asked.has_failed
    assert asked.notes == ["2 groups not watched yet (share groups or other kinds): share\\x1b[2J, share-orders"]
    assert ask_kafka(ClusterReader("prod", kafka), ["billing"]).notes == []
    asked = ask_kafka(ClusterReader("prod", kafka), ["share-orders"])
    assert asked.has_failed
    assert asked.notes == [
        "'share-orders' is not shown: it is no consumer group but a share group or another kind, not watched yet"
    ]


def test_an_unreachable_kafka_is_reported_in_one_sentence() -> None:
    down = InMemoryKafka(down=ClusterError("_transport", "no broker answers"))
    with pytest.raises(NotDone, match=r"^Kafka: no broker answers$"):
        ask_kafka(ClusterReader("prod", down), ())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["groups"], "no source is given: give Burrow's address as --burrow, or brokers as --bootstrap-servers"),
        (
            ["lag", "--bootstrap-servers", "kafka"],
            (
                "--bootstrap-servers is 'kafka': it must be HOST:PORT, several separated by commas, "
                "with ports from 1 to 65535"
            ),
        ),
        (
            ["status", "--bootstrap-servers", "kafka:9092"],
            "Kafka alone gives no verdict, which needs several polls: give --burrow, or use karrot watch",
        ),
    ],
    ids=["no source", "a broker without a port", "a verdict from Kafka alone"],
)
def test_an_unclear_command_line_gives_one_sentence_and_exit_code_2(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(main, arguments, env={"KARROT_BURROW_URL": None})
    assert (result.exit_code, result.stderr) == (2, f"karrot: {said}\n")
