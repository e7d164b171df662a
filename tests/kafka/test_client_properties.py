"""Kafka client properties are read from usual property files, with Java's names or librdkafka's names."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.kafka.client_properties import PropertiesError, parse, read, translated, without_values

SCRAM = """\
# for kafka-consumer-groups.sh --command-config
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="karrot" \\
  password="p@ss=word;\\\\"x";
ssl.truststore.location=/etc/kafka/ca.pem
ssl.truststore.type=PEM
"""
MSK_IAM = """\
security.protocol=SASL_SSL
sasl.mechanism=AWS_MSK_IAM
sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;
sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler
"""


def test_a_file_for_kafkas_own_tools_is_understood() -> None:
    assert translated(parse(SCRAM)) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "karrot",
        "sasl.password": 'p@ss=word;"x',
        "ssl.ca.location": "/etc/kafka/ca.pem",
    }


def test_librdkafkas_own_names_are_accepted() -> None:
    given = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "u",
        "socket.timeout.ms": "9",
    }
    assert translated(given) == given


def test_msk_iam_can_be_configured_with_javas_names() -> None:
    found = translated(parse(MSK_IAM))
    assert found == {"security.protocol": "SASL_SSL", "sasl.mechanisms": "AWS_MSK_IAM"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        ({"ssl.endpoint.identification.algorithm": "https"}, {"ssl.endpoint.identification.algorithm": "https"}),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/k.pem", "ssl.key.password": "x"},
            {"ssl.certificate.location": "/k.pem", "ssl.key.location": "/k.pem", "ssl.key.password": "x"},
        ),
        (
            {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/k.p12", "ssl.keystore.password": "x"},
            {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "x"},
        ),
        ({"ssl.truststore.certificates": "-----BEGIN"}, {"ssl.ca.pem": "-----BEGIN"}),
        (
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
                "sasl.jaas.config": 'x.y.OAuthBearerLoginModule required clientId="a" clientSecret="b" scope=s;',
            },
            {
                "sasl.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
                "sasl.oauthbearer.client.id": "a",
                "sasl.oauthbearer.client.secret": "b",
                "sasl.oauthbearer.scope": "s",
            },
        ),
        ({"key.deserializer": "x.StringDeserializer", "interceptor.classes.class": "y"}, {}),
    ],
    ids=[
        "no check of the host name",
        "a check of the host name",
        "a key store in PEM",
        "a key store in PKCS12",
        "certificates in the properties",
        "OAuth with a client secret",
        "properties that only Java has",
    ],
)
def test_javas_names_become_librdkafkas(given: dict[str, str], expected: dict[str, str]) -> None:
    assert translated(given) == expected


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"ssl.truststore.location": "/t.jks"}, "PEM"),
        ({"ssl.keystore.location": "/k.jks"}, "PKCS12"),
        ({"sasl.jaas.config": 'com.sun.Krb5LoginModule required password="hunter2";'}, "login module"),
    ],
    ids=["a trust store in JKS", "a key store in JKS", "a login module of Kerberos"],
)
def test_an_unsupported_property_is_reported_without_a_secret(given: dict[str, str], word: str) -> None:
    with pytest.raises(PropertiesError, match=word) as raised:
        translated(given)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a=b", {"a": "b"}, id="an equals sign"),
        pytest.param("a: b", {"a": "b"}, id="a colon"),
        pytest.param("a b", {"a": "b"}, id="a space"),
        pytest.param("  a = b = c ", {"a": "b = c "}, id="spaces around the value"),
        pytest.param("a", {"a": ""}, id="a name without a value"),
        pytest.param("! no\n# no\n\na=b", {"a": "b"}, id="comments and an empty line"),
        pytest.param("a\\=b=c\\\\d", {"a=b": "c\\d"}, id="escaped characters"),
        pytest.param("a=one \\\n   two", {"a": "one two"}, id="a line that continues"),
        pytest.param("a=\\u00e9\\t.", {"a": "é\t."}, id="escaped letters"),
        pytest.param("a=\\ud83d\\ude00", {"a": "😀"}, id="a surrogate pair"),
        pytest.param("a=\\ud83d", {"a": "\ufffd"}, id="half of a surrogate pair"),
        pytest.param("\fa\f=\fb", {"a": "b"}, id="form feeds are spaces"),
        pytest.param("# C:\\\na=b", {"a": "b"}, id="a comment does not continue"),
        pytest.param("a=one\\\n # two", {"a": "one# two"}, id="a continued line is no comment"),
        pytest.param(
            "a=b\\\\\r\nc=d\re=f\u2028g", {"a": "b\\", "c": "d", "e": "f\u2028g"}, id="line ends of every kind"
        ),
    ],
)
def test_lines_are_read_as_in_java(text: str, expected: dict[str, str]) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "word"), [("=hunter2", "no property name"), ("a=\\u12hunter2", "four hexadecimal digits")]
)
def test_a_line_that_java_refuses_is_reported_without_its_value(text: str, word: str) -> None:
    with pytest.raises(PropertiesError, match=word) as raised:
        parse(text)
    assert "hunter2" not in str(raised.value)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(PropertiesError):
        translated(parse(text))


def test_a_byte_order_mark_is_not_part_of_a_name(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\r\n", encoding="utf-8-sig")
    assert read(file) == {"security.protocol": "SSL"}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(PropertiesError, match="nowhere cannot be read: No such file"):
        read(tmp_path / "nowhere")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(PropertiesError, match="it is not UTF-8 text"):
        read(tmp_path / "binary")


def test_an_error_of_the_client_is_shown_without_values() -> None:
    said = 'Invalid value "hunter2" for configuration property "security.protocol"'
    assert without_values(said, {"security.protocol": "hunter2", "a": "x"}) == said.replace("hunter2", "***")
