"""The rules give the expected alerts and series for tables of cases in Prometheus' own tool."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import yaml

from karrot.render.prometheus_rules import alert_rules, recording_rules
from support.prometheus.promtool import input_series, parse_rules, promtool

CASES = Path(__file__).resolve().parents[1] / "data" / "rules"
RULES = alert_rules(external_url="https://karrot", runbook_url="https://runbooks")
Rule = Mapping[str, Any]
ALERTS = {rule["alert"]: rule for rule in parse_rules(RULES)}


def test_every_alert_fires_when_it_should_and_is_silent_when_it_should_not(tmp_path: Path) -> None:
    # Each alert has its own file; otherwise every case would evaluate all alerts, minute by minute.
    files = []
    for name, rule in ALERTS.items():
        tests = [_alert_test(case) for case in _table("alerts.yaml") if case["alert"] == name]
        files.append(_written_test(tmp_path, name, [rule], tests))
    promtool("test", "rules", *files)


def test_a_mute_silences_every_alert_on_its_group_and_none_on_another_group(tmp_path: Path) -> None:
    on_groups = [case for case in _table("alerts.yaml") if {"cluster", "consumer"} <= case.get("fires", {}).keys()]
    assert len({case["alert"] for case in on_groups}) == 11
    files = []
    for name in {case["alert"] for case in on_groups}:
        tests = []
        for case in (case for case in on_groups if case["alert"] == name):
            key = case["fires"]
            told = 'karrot_consumer_muted{{cluster="{}", consumer="{}"}} 1x300'
            muted = [told.format(*(key[of].replace('"', r"\"") for of in ("cluster", "consumer")))]
            other = [told.format(key["cluster"], "another"), told.format("another", key["consumer"].replace('"', ""))]
            silent = {of: case[of] for of in ("alert", "case", "at")}
            tests.append(_alert_test({**silent, "series": case["series"] + _twice(muted)}))
            tests.append(_alert_test({**case, "series": case["series"] + other}))
        files.append(_written_test(tmp_path, name, [ALERTS[name]], tests))
    promtool("test", "rules", *files)


def test_two_scraped_replicas_with_the_same_series_fire_each_alert_once(tmp_path: Path) -> None:
    # Cases with instances of their own are about several targets already.
    cases = [case for case in _table("alerts.yaml") if not any("instance=" in line for line in case["series"])]
    assert {"KarrotConsumerError", "KarrotReporterBacklog", "KarrotStandbyBehind"} <= {each["alert"] for each in cases}
    files = []
    for name, rule in ALERTS.items():
        tests = [_alert_test({**case, "series": _twice(case["series"])}) for case in cases if case["alert"] == name]
        files.append(_written_test(tmp_path, name, [rule], tests))
    promtool("test", "rules", *files)


def test_the_owners_of_groups_are_the_label_team_of_their_alerts(tmp_path: Path) -> None:
    firing = [case for case in _table("alerts.yaml") if "fires" in case]
    consumers = sorted({case["fires"]["consumer"] for case in firing if "consumer" in case["fires"]})
    teams = {consumers[0]: 'the "first" {{ team }} ü', consumers[-1]: "second"}
    owners = [(re.compile(rf"^{re.escape(name)}$"), team) for name, team in teams.items()]
    owned = {rule["alert"]: rule for rule in parse_rules(alert_rules(owners=owners))}
    assert {rule["labels"]["severity"] for rule in owned.values()} == {"critical", "warning", "info"} & {
        rule["labels"]["severity"] for rule in ALERTS.values()
    }
    files: list[Path] = []
    for case in firing:
        test, rule = _alert_test(case), owned[case["alert"]]
        [expected] = test["alert_rule_test"][0]["exp_alerts"]
        team = teams.get(case["fires"].get("consumer", ""))
        labels = expected["exp_labels"] | ({"team": team} if team else {})
        annotations = {name: text for name, text in expected["exp_annotations"].items() if not name.endswith("_url")}
        test["alert_rule_test"][0]["exp_alerts"] = [{"exp_labels": labels, "exp_annotations": annotations}]
        texts = {name: text for name, text in rule["annotations"].items() if not name.endswith("_url")}
        rule = {**rule, "annotations": texts}
        files.append(_written_test(tmp_path, f"{len(files)}", [rule], [test]))
    assert {case["fires"].get("consumer") for case in firing} & set(teams)
    promtool("test", "rules", *files)


def test_the_table_has_a_firing_and_a_silent_case_for_every_alert() -> None:
    cases = _table("alerts.yaml")
    assert {case["alert"] for case in cases if "fires" in case} == set(ALERTS)
    assert {case["alert"] for case in cases if "fires" not in case} == set(ALERTS)


def test_every_recording_rule_gives_the_expected_series_from_one_replica_and_from_two(tmp_path: Path) -> None:
    table = _table("recordings.yaml")
    assert list(table["expected"]) == [rule["record"] for rule in parse_rules(recording_rules())]
    queries = [_query_test(name, samples) for name, samples in table["expected"].items()]
    tests = [
        {"interval": "1m", "input_series": input_series(series), "promql_expr_test": queries}
        for series in (table["series"], _twice(table["series"]))
    ]
    promtool("test", "rules", _written_test(tmp_path, "recordings", list(parse_rules(recording_rules())), tests))


@cache
def _table(name: str) -> Any:
    return yaml.safe_load((CASES / name).read_text(encoding="utf-8"))


def _twice(series: list[str]) -> list[str]:
    """The series of two replicas: each exports the same ones."""
    copies = []
    for line in series:
        name, brace, rest = line.partition("{")
        for number in "ab":
            if brace:
                copies.append(f'{name}{{pod="replica-{number}", {rest}')
            else:
                metric, values = line.split(" ", 1)
                copies.append(f'{metric}{{pod="replica-{number}"}} {values}')
    return copies


def _written_test(directory: Path, name: str, rules: list[Rule], tests: list[dict[str, Any]]) -> Path:
    """Write the test file next to the rules file that it names."""
    of_rules, of_tests = directory / f"{name}.yml", directory / f"{name}-test.yml"
    of_rules.write_text(yaml.safe_dump({"groups": [{"name": name, "rules": rules}]}), encoding="utf-8")
    test = {"rule_files": [of_rules.name], "evaluation_interval": "1m", "tests": tests}
    of_tests.write_text(yaml.safe_dump(test, width=1000), encoding="utf-8")
    return of_tests


def _alert_test(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return a case in promtool's form; a firing case expects exactly one alert, with all labels and annotations."""
    rule = ALERTS[case["alert"]]
    expected = [_alert(case, rule)] if "fires" in case else []
    return {
        "name": f"{case['alert']}: {case['case']}",
        "interval": "1m",
        "input_series": input_series(case["series"]),
        "alert_rule_test": [{"eval_time": case["at"], "alertname": case["alert"], "exp_alerts": expected}],
    }


def _alert(case: Mapping[str, Any], rule: Rule) -> dict[str, Any]:
    links = {name: _linked(text, case["fires"]) for name, text in rule["annotations"].items() if name.endswith("_url")}
    told = {"summary": case["summary"], "description": case["description"]}
    return {"exp_labels": {**case["fires"], **rule["labels"]}, "exp_annotations": {**told, **links}}


def _linked(text: str, labels: Mapping[str, str]) -> str:
    for name, value in labels.items():
        text = text.replace(f"{{{{ $labels.{name} | urlquery }}}}", quote_plus(value))
        text = text.replace(f"{{{{ $labels.{name} }}}}", value)
    return text


def _query_test(name: str, samples: list[tuple[dict[str, str], float]]) -> dict[str, Any]:
    expected = [{"labels": f"{name}{_written(labels)}", "value": value} for labels, value in samples]
    return {"expr": name, "eval_time": "60m", "exp_samples": expected}


def _written(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"
