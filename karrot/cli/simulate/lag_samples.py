"""Samples of a recorded lag: from a CSV file, from a running Karrot's events, or from the pipeline's tables."""

import json
from collections.abc import Mapping
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from karrot.autoscaling import LagSample
from karrot.autoscaling.csv_series import samples_of_csv
from karrot.cli.credentials import bearer, secret
from karrot.settings import types

if TYPE_CHECKING:
    from karrot.history import TimeRange

__all__ = ["samples_from_file", "samples_from_karrot", "samples_from_tables"]

_TIMEOUT_SECONDS = 10
_EVENTS = 1000


def samples_from_file(path: Path) -> list[LagSample]:
    """The samples of a CSV file. Raises `ValueError` with a sentence."""
    try:
        return samples_of_csv(path.read_text(encoding="utf-8-sig"))
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: {error}") from error


def samples_from_karrot(url: str, cluster: str | None, group: str) -> list[LagSample]:
    """The lags of the events that Karrot has of a group. Raises `ValueError` with a sentence."""
    address = types.checked(types.url, "--url", url)
    where = cluster or _cluster_of(address, group)
    asked = {"cluster": where, "consumer": group, "limit": _EVENTS}
    events = _get(address, "/api/v1/group", asked)["events"]
    return [
        LagSample(datetime.fromisoformat(event["observed_at"]).timestamp(), event["lag"])
        for event in events
        if event["observed_at"] is not None and event["lag"] is not None
    ]


def samples_from_tables(tables: Path, cluster: str | None, group: str, span: "TimeRange") -> list[LagSample]:
    """The last known lag of each minute, at its end. Raises `ValueError` with a sentence."""
    from karrot.cli.history.open_tables import answered

    with answered(tables, choose_by="--burrow-cluster") as history:
        series = history.timeseries(group, span, cluster=cluster)
        days = history.days()
    end_s = series.granularity.total_seconds()
    samples = [
        LagSample(each.at.timestamp() + end_s, each.values[0]) for each in series.points if each.values[0] is not None
    ]
    if not samples:
        asked = f"{span.start:%Y-%m-%d %H:%M} to {span.end:%Y-%m-%d %H:%M} UTC"
        raise ValueError(f"no lag of {types.quoted(group)} is known from {asked}; {tables} has {days[0]} to {days[-1]}")
    return samples


def _cluster_of(address: str, group: str) -> str:
    """The one cluster that has a group of this name."""
    found = _get(address, "/api/v1/groups", {"q": group, "limit": _EVENTS})["groups"]
    clusters: list[str] = sorted({each["cluster"] for each in found if each["consumer"] == group})
    if not clusters:
        raise ValueError(f"{address} knows no live group {types.quoted(group)}")
    if len(clusters) > 1:
        raise ValueError(f"{types.quoted(group)} is in {', '.join(clusters)}: choose by --burrow-cluster")
    return clusters[0]


def _get(address: str, path: str, asked: Mapping[str, object]) -> Any:
    """The JSON that Karrot answers. A KARROT_API_TOKEN (or _FILE) in the environment goes along."""
    request = Request(f"{address}{path}?{urlencode(asked)}", headers=_credentials())  # noqa: S310 (checked: http or https)
    try:
        with urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310 (as above)
            return json.load(response)
    except HTTPError as error:
        with error:  # it holds the connection
            raise ValueError(f"{address}{path}: {error.code} {_said(error)}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise ValueError(f"{address}{path}: {error}") from error


def _said(error: HTTPError) -> str:
    try:
        return str(json.loads(error.read()).get("detail", error.reason))
    except (ValueError, AttributeError):
        return str(error.reason)


def _credentials() -> dict[str, str]:
    token = secret("KARROT_API_TOKEN")
    return {} if token is None else bearer(token)
