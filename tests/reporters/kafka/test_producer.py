"""The real client writes to librdkafka's own mock brokers, or reports that none answers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from karrot.reporters.kafka.producer import KafkaTopic
from karrot.reporters.kafka.reporter import Failed, Message, NoTopic, Written
from karrot.settings.options import Kafka
from support.kafka.mock_brokers import mock_brokers, read_topic

pytestmark = pytest.mark.timeout(60)

TOO_LARGE = 65 * 2**20


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with mock_brokers(2) as address:
        yield address


def test_each_message_gets_its_partition_and_offset_and_a_key_keeps_its_partition(bootstrap: str) -> None:
    topic = KafkaTopic(Kafka(tuple(bootstrap.split(",")), "placed"))
    sent = [Message(f'["prod","{number % 5}"]'.encode(), f"{number}".encode()) for number in range(40)]
    outcomes = topic.send(sent)
    topic.close()
    written = [each for each in outcomes if isinstance(each, Written)]
    found = read_topic(bootstrap, "placed")
    assert sorted(found) == sorted((told.partition, *each) for told, each in zip(written, sent, strict=True))
    of_one = [value for _, key, value in found if key == b'["prod","3"]']
    assert of_one == [b"3", b"8", b"13", b"18", b"23", b"28", b"33", b"38"]


def test_only_a_too_large_message_is_refused_for_good(bootstrap: str) -> None:
    topic = KafkaTopic(Kafka((bootstrap,), "sized"))
    first, large, last = topic.send([Message(b"a", b"1"), Message(b"b", bytes(TOO_LARGE)), Message(b"c", b"3")])
    topic.close()
    assert isinstance(first, Written)
    assert isinstance(large, Failed)
    assert (large.reason, large.is_final) == ("msg_size_too_large", True)
    assert isinstance(last, Written)


def test_unreachable_brokers_are_reported_with_the_clients_error() -> None:
    topic = KafkaTopic(Kafka(("127.0.0.1:1",)), timeout_s=1)
    (outcome,) = topic.send([Message(b"a", b"1")])
    topic.close()
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.is_final) == ("_transport", False)
    assert "Connect to ipv4#127.0.0.1:1 failed" in outcome.text
    assert " in state " not in outcome.text  # no part of it differs each time


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sasl.mechanism=PLAIN\nsecurity.protocol=guess\nsasl.password=hunter22", "security.protocol"),
        ("no.such.property=hunter22", 'No such configuration property: "no.such.property"'),
    ],
    ids=["a wrong value", "an unknown property"],
)
def test_properties_that_the_client_refuses_are_reported_without_their_values(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(NoTopic, match=said) as raised:
        KafkaTopic(Kafka(("127.0.0.1:1",), properties=file))
    assert "hunter22" not in str(raised.value)


def test_the_files_setting_of_acknowledgements_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "client.properties"
    file.write_text("acks=0\nenable.idempotence=false\ndelivery.timeout.ms=1\nclient.id=mine\nlinger.ms=0")
    made: dict[str, object] = {}
    monkeypatch.setattr("karrot.reporters.kafka.producer.Producer", made.update)
    KafkaTopic(Kafka(("127.0.0.1:1",), properties=file))
    assert (made["acks"], made["enable.idempotence"], made["message.timeout.ms"]) == ("all", True, 4000)
    assert (made["client.id"], made["linger.ms"]) == ("mine", "0")
    assert "delivery.timeout.ms" not in made
