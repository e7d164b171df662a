import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from karrot import telemetry
from karrot.burrow.payload import Code
from karrot.event import Source
from karrot.telemetry import METRICS, Metric

PACKAGE = Path(telemetry.__file__).parent


def test_every_metric_is_declared_once() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"karrot(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert re.fullmatch(r"[A-Z][^\n\\]+\.", metric.help)
    assert all(re.fullmatch(r"[a-z_]+", label) for label in metric.labels)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_only_counters_with_one_label_declare_its_values(metric: Metric) -> None:
    assert not metric.known or (metric.kind == "counter" and len(metric.labels) == 1)


def test_every_source_and_every_code_of_a_parser_is_declared() -> None:
    assert set(telemetry.EVENTS_ACCEPTED.known) == {source.value for source in Source}
    assert set(telemetry.EVENTS_REJECTED.known) >= set(get_args(Code))


def counts() -> Iterator[tuple[str, Metric, set[str]]]:
    """The calls that count a metric, by file and line, and the labels that they give."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for call in (each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.Call)):
            first = ast.unparse(call.args[0]) if call.args else ""
            found = re.fullmatch(r"telemetry\.([A-Z_]+)(\.name)?", first)
            metric = found and getattr(telemetry, found[1])
            if isinstance(metric, Metric) and metric.kind == "counter" and "count" in ast.unparse(call.func):
                wrapper = not ast.unparse(call.func).endswith(".count")  # it adds the reporter
                given = {each.arg for each in call.keywords} | ({"reporter"} & {*metric.labels} if wrapper else set())
                if None not in given:  # labels of a dictionary
                    yield f"{path.name}:{call.lineno}", metric, {str(each) for each in given}


def test_each_count_gives_the_labels_of_its_metric() -> None:
    found = list(counts())
    assert len(found) > 12
    assert [(at, metric.name) for at, metric, given in found if given != set(metric.labels)] == []


def test_no_name_but_a_deprecated_one_has_a_suffix_of_another_kind_of_metric() -> None:
    """OpenMetrics keeps these suffixes for the samples of histograms, summaries and counters."""
    reserved = ("_count", "_sum", "_bucket", "_created", "_total")
    odd = {each.name for each in METRICS if each.name.removesuffix("_total").endswith(reserved)}
    assert odd == {each.name for each in METRICS if each.now}


def test_a_deprecated_name_has_the_labels_and_the_kind_of_the_present_one() -> None:
    declared = {each.name: each for each in METRICS}
    for old in filter(lambda each: each.now, METRICS):
        now = declared[str(old.now)]
        assert (old.kind, old.labels, old.known, now.now) == (now.kind, now.labels, now.known, None)
        assert "cluster" not in old.labels, "metrics of groups keep their names"
