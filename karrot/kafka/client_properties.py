"""Reads Kafka client properties from a file, and adds addresses and IAM tokens for librdkafka.

A file for the option ``--command-config`` of Kafka's own tools works too, if librdkafka supports the properties in the
file.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

_IAM = "AWS_MSK_IAM"
_SHORTEST_SECRET = 3
_MOMENT = re.compile(r" \(after \d+ms in state .*\)$")


class PropertiesError(ValueError):
    """A file of properties cannot be used. The message does not contain the values of properties."""


class NoToken(ValueError):  # noqa: N818 (the name describes the state, not an error of Karrot)
    """AWS gives no token at present. ``reason`` is a word for the kind of the problem."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def translated(given: Mapping[str, str]) -> dict[str, str]:
    """The properties under librdkafka's names, without properties that only Java needs. Raises `PropertiesError`."""
    result = {name: value for name, value in given.items() if not _is_java(name)}
    for name, value in given.items():
        if _is_java(name):
            result |= dict(_TRANSLATIONS.get(name, _nothing)(value, given))
    return result


def read(path: Path | None, understood: Callable[[Mapping[str, str]], dict[str, str]] = translated) -> dict[str, str]:
    """Read the properties in a file, by default for librdkafka. No file has none. Raises `PropertiesError`."""
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
    """The text without halves of surrogate pairs, which an escape can write and UTF-8 cannot."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def without_moment(text: str) -> str:
    """An error text of the client without its duration, because the duration differs each time."""
    return _MOMENT.sub("", text)


def without_values(text: str, properties: Mapping[str, str]) -> str:
    """An error text without the values of properties, and names without a dot: any may be a secret."""
    masked = [*properties.values(), *(name for name in properties if "." not in name)]
    for value in sorted(masked, key=len, reverse=True):
        if len(value) >= _SHORTEST_SECRET and value != _IAM:
            text = text.replace(value, "***")
    return text


Pairs = Iterable[tuple[str, str]]


def _is_java(name: str) -> bool:
    return name in _TRANSLATIONS or name.endswith((".serializer", ".deserializer", ".class")) or name in _ONLY_JAVA


_ONLY_JAVA = frozenset(
    {
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


def _nothing(_value: str, _given: Mapping[str, str]) -> Pairs:
    return ()


def _login(value: str, _given: Mapping[str, str]) -> Pairs:
    """The user and the password from ``sasl.jaas.config``. Their names there depend on the login module."""
    module = value.split(maxsplit=1)[0].rpartition(".")[2] if value.split() else ""
    found = re.findall(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;]+))', value)
    options = {name: re.sub(r"\\(.)", r"\1", quoted) if quoted else plain for name, quoted, plain in found}
    match module:
        case "PlainLoginModule" | "ScramLoginModule":
            yield from _options(options, {"username": "sasl.username", "password": "sasl.password"})
        case "OAuthBearerLoginModule":
            names = {"clientId": "sasl.oauthbearer.client.id", "clientSecret": "sasl.oauthbearer.client.secret"}
            yield from _options(options, names | {"scope": "sasl.oauthbearer.scope"})
        case "IAMLoginModule":
            yield "sasl.mechanisms", _IAM
        case _:
            raise PropertiesError(
                "sasl.jaas.config has an unknown login module: use PlainLoginModule, ScramLoginModule, "
                "OAuthBearerLoginModule or IAMLoginModule"
            )


def _options(options: Mapping[str, str], names: Mapping[str, str]) -> Pairs:
    return ((names[name], value) for name, value in options.items() if name in names)


def _truststore(value: str, given: Mapping[str, str]) -> Pairs:
    if given.get("ssl.truststore.type", "JKS").upper() != "PEM":
        raise PropertiesError(
            "ssl.truststore.location must be a PEM file (with ssl.truststore.type=PEM): librdkafka cannot read a Java "
            "truststore. `keytool -exportcert -rfc` writes a PEM file"
        )
    yield "ssl.ca.location", value


def _keystore(value: str, given: Mapping[str, str]) -> Pairs:
    match given.get("ssl.keystore.type", "JKS").upper():
        case "PEM":
            yield "ssl.certificate.location", value
            yield "ssl.key.location", value
        case "PKCS12":
            yield "ssl.keystore.location", value
        case _:
            raise PropertiesError(
                "ssl.keystore.location must be a PKCS12 or PEM file (set ssl.keystore.type): librdkafka cannot read a "
                "Java keystore. `keytool -importkeystore -deststoretype pkcs12` writes a PKCS12 file"
            )


def _renamed(name: str) -> Callable[[str, Mapping[str, str]], Pairs]:
    return lambda value, _given: ((name, value),)


def _oidc(value: str, _given: Mapping[str, str]) -> Pairs:
    yield "sasl.oauthbearer.method", "oidc"
    yield "sasl.oauthbearer.token.endpoint.url", value


_TRANSLATIONS: Mapping[str, Callable[[str, Mapping[str, str]], Pairs]] = {
    "sasl.mechanism": _renamed("sasl.mechanisms"),
    "sasl.jaas.config": _login,
    "sasl.client.callback.handler.class": _nothing,
    "sasl.login.callback.handler.class": _nothing,
    "sasl.oauthbearer.token.endpoint.url": _oidc,
    "ssl.truststore.location": _truststore,
    "ssl.truststore.type": _nothing,
    "ssl.truststore.certificates": _renamed("ssl.ca.pem"),
    "ssl.keystore.location": _keystore,
    "ssl.keystore.type": _nothing,
    "ssl.keystore.certificate.chain": _renamed("ssl.certificate.pem"),
    "ssl.keystore.key": _renamed("ssl.key.pem"),
    "ssl.endpoint.identification.algorithm": lambda value, _given: (
        ("ssl.endpoint.identification.algorithm", value or "none"),
    ),
    "security.providers": _nothing,
}


def complete(given: Mapping[str, str], bootstrap: Sequence[str]) -> dict[str, Any]:
    """Add the addresses to the properties. If they ask for IAM of Amazon MSK, also add a source of tokens.

    The source is tried once, because librdkafka does not say why a token is missing. Raises `NoToken` if AWS gives no
    token, and `ValueError` if there is no Region.
    """
    properties: dict[str, Any] = {**given, "bootstrap.servers": ",".join(bootstrap)}
    if given.get("sasl.mechanisms") == _IAM:  # librdkafka does not know this mechanism
        from karrot.kafka.msk_iam_token import TokenSource  # noqa: PLC0415 - loads botocore: only sites with IAM need it

        properties["sasl.mechanisms"] = "OAUTHBEARER"
        properties["oauth_cb"] = tokens = TokenSource(bootstrap, time.time)
        tokens()
    return properties
