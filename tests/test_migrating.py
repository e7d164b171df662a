"""The examples in the migration guide work."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import promql_parser

from support.burrow.lag_events import make_event

GUIDE = (Path(__file__).resolve().parents[1] / "docs" / "migrating.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", GUIDE, re.MULTILINE | re.DOTALL)


def test_the_converted_reporter_writes_its_events(tmp_path: Path) -> None:
    [source] = blocks("python")
    names: dict[str, Any] = {}
    exec(source, names)
    reporter = names["build"](SimpleNamespace(settings={"path": str(tmp_path / "lines.txt")}))
    event = make_event()
    reporter.report([SimpleNamespace(event=event)])
    reporter.close()
    said = f"{event.cluster} {event.consumer} {event.status_text} {event.total_lag}\n"
    assert (tmp_path / "lines.txt").read_text() == said


def test_the_queries_are_valid_promql() -> None:
    inline = re.findall(r"`((?:(?:max|sum) by \([^`]*\) \(|\w+\(\w+\[|karrot_\w+\{\w+=)[^`]*)`", GUIDE)
    assert len(inline) > 5
    for query in (*blocks("promql"), *inline):
        promql_parser.parse(query)
