"""Renders the files of alert rules and recording rules for Prometheus, from the chart's templates."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import yaml

from karrot.render import validation
from karrot.render.jinja_templates import templates_dir
from karrot.settings import types

_NAME = re.compile(r"<<(\w+)>>")
_NUMBER = r"[0-9]{1,12}(\.[0-9]{1,9})?", "a number, not below 0"
_DURATION = (
    r"(?=[0-9]*[1-9])([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?",
    "a duration such as 90s, 5m or 1h30m",
)

Threshold = int | float | str


def alert_rules(
    changed: Mapping[str, str] = MappingProxyType({}),
    *,
    external_url: str | None = None,
    runbook_url: str | None = None,
    docs_url: str | None = None,
    owners: Sequence[tuple[re.Pattern[str], str]] = (),
) -> str:
    """Return a file of alert rules for Prometheus' ``rule_files``. The alerts do not need the recording rules.

    ``changed`` has the changed thresholds as the user typed them. A threshold must be a number if its default is a
    number, otherwise a Prometheus duration. ``external_url`` is Karrot's address in a browser. Below ``runbook_url``,
    each alert has a page with the alert's name. Without ``runbook_url``, alerts link to the runbooks that Karrot serves
    below ``external_url``. Without both URLs, alerts link to the runbooks below ``docs_url``. Lines with an unknown
    address are left out. ``owners``, patterns and their teams, become the label ``team`` of the alerts on groups.
    Raises `ValueError` with one message per line.
    """
    validation.refuse(_problems(changed, {"--external-url": external_url, "--runbook-url": runbook_url}))
    above = external_url or docs_url
    runbooks = runbook_url or (above and f"{above.rstrip('/')}/runbooks")
    known = {**thresholds(), **changed, "runbookUrl": runbooks, "externalUrl": external_url}
    lines = (
        line
        for line in _source("alerts.yaml").splitlines(keepends=True)
        if all(known[each] for each in _NAME.findall(line) if each.endswith("Url"))
    )
    rules = _NAME.sub(lambda found: str(known[found[1]]).rstrip("/"), "".join(lines))
    quoted = partial(json.dumps, ensure_ascii=False)
    # Without a consumer or an owner, the template gives an empty label, which Prometheus drops.
    tests = (f"match {quoted(pattern.pattern)} . }}}}{{{{ {quoted(team)} }}}}{{{{ " for pattern, team in owners)
    team = f"{{{{ with $labels.consumer }}}}{{{{ if {'else if '.join(tests)}end }}}}{{{{ end }}}}"
    labels = r"(?m)^( +)severity: .*\n"
    return re.sub(labels, lambda found: f"{found[0]}{found[1]}team: {quoted(team)}\n", rules) if owners else rules


def recording_rules() -> str:
    """Return a file of recording rules for Prometheus' ``rule_files``. The rules have no thresholds."""
    return _source("recordings.yaml")


def thresholds() -> dict[str, Threshold]:
    read: dict[str, Threshold] = yaml.safe_load(_source("thresholds.yaml"))
    return read


def _source(name: str) -> str:
    return (templates_dir() / "prometheus" / name).read_text(encoding="utf-8")


def _problems(changed: Mapping[str, str], addresses: Mapping[str, str | None]) -> Iterator[str]:
    defaults = thresholds()
    for name, text in changed.items():
        if name not in defaults:
            yield f"--set {types.quoted(name)} is not a threshold; the thresholds are {', '.join(defaults)}"
        else:
            pattern, allowed = _DURATION if isinstance(defaults[name], str) else _NUMBER
            yield from validation.matching(f"--set {name}", text, pattern, allowed)
    for option, address in addresses.items():
        if address:
            yield from validation.of_kind(types.url, option, address)
