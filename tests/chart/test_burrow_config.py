"""The chart renders a burrow.toml with keys that Burrow knows, equal to the output of `karrot burrow-config`."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from karrot import render as printed
from support.burrow.viper_config import Viper, module_config
from support.kubernetes.helm_charts import (
    CHARTS,
    only_object,
    read_values,
    render_chart,
    render_values_file,
    values_files,
)

CHART = CHARTS / "burrow"
KNOWN = json.loads((Path(__file__).parents[1] / "data" / "burrow-config" / "keys.json").read_text())
NAMES: dict[str, dict[str, str]] = yaml.safe_load((CHART / "files" / "keys.yaml").read_text())
KINDS = {"text": (str,), "number": (int, float), "flag": (bool,), "list": (list,), "table": (dict,)}
GLOBAL = {"general", "logging", "zookeeper"}
KAFKA = {"config": {"cluster": {"mycluster": {"servers": ["kafka:9092"]}}}}

Object = dict[str, Any]
each_shape = pytest.mark.parametrize("shape", values_files("burrow"), ids=lambda path: path.stem)


def text_of(manifests: Any) -> str:
    [deployment] = [each for each in manifests if each.kind == "Deployment"]
    return str(only_object(manifests, "ConfigMap", deployment.name)["data"]["burrow.toml"])


def burrow_toml(values: Object) -> Object:
    return tomllib.loads(text_of(render_chart("burrow", values)))


def keys_of(toml: Object) -> list[tuple[str, str, Any]]:
    """Return every key with its section's kind and its value."""
    found = []
    for kind, section in toml.items():
        for module in [section] if kind in GLOBAL else section.values():
            found += [(kind, key, value) for key, value in module.items()]
    return found


def kebab(name: str) -> str:
    return "".join(f"-{each.lower()}" if each.isupper() else each for each in name)


@each_shape
def test_burrow_knows_every_key_and_reads_the_written_value(shape: Path) -> None:
    for kind, key, value in keys_of(tomllib.loads(text_of(render_values_file(shape)))):
        assert key in KNOWN[kind], f"[{kind}] {key}"
        assert isinstance(value, KINDS[KNOWN[kind][key]]), f"[{kind}] {key} = {value}"
        assert isinstance(value, bool) == (KNOWN[kind][key] == "flag"), f"[{kind}] {key} = {value}"


@each_shape
def test_a_shape_renders_its_reviewed_burrow_toml(shape: Path) -> None:
    """After an intended change: run GOLDEN=write pytest tests/chart/test_burrow_config.py and review git diff."""
    golden = CHART / "golden" / f"{shape.stem}.toml"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(text_of(render_values_file(shape)))
    assert text_of(render_values_file(shape)) == golden.read_text()


def test_values_have_a_name_for_every_key_of_burrow_and_no_other_names() -> None:
    named = {kebab(kind): set(names.values()) for kind, names in NAMES.items()}
    elsewhere = {"general": {"env-var-prefix"}, "sasl": {"password"}, "notifier": {"password"}}
    assert named == {kind: set(keys) - elsewhere.get(kind, set()) for kind, keys in KNOWN.items()}


def test_the_schema_accepts_the_names_of_values_and_the_burrow_keys_made_of_them() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    own = {"sasl": {"password", "passwordFrom"}, "notifier": {"password", "passwordFrom"}, "tls": {"existingSecret"}}
    fixed = {"general": {"pidfile"}}
    for kind, names in NAMES.items():
        described = schema["definitions"].get(kind) or schema["properties"]["config"]["properties"][kind]
        taken = {name for name, each in described["properties"].items() if not refused(each, schema)}
        assert taken - own.get(kind, set()) == set(names) - fixed.get(kind, set()), kind


def refused(described: Object, schema: Object) -> bool:
    """Return whether the schema accepts nothing but a sentence here."""
    reference = described.get("$ref", "").removeprefix("#/definitions/")
    constant = (schema["definitions"][reference] if reference else described).get("const", "")
    return " " in str(constant)


def test_the_chart_and_burrow_config_give_the_same_section() -> None:
    command = tomllib.loads(printed.burrow_config("http://karrot", template_path="/etc/burrow/templates/karrot.tmpl"))
    chart = burrow_toml({**KAFKA, "karrot": {"enabled": True, "url": "http://karrot/"}})
    assert chart["notifier"] == command["notifier"]
    assert (CHART / "files" / "karrot.tmpl").read_text() == printed.burrow_template()


def test_burrow_finds_every_section_that_another_section_names() -> None:
    [shape] = [each for each in values_files("burrow") if each.stem == "sasl-tls"]
    viper = Viper(text_of(render_values_file(shape)))
    consumer = module_config(viper, "consumer", "prod")
    assert consumer is not None
    assert consumer["client-profile"] == {
        "name": "prod",
        "client-id": "burrow",
        "kafka-version": "3.9.0",
        "tls": {
            "name": "kafka",
            "noverify": False,
            "certfile": "",
            "keyfile": "",
            "cafile": "/etc/burrow/tls/kafka/ca.crt",
        },
        "sasl": {"name": "burrow", "handshake-first": True, "username": "burrow"},
    }


def test_a_cluster_without_a_consumer_section_gets_one_and_names_are_in_lower_case() -> None:
    toml = burrow_toml({"config": {"cluster": {"Prod": {"servers": ["kafka:9092"]}}}})
    assert list(toml["cluster"]) == ["prod"]
    assert toml["consumer"] == {
        "prod": {
            "class-name": "kafka",
            "cluster": "prod",
            "servers": ["kafka:9092"],
            "client-profile": "default",
            "group-allowlist": ".*",
        }
    }


def test_single_keys_of_the_built_in_notifier_can_be_changed_or_removed() -> None:
    changed = {"interval": 12, "sendClose": False, "threshold": 2, "groupDenylist": "", "headers": {"X-Scope": "a"}}
    values = {"config": {**KAFKA["config"], "notifier": {"karrot": changed}}, "karrot": {"enabled": True, "url": "k"}}
    notifier = burrow_toml(values)["notifier"]["karrot"]
    assert (notifier["interval"], notifier["send-interval"]) == (12, 8)
    assert notifier["send-close"] is False
    assert notifier["threshold"] == 2
    assert "group-denylist" not in notifier
    assert notifier["headers"] == {"Idempotency-Key": "1", "X-Scope": "a"}


# YAML has no NUL, and lone surrogates are not text. TOML and JSON differ in DEL and the line separators.
texts = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=12)


@given(st.dictionaries(texts.filter(bool), texts, max_size=12), texts, st.integers(-(2**53), 2**53))
@settings(max_examples=12)
def test_any_text_is_unchanged_after_a_round_trip_through_toml(extras: dict[str, str], name: str, number: int) -> None:
    name = "".join(f"{name}\"\\.'\x7f\u2028".split()).lower()
    values = {
        "config": {
            "cluster": {name: {"servers": ["kafka:9092"]}},
            "notifier": {"a.b": {"urlOpen": "http://a", "templateOpen": "/a", "extras": {**extras, "n": number}}},
        }
    }
    toml = burrow_toml(values)
    assert toml["notifier"]["a.b"]["extras"] == {**extras, "n": number}
    assert toml["consumer"] == {name: {**toml["consumer"][name], "cluster": name}}
    assert list(toml["cluster"]) == [name]


def test_every_shape_names_a_karrot_or_says_that_it_has_none() -> None:
    wired = {shape.stem for shape in values_files("burrow") if read_values(shape).get("karrot", {}).get("enabled")}
    assert {shape.stem for shape in values_files("burrow")} - wired == {"rest-only"}
