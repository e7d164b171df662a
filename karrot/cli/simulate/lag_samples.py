"""Reads samples of a recorded lag from a CSV file, from a running Karrot, or from the pipeline's tables."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError

from karrot.autoscaling.arrival_rate import LagSample
from karrot.cli.auth_headers import bearer, secret
from karrot.http.pool import open_pool
from karrot.settings import types
from karrot.text import to_minute

if TYPE_CHECKING:
    from karrot.event import TimeRange
    from karrot.settings.storage_place import Place

_TIMEOUT_SECONDS = 10
_EVENTS = 1000
_MILLISECONDS_FROM = 1e11  # the year 5138 if in seconds, 1973 if in milliseconds
_TIME, _LAG, _RATE = range(3)


def samples_from_file(path: Path) -> list[LagSample]:
    """Read samples from a CSV file. Raises `ValueError` with a message for the user."""
    try:
        return samples_of_csv(path.read_text(encoding="utf-8-sig"))
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: {error}") from error


def samples_of_csv(text: str) -> list[LagSample]:
    """Read samples from the columns time and lag. An optional third column has the messages that arrived per second.

    A time is ISO 8601 (in UTC if it has no time zone), or epoch seconds or milliseconds. If the lag in the first line
    is not a number, this line is a heading. Lines without a lag are left out, because the lag is unknown. Raises
    `ValueError` with the number of a line that cannot be read.
    """
    samples = []
    for number, cells in enumerate(csv.reader(io.StringIO(text)), start=1):
        if not any(cells) or _is_heading(number, cells):
            continue
        try:
            sample = _sample([cell.strip() for cell in cells])
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
        if sample is not None:
            samples.append(sample)
    return samples


def samples_from_karrot(url: str, cluster: str | None, group: str) -> list[LagSample]:
    """Read the lags of a group from Karrot's events. Raises `ValueError` with a message for the user."""
    address = types.checked(types.url, "--karrot", url)
    where = cluster or _cluster_of(address, group)
    asked = {"cluster": where, "consumer": group, "limit": _EVENTS}
    events = _get(address, "/api/v1/group", asked)["events"]
    return [
        LagSample(datetime.fromisoformat(event["observed_at"]).timestamp(), event["lag"])
        for event in events
        if event["observed_at"] is not None and event["lag"] is not None
    ]


def samples_from_tables(tables: "Place", cluster: str | None, group: str, span: "TimeRange") -> list[LagSample]:
    """Read the last known lag of each minute, with the end of the minute as its time.

    Raises `ValueError` with a message for the user.
    """
    from karrot.cli.history.open_tables import answered

    with answered(tables, choose_by="--cluster") as history:
        series = history.timeseries(group, span, cluster=cluster)
        days = history.days()
    end_s = series.granularity.total_seconds()
    samples = [
        LagSample(each.at.timestamp() + end_s, each.values[0]) for each in series.points if each.values[0] is not None
    ]
    if not samples:
        asked = f"{to_minute(span.start)} to {to_minute(span.end)} UTC"
        raise ValueError(f"no lag of {types.quoted(group)} from {asked}; {tables} has {days[0]} to {days[-1]}")
    return samples


def _cluster_of(address: str, group: str) -> str:
    """Find the only cluster that has a group with this name."""
    found = _get(address, "/api/v1/groups", {"q": group, "limit": _EVENTS})["groups"]
    clusters: list[str] = sorted({each["cluster"] for each in found if each["consumer"] == group})
    if not clusters:
        raise ValueError(f"{address} has no live group {types.quoted(group)}")
    if len(clusters) > 1:
        raise ValueError(f"{types.quoted(group)} is in the clusters {', '.join(clusters)}: choose one with --cluster")
    return clusters[0]


def _get(address: str, path: str, asked: Mapping[str, object]) -> Any:
    """Get JSON from Karrot, with the token in KARROT_API_TOKEN (or KARROT_API_TOKEN_FILE)."""
    token = secret("KARROT_API_TOKEN")
    headers = {} if token is None else bearer(token)
    try:
        with open_pool(address, headers=headers, timeout_s=_TIMEOUT_SECONDS) as pool:
            answer = pool.request("GET", f"{address}{path}?{urlencode(asked)}")
    except HTTPError as error:
        raise ValueError(f"{address}{path}: {error}") from error
    if answer.status != HTTPStatus.OK:
        raise ValueError(f"{address}{path}: {answer.status} {_said(answer)}")
    try:
        return json.loads(answer.data)
    except ValueError as error:
        raise ValueError(f"{address}{path}: {error}") from error


def _said(answer: BaseHTTPResponse) -> str:
    if location := answer.get_redirect_location():
        return f"the answer is a redirect to {location}: give the address of Karrot itself"
    try:
        return str(json.loads(answer.data).get("detail", answer.reason))
    except (ValueError, AttributeError):
        return str(answer.reason)


def _is_heading(number: int, cells: Sequence[str]) -> bool:
    if number > 1 or len(cells) <= _LAG:
        return False
    try:
        float(cells[_LAG])
    except ValueError:
        return cells[_LAG] != ""
    return False


def _sample(cells: Sequence[str]) -> LagSample | None:
    if len(cells) <= _LAG:
        raise ValueError("the line needs a time and a lag, with a comma between them")
    if not cells[_LAG]:
        return None
    rate = _amount(cells[_RATE]) if len(cells) > _RATE and cells[_RATE] else None
    return LagSample(_time(cells[_TIME]), _amount(cells[_LAG]), rate)


def _time(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return _moment(text)
    if not (isfinite(number) and number >= 0):
        raise ValueError(f"{text} is not a time")
    return number / 1000 if number >= _MILLISECONDS_FROM else number


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time, such as 2026-11-17T09:30:00Z or epoch seconds") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _amount(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not (isfinite(number) and number >= 0):
        raise ValueError(f"{text} is not a number of messages: it must be 0 or larger")
    return number
