"""Builds the parts of a Grafana dashboard, in the classic JSON of schema 39. Grafana 10 and newer can read it.

Each function returns one panel without its position; `board` positions and numbers the panels.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Json = dict[str, Any]

GOOD, WATCH_OUT, BAD, OFF = "green", "orange", "red", "text"
STATUS_NAMES = {1: ("OK", GOOD), 2: ("WARN", WATCH_OUT), 3: ("ERR", BAD)}
NEVER = [{"type": "range", "options": {"from": 1e9, "to": None, "result": {"text": "never", "color": BAD}}}]
"""The mapping that shows a text in place of the seconds since an event that never occurred (its timestamp is 0)."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24


class Query(NamedTuple):
    """A PromQL query and the name of each of its series."""

    expr: str
    legend: str = ""


class Row(NamedTuple):
    """A heading and its panels, each with its width. A folded row sends no query until the user opens it."""

    title: str
    panels: Sequence[tuple[int, Json]]
    height: int = 8
    folded: bool = False


class Column(NamedTuple):
    """A column of a table: a query with one sample per row, and the column's format in Grafana."""

    title: str
    expr: str
    properties: Mapping[str, Any]


def above(*steps: tuple[float, str], below: str = GOOD) -> Json:
    """Return colours by value. Each value has the colour of the highest bound that it reaches."""
    bounds = [{"color": below, "value": None}, *({"color": colour, "value": value} for value, colour in steps)]
    return {"mode": "absolute", "steps": bounds}


def names_of(names: Mapping[int, tuple[str, str]]) -> list[Json]:
    """Return the mapping that shows a word and a colour in place of each number."""
    options = {str(value): {"text": text, "color": colour} for value, (text, colour) in names.items()}
    return [{"type": "value", "options": options}]


def stat(
    title: str,
    description: str,
    query: Query | str,
    *,
    unit: str = "short",
    thresholds: Json | None = None,
    text: str = "value",
    **field: Any,
) -> Json:
    """Return a panel with the present number of each series. Series that have ended are not shown."""
    return _panel("stat", title, description, [_target(_query(query), instant=True)]) | {
        "fieldConfig": _fields(unit, thresholds, decimals=field.pop("decimals", None), **field),
        "options": {
            "colorMode": "value",
            "graphMode": "none",
            "justifyMode": "auto",
            "orientation": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": text,
            "wideLayout": True,
        },
    }


