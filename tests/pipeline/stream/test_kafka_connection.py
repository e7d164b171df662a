from pathlib import Path

import pytest

from karrot.kafka.client_properties import PropertiesError
from karrot.pipeline.stream.kafka_read_options import KafkaConnection, StartingOffsets

_FILE = """\
# as for kafka-consumer-groups --command-config
bootstrap.servers=elsewhere:9092
group.id=mine
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="karrot" password="hunter2";
"""


def test_a_file_for_kafkas_own_tools_is_passed_to_the_connector(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(_FILE)
    brokers = KafkaConnection.of(["one:9092", "two:9092"], file)
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="karrot" password="hunter2";'
    assert brokers.options == {
        "kafka.bootstrap.servers": "one:9092,two:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": login,
    }
    assert "hunter2" not in repr(brokers)
    assert brokers.without_values(f"bad: {login}") == "bad: ***"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sasl.password=hunter2", "sasl.password is a property of librdkafka. Spark's connector needs the name of"),
        ("ssl.ca.location=/ca.pem", "ssl.truststore.location and ssl.truststore.type=PEM"),
        ("=hunter2", "a line has no property name: write name=value"),
    ],
)
def test_a_property_that_java_does_not_know_is_reported_without_its_value(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(PropertiesError, match=said) as refused:
        KafkaConnection.of(["one:9092"], file)
    assert "hunter2" not in str(refused.value)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PropertiesError, match="cannot be read: No such file"):
        KafkaConnection.of(["one:9092"], tmp_path / "none")


def test_a_topic_is_read_from_its_start_its_end_or_a_moment() -> None:
    assert StartingOffsets("latest").options == {"startingOffsets": "latest"}
    ms = {"startingTimestamp": "1795262400000", "startingOffsetsByTimestampStrategy": "latest"}
    assert [
        StartingOffsets(text).options for text in ("2026-11-21T12:00:00Z", "2026-11-21T13:00+01:00", "2026-11-21T12:00")
    ] == ([ms, ms, ms])
    with pytest.raises(ValueError, match="'yesterday' is not a start: write earliest, latest or"):
        StartingOffsets("yesterday")
