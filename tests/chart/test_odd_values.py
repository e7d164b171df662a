"""Names that look like numbers, are too long or are taken, and values that are null."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from support.kubernetes.helm_charts import CHARTS, only_object, render_chart, render_text

ODD = ["123", "null", "0x1f"]
BURROW: dict[str, Any] = {
    "karrot": {"enabled": True, "url": "http://karrot"},
    "config": {"cluster": {"prod": {"servers": ["kafka:9092"]}}},
    "networkPolicy": {"enabled": True},
}
VALUES: dict[str, dict[str, Any]] = {
    "burrow": BURROW,
    "karrot": yaml.safe_load((CHARTS / "karrot" / "ci" / "existing-secrets.yaml").read_text(encoding="utf-8")),
}
each_chart = pytest.mark.parametrize("name", sorted(VALUES))


def texts(body: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield every name, namespace and label; the API accepts only strings for them."""
    pairs = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for key, value in pairs:
        if isinstance(value, dict | list):
            yield from texts(value, (*path, key))
        elif key in {"name", "namespace", "secretName", "key"} or {"labels", "matchLabels"} & set(path):
            yield (*path, key), value


@each_chart
@pytest.mark.parametrize("odd", ODD)
def test_a_name_stays_a_text(name: str, odd: str) -> None:
    """A release or a namespace may be called 123. Unquoted, the API server would refuse every object."""
    for values in ({}, {"nameOverride": odd}, {"fullnameOverride": odd}, {"namespaceOverride": odd}):
        for each in render_chart(name, VALUES[name] | values, release=odd):
            assert [path for path, text in texts(each.body) if not isinstance(text, str)] == [], each.template


@each_chart
def test_a_long_name_is_cut_to_the_length_of_a_label(name: str) -> None:
    for each in render_chart(name, VALUES[name] | {"nameOverride": "n" * 80}):
        long = [path for path, text in texts(each.body) if {"labels", "matchLabels"} & set(path) and len(text) > 63]
        assert long == [], each.template


def test_custom_labels_never_hide_pods_from_their_deployment() -> None:
    taken = {"app.kubernetes.io/name": "mine", "helm.sh/chart": "mine"}
    values = BURROW | {"commonLabels": taken, "podLabels": taken, "labels": taken}
    spec = only_object(render_chart("burrow", values), "Deployment")["spec"]
    worn = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= worn.items()
    assert worn["helm.sh/chart"] == "mine"
    text = render_text("burrow", "deployment.yaml", values)
    assert text.count("app.kubernetes.io/name:") == 3, "a duplicate key must be refused"


def test_numbers_in_the_environment_are_written_in_full() -> None:
    values = BURROW | {"env": {"BURROW_STORAGE_DEFAULT_EXPIRE_GROUP": 1_000_000, "FLAG": True, "TEXT": "1e3"}}
    [container] = only_object(render_chart("burrow", values), "Deployment")["spec"]["template"]["spec"]["containers"]
    told = {each["name"]: each.get("value") for each in container["env"]}
    assert told["BURROW_STORAGE_DEFAULT_EXPIRE_GROUP"] == "1000000"
    assert (told["FLAG"], told["TEXT"]) == ("true", "1e3")


def test_sections_that_hold_only_comments_are_empty() -> None:
    sections = dict.fromkeys(["general", "consumer", "tls", "sasl", "iam", "notifier"])
    values = BURROW | {"config": BURROW["config"] | sections, "podLabels": None, "commonAnnotations": None}
    assert render_chart("burrow", values) == render_chart("burrow", BURROW)


def test_a_probe_can_be_removed() -> None:
    for name, values in VALUES.items():
        spec = only_object(render_chart(name, values | {"livenessProbe": None}), "Deployment")["spec"]["template"][
            "spec"
        ]
        assert {"startupProbe", "readinessProbe"} == {key for key in spec["containers"][0] if key.endswith("Probe")}


def test_egress_of_burrow_to_a_karrot_in_another_namespace_is_allowed() -> None:
    """Egress is allowed at any port: a policy applies to the pod's port, not to the Service's port in the URL."""
    policy = only_object(render_chart("burrow", BURROW | {"zookeeper": {"enabled": True}}), "NetworkPolicy", "burrow")[
        "spec"
    ]
    karrot = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "karrot"}}}
    assert {"to": [karrot]} in policy["egress"]
