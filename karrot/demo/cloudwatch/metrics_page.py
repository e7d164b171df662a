"""Shows the stored metrics, to people as HTML and to programs as JSON."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from jinja2 import Environment

from karrot.demo.cloudwatch.metric_store import Call, MetricId, MetricStore, StoredDatum
from karrot.text import to_second

_LATEST_CALLS = 10
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="5">
<title>Fake CloudWatch</title>
<style>
  :root { color-scheme: light dark; }
  body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
  .wide { overflow-x: auto; }
  table { border-collapse: collapse; width: 100%; }
  th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8885; }
  td { vertical-align: baseline; }
  .time { white-space: nowrap; }
  .names { overflow-wrap: anywhere; min-width: 9rem; }
  .number { text-align: right; font-variant-numeric: tabular-nums; }
  td.refused { color: light-dark(#a40000, #ff8a80); }
  p.note { opacity: .75; }
</style>
<h1>Fake CloudWatch</h1>
<p class="note">Stands in for Amazon CloudWatch on this machine: takes PutMetricData, keeps to its limits,
sends nothing on. The same as <a href="/points">JSON</a>.</p>
<h2>Latest calls</h2>
<div class="wide"><table>
<thead><tr><th>At (UTC)<th class="number">Answer<th>Code<th class="number">Data<th class="number">Bytes
<th class="number">On the wire</thead>
{% for call in calls %}
<tr><td class="time">{{ call.at_ms | moment }}
<td class="number{% if call.code %} refused{% endif %}">{{ call.status or "none" }}
<td>{{ call.code or "kept" }}<td class="number">{{ call.data }}<td class="number">{{ call.bytes }}
<td class="number">{{ call.wire_bytes }}{{ " gzip" if call.gzip }}
{% endfor %}
</table></div>
{% for namespace in metrics | groupby("0.namespace") %}
<h2>{{ namespace.grouper }}: {{ namespace.list | length }} metrics</h2>
<div class="wide"><table>
<thead><tr><th>Metric<th>Dimensions<th class="number">Newest value<th>Unit<th>At (UTC)<th class="number">Points</thead>
{% for id, data in namespace.list %}{% set newest = data[-1] %}
<tr><td>{{ id.metric }}
<td class="names">{% for name, value in id.dimensions %}
{{ name }}=<wbr>{{ value }}{{ "" if loop.last else ", " }}{% endfor %}

<td class="number">{% for point in newest.points()[-1:] %}{{ "%.12g" | format(point.value) }}{% endfor %}
<td>{{ newest.unit or "" }}<td class="time">{{ newest.timestamp_ms | moment }}<td class="number">{{ data | length }}
{% endfor %}
</table></div>
{% else %}
<p>Nothing was kept yet.</p>
{% endfor %}
</html>
"""


def _moment(ms: int) -> str:
    return to_second(datetime.fromtimestamp(ms / 1000, UTC))


def _environment() -> Environment:
    environment = Environment(autoescape=True, trim_blocks=True)
    environment.filters["moment"] = _moment
    return environment


def render(store: MetricStore) -> str:
    """The page."""
    metrics = [(metric, data) for metric in store.metrics() if (data := store.data_of(metric))]
    calls = store.calls()[: -_LATEST_CALLS - 1 : -1]
    return _environment().from_string(_PAGE).render(metrics=metrics, calls=calls)


def points(store: MetricStore) -> dict[str, Any]:
    """Every metric with its points as ``[timestamp_ms, value]``, and how many calls were answered how."""
    return {
        "metrics": [_metric(metric, store.data_of(metric)) for metric in store.metrics()],
        "calls": _counted(store.calls()),
    }


def _metric(metric: MetricId, data: Sequence[StoredDatum]) -> dict[str, Any]:
    return {
        "namespace": metric.namespace,
        "metric": metric.metric,
        "dimensions": dict(metric.dimensions),
        "unit": data[-1].unit if data else None,
        "points": [list(point) for datum in data for point in datum.points()],
    }


def _counted(calls: Sequence[Call]) -> dict[str, int]:
    answers = [f"{call.status} {call.code}".strip() for call in calls]
    return {answer: answers.count(answer) for answer in sorted(set(answers))}
