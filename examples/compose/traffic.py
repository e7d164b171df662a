"""Runs a producer, or a consumer that is slower: with 50 and 30 messages a second the lag grows by 20 a second.

``python traffic.py produce --rate 50`` and ``python traffic.py consume --rate 30``, both with ``--group`` and
``--topic``; ``BOOTSTRAP`` in the environment names a broker. Needs confluent-kafka, which Karrot's image has.
"""

import argparse
import os
import signal
import threading

from confluent_kafka import Consumer, Producer

_TICK_S = 1.0


def main() -> None:
    """Produce or consume until SIGTERM or Ctrl-C, then flush or leave the group."""
    given = _arguments()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: threading.Thread(target=stop.set).start())
    bootstrap = os.environ.get("BOOTSTRAP", "localhost:9092")
    if given.role == "produce":
        produce(Producer({"bootstrap.servers": bootstrap}), given.topic, given.rate, stop)
    else:
        settings = {"bootstrap.servers": bootstrap, "group.id": given.group, "auto.offset.reset": "earliest"}
        consume(Consumer({**settings, "enable.auto.commit": False}), given.topic, given.rate, stop)


def produce(producer: Producer, topic: str, rate: int, stop: threading.Event) -> None:
    """Write ``rate`` messages a second."""
    while not stop.wait(_TICK_S):
        for _ in range(rate):
            producer.produce(topic, b"an order")
        producer.poll(0)
    producer.flush(10)


def consume(consumer: Consumer, topic: str, rate: int, stop: threading.Event) -> None:
    """Read at most ``rate`` messages a second, and commit their offsets."""
    consumer.subscribe([topic])
    while not stop.wait(_TICK_S):
        if any(message.error() is None for message in consumer.consume(rate, timeout=_TICK_S)):
            consumer.commit(asynchronous=True)
    consumer.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["produce", "consume"])
    parser.add_argument("--rate", type=int, required=True, help="messages per second")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--group", default="billing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
