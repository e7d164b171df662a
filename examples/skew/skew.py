"""Makes a consumer group with most of its lag on one of three partitions, and checks what Burrow or Karrot reports.

It creates the topic and writes 1,000 messages, every second one to partition 1. It reads as a consumer group until it
has seen each partition once. It prints the expected lag, asks Burrow or Karrot for the lag, and deletes the topic and
the group.
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
    """Run the experiment, and print the expected and the reported lag."""
    given = arguments()
    client = {"bootstrap.servers": given.bootstrap_servers, "log_level": 3}
    with topic(client, is_kept=given.keep):
        if given.burrow:  # Burrow drops commits on a topic until it has read its log end offsets
            until(lambda: len(log_ends(given.burrow, given.cluster)) == PARTITIONS, "Burrow knows the topic")
        produce(client)
        lags = {partition: end - position for partition, (position, end) in consume(client).items()}
        print(f"lag {sum(lags.values())}: " + ", ".join(f"{lag} in partition {number}" for number, lag in lags.items()))
        if given.burrow:
            ask_burrow(given.burrow, given.cluster, lags)
        else:
            ask_kafka(given.bootstrap_servers, given.cluster, lags)


@contextmanager
def topic(client: Properties, *, is_kept: bool) -> Iterator[None]:
    """Create the topic; at the end, delete the topic and the group that read it."""
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
    """Whether every partition of the topic has a leader."""
    partitions = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
    return len(partitions) == PARTITIONS and all(each.leader >= 0 for each in partitions.values())


def produce(client: Properties) -> None:
    """Write every second message to one partition, and the rest to the others in turn.

    The batches are small, so that a reader sees all partitions in turn.
    """
    producer = Producer({**client, "batch.num.messages": 10})
    others = [number for number in range(PARTITIONS) if number != CROWDED]
    for number in range(MESSAGES):
        partition = CROWDED if number % 2 == 0 else others[number // 2 % len(others)]
        producer.produce(TOPIC, str(number).encode(), partition=partition)
    if producer.flush(30):
        sys.exit("not every message was written")
    print(f"wrote {MESSAGES} messages, every second one to partition {CROWDED}")


def consume(client: Properties) -> dict[int, tuple[int, int]]:
    """Read as the group until each partition was seen once, and commit. Return each partition's offset and log end."""
    options = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    # Fetch a few messages at a time. Otherwise the consumer may read one partition to its end before the next.
    consumer = Consumer({**client, **options, "fetch.message.max.bytes": 1024, "queued.min.messages": 1})
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
    """The partition of a message. Exits if there is no message."""
    if message is None or message.error() or message.partition() is None:
        sys.exit(f"no message came: {message and message.error()}")
    return int(message.partition() or 0)


def ask_burrow(url: str, cluster: str, lags: Lags) -> None:
    """Print Burrow's answers to `karrot groups`, `karrot status` and `karrot lag`."""
    until(lambda: burrows_lag(url, cluster) == sum(lags.values()), "Burrow has read the commits")
    for question in ("groups", "status", "lag"):
        print(f"\n$ karrot {question}", flush=True)  # so that it comes before the output of the command
        named = () if question == "groups" else ("--group", GROUP)
        subprocess.run([*KARROT, question, "--burrow", url, "--cluster", cluster, *named], check=True)  # noqa: S603


def ask_kafka(bootstrap_servers: str, cluster: str, lags: Lags) -> None:
    """Print the first verdict of `karrot watch` on the group. Exits if its lag is not the expected one."""
    command = [*KARROT, "watch", "--bootstrap-servers", bootstrap_servers, "--cluster", cluster]
    command += ["--every", "0.5", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:  # noqa: S603
        verdicts = (json.loads(line)["Event"] for line in watch.stdout or ())
        found = next((each["Result"] for each in verdicts if each["Group"] == GROUP), None)
        watch.terminate()
    if found is None:
        sys.exit(f"karrot watch ended without a verdict on {GROUP}")
    print(f"\n$ karrot watch\n{GROUP}: {found['status']}, lag {found['totallag']}")
    for each in found["partitions"]:
        print(f"{each['topic']}-{each['partition']}: {each['status']}, lag {each['current_lag']}")
    if {each["partition"]: each["current_lag"] for each in found["partitions"]} != lags:
        sys.exit(f"karrot watch reports another lag than the expected one: {lags}")


def burrows_lag(url: str, cluster: str) -> int | None:
    """The total lag in Burrow; ``None`` until Burrow has read a commit on each partition."""
    result = answered(f"{url}/v3/kafka/{cluster}/consumer/{GROUP}/lag").get("status", {})
    has_read = [each["end"] is not None for each in result.get("partitions", ())]
    return int(result["totallag"]) if len(has_read) == PARTITIONS and all(has_read) else None


def log_ends(url: str, cluster: str) -> list[int]:
    """The log end offsets of the topic that Burrow knows."""
    return list(answered(f"{url}/v3/kafka/{cluster}/topic/{TOPIC}").get("offsets", ()))


def answered(url: str) -> dict[str, Any]:
    """Burrow's JSON, also from a 404."""
    try:
        with urlopen(url, timeout=5) as answer:  # noqa: S310 (the caller's Burrow)
            return dict(json.load(answer))
    except HTTPError as error:
        with error:
            return dict(json.load(error))


def until(true: Callable[[], bool], what: str) -> None:
    """Wait until ``true()`` holds. Exits after ``PATIENCE_S`` seconds."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            sys.exit(f"gave up after {PATIENCE_S} s, waiting until {what}")
        time.sleep(0.2)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", default="localhost:9092", metavar="HOST:PORT,...")
    parser.add_argument(
        "--cluster", default="local", metavar="NAME", help="name of the cluster; with --burrow, as Burrow calls it"
    )
    parser.add_argument("--burrow", metavar="URL", help="Burrow's address; without it, use karrot watch")
    parser.add_argument("--keep", action="store_true", help="do not delete the topic and the group")
    return parser.parse_args()


if __name__ == "__main__":
    main()
