"""A burrow.toml that is written as values, by the rule of README.md, is taken or refused with what to write instead."""

import re
import tomllib
from pathlib import Path
from typing import Any

import helm_python as helm
import pytest

from support.kubernetes.helm_charts import render_chart, render_error

SHAPES = Path(__file__).parents[1] / "data" / "burrow-config" / "shapes"
OLD = "Burrow 1.3.5 and later stop at "
SAID: dict[str, list[str]] = {
    "as-shipped": [
        "leave pidfile out",
        "write maxSize",
        "write maxBackups",
        "write maxAge",
        "kafka_zk reads offsets that Kafka no longer keeps in ZooKeeper",
    ],
    "in-docker": [],
    "only-kafka": [],
    "old-names": [f"{OLD}groupWhitelist; write groupAllowlist", f"{OLD}groupBlacklist; write groupDenylist"],
    "two-consumers": [],
    "texts": ["'groupAlowlist' not allowed", "'minDistence' not allowed", "got string, want integer"],
    "slack": ['templateOpen is "chat.tmpl", which templates does not have'],
    "leftovers": [
        "an address is HOST:PORT without a scheme, such as kafka:9092",
        "write intervals, minDistance and expireGroup under config.storage",
        "write offsetRefresh in each section of config.cluster",
        f"{OLD}groupBlacklist; write groupDenylist",
    ],
    "secured": ["write caFile"],
}
"""The sentences for each shape of a burrow.toml. Without one, the chart takes the values."""


def _camel(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {re.sub("-(.)", lambda found: found[1].upper(), name.lower()): _camel(each) for name, each in value.items()}


def _values(shape: str) -> dict[str, Any]:
    config = _camel(tomllib.loads((SHAPES / f"{shape}.toml").read_text(encoding="utf-8")))
    return {"config": config | {kind: config[kind]["default"] for kind in ("storage", "evaluator") if kind in config}}


@pytest.mark.parametrize("shape", SAID)
def test_a_shape_of_burrow_toml_is_taken_or_refused_with_what_to_write(shape: str) -> None:
    if SAID[shape]:
        error = render_error("burrow", _values(shape))
        assert [each for each in SAID[shape] if each not in error] == [], error
    else:
        assert render_chart("burrow", _values(shape))


def test_every_shape_of_burrow_toml_is_tested() -> None:
    assert {each.stem for each in SHAPES.glob("*.toml")} == SAID.keys()


@pytest.mark.parametrize("kind", ["storage", "evaluator"])
def test_the_only_section_of_a_kind_has_no_name_in_the_values(kind: str) -> None:
    with pytest.raises(helm.HelmError, match=f"write its keys directly under config.{kind}"):
        render_chart("burrow", {"config": {kind: {"default": {}}}})
