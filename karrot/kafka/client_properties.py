"""Reads Kafka client properties from a file, and adds addresses and IAM tokens for librdkafka.

A file for the option ``--command-config`` of Kafka's own tools works too, if librdkafka supports the properties in the
file.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_IAM = "AWS_MSK_IAM"
_SHORTEST_SECRET = 3
_DURATION = re.compile(r" \(after \d+ms in state .*\)$")


class PropertiesError(ValueError):
    """A file of properties cannot be used. The message does not contain the values of properties."""


class NoToken(ValueError):  # noqa: N818 (the name describes the state, not an error of Karrot)
    """AWS gives no token at present. ``reason`` is a word for the kind of the problem."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def translated(given: Mapping[str, str]) -> dict[str, str]:
    """Translate properties to librdkafka's names, and drop those that only Java needs. Raises `PropertiesError`.

    If a file has both names of a property, the value of Java's name counts.
    """
    own: dict[str, str] = {}
    of_java: dict[str, str] = {}
    for name, value in given.items():
        match name:
            case "sasl.jaas.config":
                of_java |= _login(value)
            case "sasl.oauthbearer.token.endpoint.url":
                of_java |= {"sasl.oauthbearer.method": "oidc", name: value}
            case "ssl.truststore.location":
                if given.get("ssl.truststore.type", "JKS").upper() != "PEM":
                    raise PropertiesError(
                        "ssl.truststore.location must be a PEM file (with ssl.truststore.type=PEM): librdkafka cannot "
                        "read a Java truststore. `keytool -exportcert -rfc` writes a PEM file"
                    )
                of_java["ssl.ca.location"] = value
            case "ssl.keystore.location":
                of_java |= _keystore(value, given.get("ssl.keystore.type", "JKS").upper())
            case "ssl.endpoint.identification.algorithm":
                of_java[name] = value or "none"
            case _ if name in _RENAMED:
                of_java[_RENAMED[name]] = value
            case _ if name not in _ONLY_JAVA and not name.endswith((".serializer", ".deserializer", ".class")):
                own[name] = value
    return own | of_java


def read(path: Path | None, understood: Callable[[Mapping[str, str]], dict[str, str]] = translated) -> dict[str, str]:
    """Read the properties in a file, by default for librdkafka; ``{}`` without a file. Raises `PropertiesError`."""
    if path is None:
        return {}
    try:
        return understood(parse(path.read_text(encoding="utf-8-sig")))  # Windows editors write a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PropertiesError(f"{path} cannot be read: {reason}") from error
    except PropertiesError as error:
        raise PropertiesError(f"{path}: {error}") from error


def parse(text: str) -> dict[str, str]:
    """Read ``name=value`` lines as Java's ``Properties`` does: with comments, continued lines and escapes."""
    import javaproperties  # noqa: PLC0415 - loads XML and HTTP of the standard library: only a file needs it

    try:
        found = javaproperties.loads(text)
    except javaproperties.InvalidUEscapeError as error:
        raise PropertiesError("a line has an escape \\u without four hexadecimal digits") from error
    if "" in found:
        raise PropertiesError("a line has no property name: write name=value")
    return {_encodable(name): _encodable(value) for name, value in found.items()}


def _encodable(text: str) -> str:
    """Replace halves of surrogate pairs, which an escape can write and UTF-8 cannot encode."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def without_duration(text: str) -> str:
    """Remove the duration from the client's error text, because the duration differs each time."""
    return _DURATION.sub("", text)


def without_values(text: str, properties: Mapping[str, str]) -> str:
    """Mask all values of properties in an error text, and names without a dot. Each of them may be a secret."""
    masked = [*properties.values(), *(name for name in properties if "." not in name)]
    for value in sorted(masked, key=len, reverse=True):
        if len(value) >= _SHORTEST_SECRET and value != _IAM:
            text = text.replace(value, "***")
    return text


_RENAMED = {
    "sasl.mechanism": "sasl.mechanisms",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_ONLY_JAVA = frozenset(
    {
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
        "security.providers",
        "ssl.keystore.type",
        "ssl.truststore.type",
        "ssl.truststore.password",
        "ssl.protocol",
        "ssl.enabled.protocols",
        "default.api.timeout.ms",
        "retries",
        "client.dns.lookup.timeout.ms",
        "auto.include.jmx.reporter",
        "metric.reporters",
    }
)
"""Properties that a file for Java may have and librdkafka does not need."""

_LOGINS = {
    "PlainLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "ScramLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "OAuthBearerLoginModule": {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    },
}


def _login(value: str) -> dict[str, str]:
    """Return the user and the password from ``sasl.jaas.config``. The login module determines the options' names."""
    module = value.split(maxsplit=1)[0].rpartition(".")[2] if value.split() else ""
    if module == "IAMLoginModule":
        return {"sasl.mechanisms": _IAM}
    if module not in _LOGINS:
        raise PropertiesError(
            "sasl.jaas.config has an unknown login module: use PlainLoginModule, ScramLoginModule, "
            "OAuthBearerLoginModule or IAMLoginModule"
        )
    found = re.findall(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;]+))', value)
    options = {name: re.sub(r"\\(.)", r"\1", quoted) if quoted else plain for name, quoted, plain in found}
    return {known: options[name] for name, known in _LOGINS[module].items() if name in options}


def _keystore(value: str, kind: str) -> dict[str, str]:
    if kind == "PEM":
        return {"ssl.certificate.location": value, "ssl.key.location": value}
    if kind == "PKCS12":
        return {"ssl.keystore.location": value}
    raise PropertiesError(
        "ssl.keystore.location must be a PKCS12 or PEM file (set ssl.keystore.type): librdkafka cannot read a Java "
        "keystore. `keytool -importkeystore -deststoretype pkcs12` writes a PKCS12 file"
    )


def complete(given: Mapping[str, str], bootstrap: Sequence[str]) -> dict[str, Any]:
    """Add the addresses to the properties. For Amazon MSK's IAM, also add a source of tokens.

    The source is called once, because librdkafka does not say why a token is missing. Raises `NoToken` if AWS gives no
    token, and `ValueError` if there is no Region.
    """
    properties: dict[str, Any] = {**given, "bootstrap.servers": ",".join(bootstrap)}
    if given.get("sasl.mechanisms") == _IAM:  # librdkafka does not know this mechanism
        from karrot.kafka.msk_iam_token import TokenSource  # noqa: PLC0415 - loads botocore: only sites with IAM need it

        properties["sasl.mechanisms"] = "OAUTHBEARER"
        properties["oauth_cb"] = tokens = TokenSource(bootstrap, time.time)
        tokens()
    return properties
