"""The chart refuses values that Burrow would fail on or silently ignore, and says which value to write."""

from typing import Any

import pytest

from support.kubernetes.helm_charts import render_error

Object = dict[str, Any]

MAIL = {"className": "email", "templateOpen": "karrot.tmpl"}
POSTS = {"urlOpen": "http://other", "templateOpen": "karrot.tmpl"}


def config(**sections: Any) -> Object:
    return {"config": {"cluster": {"a": {"servers": ["kafka:9092"]}}, **sections}}


def profile(**keys: Any) -> Object:
    return {"clientProfile": {"p": keys}}


def notifier(name: str = "other", **keys: Any) -> Object:
    return {"notifier": {name: {**POSTS, **keys}}}


WIRED: Object = {"karrot": {"enabled": True, "url": "http://karrot"}}

REFUSED: dict[str, tuple[Object, str]] = {
    "no cluster": ({}, "config.cluster is empty: name a Kafka cluster and its addresses"),
    "a cluster with a space": (config(cluster={"a b": {"servers": ["k:1"]}}), "Burrow never evaluates a cluster"),
    "a name twice": (config(cluster={n: {"servers": ["k:1"]} for n in "aA"}), "reads names in lower case"),
    "an address with a scheme": (config(cluster={"a": {"servers": ["http://k:1"]}}), "HOST:PORT without a scheme"),
    "an address without a port": (config(zookeeper={"servers": ["zk"]}), "HOST:PORT without a scheme"),
    "an unknown cluster": (config(consumer={"c": {"cluster": "b"}}), '"b", which config.cluster does not have'),
    "an unknown profile": (config(consumer={"c": {"cluster": "a", "clientProfile": "b"}}), "known: default"),
    "an unknown sasl": (config(**profile(sasl="b")), "config.clientProfile.p.sasl is"),
    "an unknown key": (config(consumer={"a": {"groupList": ""}}), "'groupList' not allowed"),
    "the old allowlist": (config(consumer={"a": {"groupWhitelist": ".*"}}), "write groupAllowlist"),
    "the old denylist": (config(**notifier(groupBlacklist=".*")), "write groupDenylist"),
    "a password in an address": (config(**notifier(urlOpen="http://me:secret@x/")), "readable in a ConfigMap"),
    "a token in a header": (
        config(**notifier("my-hook", headers={"X-Api-Key": "s"})),
        "set BURROW_NOTIFIER_MY_HOOK_HEADERS",
    ),
    "a section that is null": ({"config": {"storage": None}}, "missing property 'storage'"),
    "no regular expression": (config(**notifier(groupAllowlist="(")), "missing closing )"),
    "offsets in ZooKeeper": (config(consumer={"a": {"className": "kafka_zk"}}), "write className: kafka"),
    "a version that is a number": (config(**profile(kafkaVersion=2.1)), "a quoted text with three numbers"),
    "sasl without a password": (config(sasl={"main": {"username": "u"}}), "BURROW_SASL_MAIN_PASSWORD"),
    "a key that Burrow does not read": (config(sasl={"s": {"algorithm": "PLAIN"}}), "Burrow reads mechanism"),
    "iam without tls": (config(iam={"i": {"region": "r"}}, **profile(iam="i")), "needs tls, else Burrow stops"),
    "iam and sasl": (
        config(
            iam={"i": {"region": "r"}},
            sasl={"s": {"password": "p"}},
            tls={"t": {}},
            **profile(iam="i", sasl="s", tls="t"),
        ),
        "IAM is a kind of SASL",
    ),
    "a certificate without an authority": (
        config(tls={"t": {"certFile": "/c", "keyFile": "/k"}}, **profile(tls="t")),
        "sends Kafka no certificate",
    ),
    "a certificate without its key": (
        config(tls={"t": {"caFile": "/a", "certFile": "/c"}}),
        "both certFile and keyFile",
    ),
    "a relative file of no Secret": (config(tls={"t": {"caFile": "ca.crt"}}), "config.tls.t.existingSecret"),
    "an API with TLS and no certificate": (
        config(httpserver={"default": {"tls": "t"}}, tls={"t": {"caFile": "/a"}}),
        "config.httpserver.default.tls needs certFile and keyFile",
    ),
    "a ZooKeeper with TLS and no authority": (
        config(zookeeper={"servers": ["zk:2281"], "tls": "t"}, tls={"t": {}}),
        "config.zookeeper.tls needs caFile",
    ),
    "no template": (config(notifier={"n": {"urlOpen": "http://a"}}), "templateOpen is missing"),
    "a template that is not there": (
        config(**notifier(templateOpen="b.tmpl")),
        'is "b.tmpl", which templates does not',
    ),
    "no address": (config(notifier={"n": {"templateOpen": "karrot.tmpl"}}), "urlOpen is missing"),
    "close without an address": (config(**notifier(sendClose=True)), "needs urlClose and templateClose"),
    "a time with a unit": (config(**notifier(timeout="5s")), 'Burrow reads "5s" as 158 years'),
    "a notifier without ZooKeeper": (
        {**config(notifier={"n": MAIL}), "zookeeper": {"enabled": False}},
        "a notifier needs ZooKeeper, even if Kafka runs without it",
    ),
    "a token that all can read": (config(**notifier(headers={"authorization": "x"})), "BURROW_NOTIFIER_OTHER_HEADERS"),
    "no address of Karrot": ({**config(), "karrot": {"enabled": True}}, "karrot.enabled needs karrot.url"),
    "credentials from nowhere": (
        {**config(), "karrot": {**WIRED["karrot"], "auth": {"type": "bearer"}}},
        "karrot.auth.type bearer needs karrot.auth.existingSecret",
    ),
    "two that post to Karrot": ({**config(**notifier(urlOpen="http://k/burrow")), **WIRED}, "name the notifier karrot"),
    "once for Karrot": ({**config(notifier={"karrot": {"sendOnce": True}}), **WIRED}, "sendOnce hides every change"),
    "a password without a variable": (
        config(sasl={"é": {"password": "p"}}),
        "its name may have letters, digits, dots, hyphens and underscores",
    ),
    "an old Burrow": (
        {**config(), "image": {"tag": "1.3.3"}},
        "image.tag is 1.3.3: a Burrow before 1.3.5 knows neither",
    ),
}


@pytest.mark.parametrize(("values", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_value_is_refused_with_a_sentence(values: Object, sentence: str) -> None:
    assert sentence in render_error("burrow", values)
