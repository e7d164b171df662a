"""The burrow.toml that the chart renders: key by key what Burrow knows, and what `karrot burrow-config` prints."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from karrot.render import burrow_toml as printed
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
    """Every key with its section's kind and its value."""
    found = []
    for kind, section in toml.items():
        for module in [section] if kind in GLOBAL else section.values():
            found += [(kind, key, value) for key, value in module.items()]
    return found


def kebab(name: str) -> str:
    return "".join(f"-{each.lower()}" if each.isupper() else each for each in name)


@each_shape
def test_burrow_knows_every_key_and_reads_it_as_what_is_written(shape: Path) -> None:
    for kind, key, value in keys_of(tomllib.loads(text_of(render_values_file(shape)))):
        assert key in KNOWN[kind], f"[{kind}] {key}"
        assert isinstance(value, KINDS[KNOWN[kind][key]]), f"[{kind}] {key} = {value}"
        assert isinstance(value, bool) == (KNOWN[kind][key] == "flag"), f"[{kind}] {key} = {value}"


@each_shape
def test_a_shape_renders_the_burrow_toml_that_was_looked_at(shape: Path) -> None:
    """After a change that is meant: GOLDEN=write pytest tests/chart/test_burrow_config.py, and look at git diff."""
    golden = CHART / "golden" / f"{shape.stem}.toml"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(text_of(render_values_file(shape)))
    assert text_of(render_values_file(shape)) == golden.read_text()


def test_values_have_a_name_for_every_key_of_burrow_and_for_no_other() -> None:
    named = {kebab(kind): set(names.values()) for kind, names in NAMES.items()}
    elsewhere = {"general": {"env-var-prefix"}, "sasl": {"password"}, "notifier": {"password"}}
    assert named == {kind: set(keys) - elsewhere.get(kind, set()) for kind, keys in KNOWN.items()}


def test_the_schema_takes_the_names_of_keys_and_what_the_chart_makes_of_them() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    own = {"sasl": {"password", "passwordFrom"}, "notifier": {"password", "passwordFrom"}, "tls": {"existingSecret"}}
    fixed = {"general": {"pidfile"}, "storage": {"className"}, "evaluator": {"className"}}
    for kind, names in NAMES.items():
        described = schema["definitions"].get(kind) or schema["properties"]["config"]["properties"][kind]
        taken = {name for name, each in described["properties"].items() if not refused(each, schema)}
        assert taken - own.get(kind, set()) == set(names) - fixed.get(kind, set()), kind


def refused(described: Object, schema: Object) -> bool:
    """Whether all that is taken is a sentence."""
    reference = described.get("$ref", "").removeprefix("#/definitions/")
    constant = (schema["definitions"][reference] if reference else described).get("const", "")
    return " " in str(constant)


def test_the_chart_and_burrow_config_say_the_same() -> None:
    command = tomllib.loads(printed.burrow_config("http://karrot", template_path="/etc/burrow/templates/karrot.tmpl"))
    chart = burrow_toml({**KAFKA, "karrot": {"enabled": True, "url": "http://karrot/"}})
    assert chart["notifier"] == command["notifier"]
    assert (CHART / "files" / "karrot.tmpl").read_text() == printed.burrow_template()


def test_burrow_finds_what_a_section_names() -> None:
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


def test_a_cluster_without_a_reader_gets_one_and_names_are_in_lower_case() -> None:
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


def test_single_keys_of_the_wired_notifier_can_be_changed_also_to_nothing() -> None:
    changed = {"interval": 12, "sendClose": False, "threshold": 2, "groupDenylist": "", "headers": {"X-Scope": "a"}}
    values = {"config": {**KAFKA["config"], "notifier": {"karrot": changed}}, "karrot": {"enabled": True, "url": "k"}}
    notifier = burrow_toml(values)["notifier"]["karrot"]
    assert (notifier["interval"], notifier["send-interval"]) == (12, 8)
    assert notifier["send-close"] is False
    assert notifier["threshold"] == 2
    assert "group-denylist" not in notifier
    assert notifier["headers"] == {"Idempotency-Key": "1", "X-Scope": "a"}


def test_what_nobody_is_told_of_needs_no_zookeeper() -> None:
    toml = burrow_toml(KAFKA)
    assert "notifier" not in toml
    assert "zookeeper" not in toml


# YAML has no NUL, and lone surrogates are no text; DEL and the separators of lines are what TOML and JSON differ in.
texts = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=12)


@given(st.dictionaries(texts.filter(bool), texts, max_size=12), texts, st.integers(-(2**53), 2**53))
@settings(max_examples=12)
def test_any_text_comes_out_of_toml_as_it_went_in(extras: dict[str, str], name: str, number: int) -> None:
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


def test_every_shape_names_a_karrot_or_says_that_there_is_none() -> None:
    wired = {shape.stem for shape in values_files("burrow") if read_values(shape).get("karrot", {}).get("enabled")}
    assert {shape.stem for shape in values_files("burrow")} - wired == {"rest-only"}
