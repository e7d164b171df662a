"""The files of bridging rules between Karrot's series and other tools'. ``tests/e2e/test_migrating.py`` runs them."""

import re
from pathlib import Path

import pytest

from support.prometheus.bridging_rules import BRIDGED_TOOLS, bridging_rules
from support.prometheus.exported_metrics import EXPORTED_METRICS
from support.prometheus.promtool import parse_rules, promtool, selected_metrics

ROOT = Path(__file__).resolve().parents[1]
MIGRATING = ROOT / "docs" / "migrating.md"


def test_promtool_finds_no_fault_in_any_bridging_rules(tmp_path: Path) -> None:
    files = []
    for tool in BRIDGED_TOOLS:
        for as_karrot in (False, True):
            files.append(tmp_path / f"{tool}-{as_karrot}.yml")
            files[-1].write_text(bridging_rules(tool, as_karrot=as_karrot), encoding="utf-8")
    said = promtool("check", "rules", "--lint=all", "--lint-fatal", *files)
    assert len(re.findall(r"SUCCESS: [1-9]\d* rules", said)) == len(files)


def test_every_tool_has_rules_in_both_directions() -> None:
    names = {name for tool in BRIDGED_TOOLS for name in (f"karrot-as-{tool}.yaml", f"{tool}-as-karrot.yaml")}
    assert {path.name for path in (ROOT / "examples" / "bridging-rules").iterdir()} == names
    assert len(BRIDGED_TOOLS) == 6


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
def test_the_guide_names_every_bridged_series_and_the_files_of_the_rules(tool: str) -> None:
    guide = MIGRATING.read_text(encoding="utf-8")
    for as_karrot, name in ((False, f"karrot-as-{tool}"), (True, f"{tool}-as-karrot")):
        assert f"[{name}.yaml](../examples/bridging-rules/{name}.yaml)" in guide
        for rule in parse_rules(bridging_rules(tool, as_karrot=as_karrot)):
            names = {rule["record"], *(metric for metric, _ in selected_metrics(rule["expr"]))}
            assert all(f"`{name}`" in guide for name in names), names