def lines(
    title: str,
    description: str,
    *queries: Query,
    unit: str = "short",
    limit: float | None = None,
    stacked: bool = False,
    bars: bool = False,
    colours: Mapping[str, str] | None = None,
    names: Mapping[int, tuple[str, str]] | None = None,
    links: Sequence[Json] = (),
    negative: bool = False,
    wide: bool = False,
) -> Json:
    """Return a chart of series over time. A gap stays a gap.

    ``limit`` is drawn as a dashed line. ``colours`` has colours by the name of a series. ``names`` replace numbers.
    """
    custom = {
        "drawStyle": "bars" if bars else "line",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": 60 if bars else 30 if stacked else 8,
        "gradientMode": "none",
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "off" if limit is None else "dashed"},
    }
    bound = {} if negative else {"min": 0}
    fields = _fields(unit, above((limit, BAD), below="transparent") if limit else above(), custom=custom, **bound)
    fields["defaults"] |= {"links": list(links)} if links else {}
    fields["defaults"]["color"] = {"mode": "palette-classic"}
    fields["overrides"] = [_override(name, color=_fixed(colour)) for name, colour in (colours or {}).items()]
    fields["overrides"] += [
        _override(str(value), displayName=text, color=_fixed(colour)) for value, (text, colour) in (names or {}).items()
    ]
    # An increase within a step has no value if the step is shorter than two scrapes.
    steps = {"interval": "2m"} if any("$__interval]" in query.expr for query in queries) else {}
    return _panel("timeseries", title, description, [_target(query) for query in queries]) | {
        **steps,
        "fieldConfig": fields,
        "options": {
            "legend": {
                "displayMode": "table",
                "placement": "right" if wide else "bottom",
                "showLegend": True,
                "calcs": ["lastNotNull", "max"],
                "sortBy": "Last *",
                "sortDesc": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def timeline(
    title: str, description: str, query: Query, names: Mapping[int, tuple[str, str]], links: Sequence[Json] = ()
) -> Json:
    """Return a panel with a band for each series. The band's colour shows the value."""
    fields = _fields("none", above(below=OFF), mappings=names_of(names), custom={"fillOpacity": 80, "lineWidth": 0})
    fields["defaults"] |= {"links": list(links)} if links else {}
    return _panel("state-timeline", title, description, [_target(query)]) | {
        "fieldConfig": fields,
        "options": {
            "alignValue": "left",
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
            "mergeValues": True,
            "perPage": 20,
            "rowHeight": 0.85,
            "showValue": "never",
            "tooltip": {"mode": "single", "sort": "none"},
        },
    }


def table(
    title: str, description: str, columns: Sequence[Column], labels: Mapping[str, Column], sort: Iterable[str]
) -> Json:
    """Return a table with a row for each combination of ``labels``. The labels are columns too.

    ``sort`` names the columns to sort by. The largest value comes first.
    """
    letters = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", columns, strict=False))
    targets = [_target(Query(each.expr), instant=True, ref=letter) for letter, each in letters.items()]
    named = {f"Value #{letter}": each.title for letter, each in letters.items()}
    named |= {label: each.title for label, each in labels.items()}
    order = [columns[0].title, *(each.title for each in labels.values()), *(each.title for each in columns[1:])]
    places = {old: order.index(new) for old, new in named.items()}
    fields = _fields("short", above(below=OFF), custom={"align": "auto", "filterable": False})
    fields["overrides"] = [_override(each.title, **each.properties) for each in (*labels.values(), *columns)]
    return _panel("table", title, description, targets) | {
        "fieldConfig": fields,
        "options": {
            "cellHeight": "sm",
            "enablePagination": True,
            "footer": {"show": False, "reducer": [], "countRows": False, "enablePagination": True, "fields": ""},
            "showHeader": True,
            "sortBy": [{"displayName": name, "desc": True} for name in sort],
        },
        "transformations": [
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {"excludeByName": {"Time": True}, "indexByName": places, "renameByName": named},
            },
        ],
    }


def label_values(name: str, title: str, query: str, *, several: bool = True, everything: str = ".*") -> Json:
    """Return a variable with the values of a label within the shown time."""
    chosen = {"text": "All", "value": "$__all"}
    return {
        "name": name,
        "label": title,
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        "refresh": 2,
        "sort": 5,
        "multi": several,
        "includeAll": several,
    } | ({"allValue": everything, "current": chosen} if several else {"current": {}})


def choice(name: str, title: str, values: Sequence[int], chosen: int) -> Json:
    """Return a variable with a few numbers to choose from."""
    options = [{"text": str(value), "value": str(value), "selected": value == chosen} for value in values]
    return {
        "name": name,
        "label": title,
        "type": "custom",
        "query": ",".join(map(str, values)),
        "current": {"text": str(chosen), "value": str(chosen)},
        "options": options,
        "multi": False,
        "includeAll": False,
    }


def annotation(name: str, expr: str, colour: str, title: str, text: str, *, value_is_time: bool = False) -> Json:
    """Return marks on every chart, at each sample of the query. With ``value_is_time``, a value is the mark's time."""
    return {
        "name": name,
        "datasource": _SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": colour,
        "expr": expr,
        "step": "60s",
        "titleFormat": title,
        "textFormat": text,
        "tagKeys": "",
        "useValueForTime": value_is_time,
    }


def board(
    uid: str,
    title: str,
    description: str,
    *,
    variables: Sequence[Json],
    rows: Sequence[Row],
    annotations: Sequence[Json],
    hours: int,
) -> Json:
    """Return the whole dashboard, with a menu of the other dashboards."""
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["karrot", "kafka"],
        "editable": False,
        "graphTooltip": 1,
        "schemaVersion": 39,
        "version": 1,
        "refresh": "30s",
        "timezone": "",
        "time": {"from": f"now-{hours}h", "to": "now"},
        "links": [
            {
                "title": "Karrot",
                "type": "dashboards",
                "tags": ["karrot"],
                "asDropdown": True,
                "icon": "external link",
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
                "tooltip": "",
                "url": "",
            }
        ],
        "annotations": {"list": [_manual(), *annotations]},
        "templating": {"list": [_data_source(), *variables]},
        "panels": _laid_out(rows),
    }


def _laid_out(rows: Sequence[Row]) -> list[Json]:
    """Return all panels with their positions. The panels of a folded row are inside the row."""
    placed: list[Json] = []
    top, number = 0, 1
    for row in rows:
        heading = {"type": "row", "title": row.title, "collapsed": row.folded, "id": number, "panels": []}
        placed.append(heading | {"gridPos": {"x": 0, "y": top, "w": _WIDTH, "h": 1}})
        below, height = _flowing(row, top + 1, number + 1)
        (placed[-1]["panels"] if row.folded else placed).extend(below)
        top += 1 + (0 if row.folded else height)
        number += 1 + len(below)
    return placed


def _flowing(row: Row, top: int, number: int) -> tuple[list[Json], int]:
    """Return the panels of a row from left to right, in as many lines as necessary, and the total height."""
    placed: list[Json] = []
    left, line = 0, 0
    for offset, (width, panel) in enumerate(row.panels):
        if left + width > _WIDTH:
            left, line = 0, line + 1
        place = {"x": left, "y": top + line * row.height, "w": width, "h": row.height}
        placed.append({"id": number + offset, "gridPos": place} | panel)
        left += width
    return placed, (line + 1) * row.height


def _panel(kind: str, title: str, description: str, targets: list[Json]) -> Json:
    for target, letter in zip(targets, "ABCDEFGHIJKLMNOPQRSTUVWXYZ", strict=False):
        target.setdefault("refId", letter)
    return {"type": kind, "title": title, "description": description, "datasource": _SOURCE, "targets": targets}


def _query(query: Query | str) -> Query:
    return query if isinstance(query, Query) else Query(query)


def _target(query: Query, *, instant: bool = False, ref: str | None = None) -> Json:
    kind = {"instant": True, "range": False} if instant else {"instant": False, "range": True}
    told = {"datasource": _SOURCE, "editorMode": "code", "expr": query.expr, **kind}
    if ref is not None:
        return told | {"format": "table", "refId": ref}
    return told | {"legendFormat": query.legend or "__auto"}


def _fields(unit: str, thresholds: Json | None, **defaults: Any) -> Json:
    given = {name: value for name, value in defaults.items() if value is not None}
    colour = {"mode": "thresholds"}
    return {"defaults": {"unit": unit, "color": colour, "thresholds": thresholds or above(), **given}, "overrides": []}


def _override(name: str, **properties: Any) -> Json:
    told = [{"id": each.replace("__", "."), "value": value} for each, value in properties.items()]
    return {"matcher": {"id": "byName", "options": name}, "properties": told}


def _fixed(colour: str) -> Json:
    return {"mode": "fixed", "fixedColor": colour}


def _manual() -> Json:
    """Return the annotation for manual marks, which every dashboard has."""
    return {
        "builtIn": 1,
        "datasource": {"type": "grafana", "uid": "-- Grafana --"},
        "enable": True,
        "hide": True,
        "iconColor": "rgba(0, 211, 255, 1)",
        "name": "Annotations & Alerts",
        "type": "dashboard",
    }


def _data_source() -> Json:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "refresh": 1,
        "multi": False,
        "includeAll": False,
    }
