"""The skew experiment as one program: one group, one topic, and most of the lag in one of its three partitions.

It creates the topic, writes 1,000 messages of which every second goes to partition 1, reads as a consumer group until
it has seen each partition once, says what the lag must be, asks who else knows, and deletes topic and group.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

GROUP, TOPIC = "skewed-consumer-group", "skewed-topic"
PARTITIONS, MESSAGES, CROWDED = 3, 1000, 1
PATIENCE_S = 60

KARROT = (sys.executable, "-m", "karrot")
Properties = Mapping[str, str | int | float | bool]
Lags = dict[int, int]


def main() -> None:
    """Do the experiment, and print what everybody says of it."""
    asked = arguments()
    client = {"bootstrap.servers": asked.bootstrap_servers, "log_level": 3}
    with topic(client, is_kept=asked.keep):
        if asked.burrow:  # it drops the commits of a topic that it has not measured
            until(lambda: len(log_ends(asked.burrow, asked.cluster)) == PARTITIONS, "Burrow knows the topic")
        produce(client)
        lags = {partition: end - position for partition, (position, end) in consume(client).items()}
        print(f"lag {sum(lags.values())}: " + ", ".join(f"{lag} in partition {number}" for number, lag in lags.items()))
        if asked.burrow:
            ask_burrow(asked.burrow, asked.cluster, lags)
        else:
            ask_kafka(asked.bootstrap_servers, asked.cluster, lags)


@contextmanager
def topic(client: Properties, *, is_kept: bool) -> Iterator[None]:
    """The topic, for as long as it is needed; the group that read it goes with it."""
    admin = AdminClient(dict(client))
    replicas = min(3, len(admin.list_topics(timeout=10).brokers))
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, replicas)])[TOPIC].result(30)
    until(lambda: has_leaders(admin), f"{TOPIC} has its leaders")
    print(f"created {TOPIC} with {PARTITIONS} partitions")
    try:
        yield
    finally:
        if not is_kept:
            if GROUP in {each.group_id for each in admin.list_consumer_groups().result(30).valid}:
                admin.delete_consumer_groups([GROUP])[GROUP].result(30)
            admin.delete_topics([TOPIC])[TOPIC].result(30)
            print(f"deleted {TOPIC} and {GROUP}")


def has_leaders(admin: AdminClient) -> bool:
    """Whether every partition can be written to."""
    partitions = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
    return len(partitions) == PARTITIONS and all(each.leader >= 0 for each in partitions.values())


def produce(client: Properties) -> None:
    """Every second message to one partition, the others in turn. Small batches, so that a reader sees them in turn."""
    producer = Producer({**client, "batch.num.messages": 10})
    others = [number for number in range(PARTITIONS) if number != CROWDED]
    for number in range(MESSAGES):
        partition = CROWDED if number % 2 == 0 else others[number // 2 % len(others)]
        producer.produce(TOPIC, str(number).encode(), partition=partition)
    if producer.flush(30):
        sys.exit("not every message was written")
    print(f"wrote {MESSAGES} messages, every second one to partition {CROWDED}")


def consume(client: Properties) -> dict[int, tuple[int, int]]:
    """Read as the group until each partition was seen once, and commit: position and log end of each partition."""
    told = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    # A few messages of a partition at a time, or one may be read to its end before another is looked at.
    consumer = Consumer({**client, **told, "fetch.message.max.bytes": 1024, "queued.min.messages": 1})
    places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    ends = {at.partition: consumer.get_watermark_offsets(at, timeout=10)[1] for at in places}
    consumer.subscribe([TOPIC])
    read = dict.fromkeys(range(PARTITIONS), 0)
    while not all(read.values()):
        read[partition_of(consumer.poll(PATIENCE_S))] += 1
    positions = [TopicPartition(TOPIC, number, count) for number, count in read.items()]
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()
    print(f"read {sum(read.values())} messages as {GROUP}, until each partition was seen")
    return {number: (count, ends[number]) for number, count in read.items()}


def partition_of(message: Message | None) -> int:
    """Where a message was; there has to be one."""
    if message is None or message.error() or message.partition() is None:
        sys.exit(f"no message came: {message and message.error()}")
    return int(message.partition() or 0)


def ask_burrow(url: str, cluster: str, lags: Lags) -> None:
    """Burrow's three answers: which groups are there, how is this one, and what lag has each partition."""
    until(lambda: burrows_lag(url, cluster) == sum(lags.values()), "Burrow has read the commits")
    for question in ("groups", "status", "lag"):
        print(f"\n$ karrot {question}", flush=True)  # before what the command itself prints
        named = () if question == "groups" else ("--group", GROUP)
        subprocess.run([*KARROT, question, "--burrow", url, "--cluster", cluster, *named], check=True)  # noqa: S603


def ask_kafka(bootstrap_servers: str, cluster: str, lags: Lags) -> None:
    """What `karrot watch` makes of Kafka's own answers."""
    command = [*KARROT, "watch", "--bootstrap-servers", bootstrap_servers, "--cluster", cluster]
    command += ["--interval", "0.5", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:  # noqa: S603
        verdicts = (json.loads(line)["Event"] for line in watch.stdout or ())
        found = next((each["Result"] for each in verdicts if each["Group"] == GROUP), None)
        watch.terminate()
    if found is None:
        sys.exit("karrot watch said nothing")
    print(f"\n$ karrot watch\n{GROUP}: {found['status']}, lag {found['totallag']}")
    for each in found["partitions"]:
        print(f"{each['topic']}-{each['partition']}: {each['status']}, lag {each['current_lag']}")
    if {each["partition"]: each["current_lag"] for each in found["partitions"]} != lags:
        sys.exit("that is not the lag there is")


def burrows_lag(url: str, cluster: str) -> int | None:
    """The sum; none while Burrow has not read a commit of each partition."""
    result = answered(f"{url}/v3/kafka/{cluster}/consumer/{GROUP}/lag").get("status", {})
    has_read = [each["end"] is not None for each in result.get("partitions", ())]
    return int(result["totallag"]) if len(has_read) == PARTITIONS and all(has_read) else None


def log_ends(url: str, cluster: str) -> list[int]:
    """The partitions of the topic that Burrow has measured."""
    return list(answered(f"{url}/v3/kafka/{cluster}/topic/{TOPIC}").get("offsets", ()))


def answered(url: str) -> dict[str, Any]:
    """Burrow's JSON; with a 404 too."""
    try:
        with urlopen(url, timeout=5) as answer:  # noqa: S310 (the caller's Burrow)
            return dict(json.load(answer))
    except HTTPError as error:
        with error:
            return dict(json.load(error))


def until(true: Callable[[], bool], what: str) -> None:
    """Ask until it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            sys.exit(f"{what}: not so after {PATIENCE_S} s")
        time.sleep(0.2)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", default="localhost:9092", metavar="HOST:PORT,...")
    parser.add_argument("--cluster", default="local", metavar="NAME", help="its name, in Burrow if there is one")
    parser.add_argument("--burrow", metavar="URL", help="a Burrow to ask; without one karrot watch is asked")
    parser.add_argument("--keep", action="store_true", help="leave topic and group as they are then")
    return parser.parse_args()


if __name__ == "__main__":
    main()
