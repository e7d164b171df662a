"""The files of bridging rules between Karrot's series and other tools'. ``tests/e2e/test_migrating.py`` runs them."""

import re
from pathlib import Path

import pytest

from karrot.render.jinja_templates import templates_dir
from karrot.render.prometheus_rules import BRIDGED_TOOLS, bridging_rules
from support.prometheus.exported_metrics import EXPORTED_METRICS
from support.prometheus.promtool import parse_rules, promtool, selected_metrics

MIGRATING = Path(__file__).resolve().parents[2] / "docs" / "migrating.md"


def test_promtool_finds_no_fault_in_any_bridging_rules(tmp_path: Path) -> None:
    files = []
    for tool in BRIDGED_TOOLS:
        for as_karrot in (False, True):
            files.append(tmp_path / f"{tool}-{as_karrot}.yml")
            files[-1].write_text(bridging_rules(tool, as_karrot=as_karrot), encoding="utf-8")
    said = promtool("check", "rules", "--lint=all", "--lint-fatal", *files)
    assert len(re.findall(r"SUCCESS: [1-9]\d* rules", said)) == len(files)


def test_every_tool_that_has_rules_can_be_chosen() -> None:
    assert sorted(path.stem for path in (templates_dir() / "prometheus" / "bridges").iterdir()) == list(BRIDGED_TOOLS)


@pytest.mark.parametrize("tool", BRIDGED_TOOLS)
def test_a_bridging_rule_leads_to_the_other_side_and_never_reads_bridged_series(tool: str) -> None:
    for as_karrot, source in ((False, "karrot"), (True, tool)):
        rules = list(parse_rules(bridging_rules(tool, as_karrot=as_karrot)))
        assert len({rule["record"] for rule in rules}) == len(rules)
        for rule in rules:
            assert rule["labels"] == {"bridge": source}
            assert rule["expr"].count("bridge=") == rule["expr"].count('{bridge=""')
            read = {metric for metric, labels in selected_metrics(rule["expr"]) if "bridge" in labels}
            assert len(read) == 1
            ours = {rule["record"]} if as_karrot else read
            theirs = read if as_karrot else {rule["record"]}
            assert ours <= EXPORTED_METRICS.keys()
            assert not any(name.startswith("karrot_") for name in theirs)


@pytest.mark.parametrize("tool", BRIDGED_TOOLS)
def test_the_guide_names_every_bridged_series_and_the_commands_that_print_the_rules(tool: str) -> None:
    guide = MIGRATING.read_text(encoding="utf-8")
    assert f"karrot render bridging-rules {tool}" in guide
    for as_karrot in (False, True):
        for rule in parse_rules(bridging_rules(tool, as_karrot=as_karrot)):
            names = {rule["record"], *(metric for metric, _ in selected_metrics(rule["expr"]))}
            assert all(f"`{name}`" in guide for name in names), names
