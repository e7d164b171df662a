"""Known problems, alerts and runbooks refer to each other."""

import re
from pathlib import Path

from karrot.render import runbooks_dir
from karrot.render.prometheus_rules import alert_rules
from support.prometheus.promtool import parse_rules

ROOT = Path(__file__).resolve().parents[1]
ALERTS = {rule["alert"] for rule in parse_rules(alert_rules())}

ONLY_PROMETHEUS_SEES = {
    "KarrotClockAhead": "only the clock of Prometheus shows that the clock of Karrot is wrong",
    "KarrotConsumerNeverCatchesUp": "needs the catch-up time over some minutes",
    "KarrotConsumerNotCommitting": "compares two times of a group for longer than one verdict",
    "KarrotConsumerFlapping": "counts the incidents of an hour",
    "KarrotConsumerRebalancing": "counts the rebalances of an hour",
    "KarrotMessagesLost": "watch exports it, no page shows it",
    "KarrotRetentionRisk": "predicts by two hours of samples",
    "KarrotStandbyBehind": "the API shows the standbys, but only the alert judges them",
    "KarrotEvaluateBehind": "evaluate is another process, and its own port has its metrics and its health",
    "KarrotPipelineBehind": "the pipeline is another process, and its own port has its metrics",
}
"""Alerts on problems that neither a page nor the doctor reports, and the reasons."""


def test_each_other_alert_is_named_where_karrot_shows_the_problem_itself() -> None:
    places = [ROOT / "karrot" / "runbooks_and_remedies.py"]
    for folder in ("karrot/web", "karrot/doctor", "templates/web"):
        places += [path for path in (ROOT / folder).rglob("*.*") if path.suffix in {".py", ".html"}]
    named = {name for path in places for name in re.findall(r'"(Karrot[A-Z]\w+)"', path.read_text(encoding="utf-8"))}
    assert named == ALERTS - ONLY_PROMETHEUS_SEES.keys()


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert {path.stem for path in runbooks_dir().glob("*.md")} == ALERTS


def test_every_runbook_that_a_file_names_exists() -> None:
    named = {
        (name, str(path.relative_to(ROOT)))
        for folder in ("karrot", "templates", "docs", "tools", "examples", "helm")
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in {".py", ".html", ".json", ".yaml", ".md", ".tmpl"}
        for name in re.findall(r"runbooks?[ /](Karrot[A-Z]\w+)", path.read_text(encoding="utf-8"))
    }
    assert len(named) > len(ALERTS)
    assert sorted(each for each in named if each[0] not in ALERTS) == []
