"""Checks rules and queries with promtool, and lists the metrics that a query selects."""

import subprocess
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.processes import NotStarted


def promtool(*arguments: str | Path, text: bytes = b"") -> str:
    """Run promtool on files, or on a text on its standard input, and return the output; a failure fails the test.

    Without promtool the test is skipped.
    """
    binary = _binary() or pytest.skip("needs promtool (Debian: apt-get install prometheus), or PROMETHEUS_BIN")
    ended = subprocess.run([binary, *arguments], input=text, capture_output=True, check=False)
    assert ended.returncode == 0, (ended.stdout + ended.stderr).decode()
    return ended.stdout.decode()


@cache
def _binary() -> Path | None:
    try:
        found = Downloads(default_cache()).prometheus().with_name("promtool")
    except (NotStarted, OSError):
        return None
    return found if found.exists() else None


def parse_rules(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield every rule of a rules file."""
    for group in yaml.safe_load(text)["groups"]:
        yield from group["rules"]


def input_series(lines: Iterable[str]) -> list[dict[str, str]]:
    """Return ``name{labels} values`` as promtool's ``input_series``."""
    split = (line.rpartition("} ") if "}" in line else line.partition(" ") for line in lines)
    return [{"series": head + middle.strip(), "values": values} for head, middle, values in split]


def selected_metrics(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each metric that an expression selects, with its required labels."""
    yield from _selected(promql_parser.parse(expression), frozenset())


def _selected(node: Any, grouped: frozenset[str]) -> Iterator[tuple[str, set[str]]]:
    match node:
        case promql_parser.VectorSelector():
            named = {each.name: each.value for each in node.matchers.matchers}
            labels = (named.keys() | grouped) - {"__name__"}
            for name in [node.name] if node.name else named["__name__"].split("|"):
                yield name, set(labels)
        case promql_parser.MatrixSelector():
            yield from _selected(node.vector_selector, grouped)
        case promql_parser.AggregateExpr():
            by = node.modifier.labels if node.modifier else []
            yield from _selected(node.expr, grouped | set(by))
        case promql_parser.BinaryExpr():
            yield from _selected(node.lhs, grouped)
            yield from _selected(node.rhs, grouped)
        case promql_parser.Call():
            for argument in node.args:
                yield from _selected(argument, grouped)
        case promql_parser.SubqueryExpr() | promql_parser.ParenExpr() | promql_parser.UnaryExpr():
            yield from _selected(node.expr, grouped)
        case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            return
        case _:
            raise AssertionError(f"{type(node)} is not known here")
