"""Renders ``karrot render druid``: an ingestion spec and a query of Apache Druid for the JSON topic of offsets."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from karrot.render import validation
from karrot.render.templates import environment
from karrot.settings import types

_MOMENT = r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?Z?)?"
_INTERVAL = rf"{_MOMENT}/({_MOMENT}|P\w+)|P\w+/{_MOMENT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Druid:
    """What Druid reads, what it calls it, and which group it is asked about.

    Raises `ValueError` with a sentence per line.
    """

    bootstrap: str
    group: str
    topic: str = "consumer_offsets_json"
    datasource: str = "consumer_offsets"
    interval: str = "2017-01-01/2100-01-01"

    def __post_init__(self) -> None:
        validation.refuse(_problems(self))


def ingestion(asked: Druid) -> str:
    """The spec of a supervisor: a row per group, topic, partition and minute, as in the table ``offsets_minute``.

    A tombstone has neither an offset nor a time: it passes the timestamp by a substitute and is then filtered out.
    """
    return (
        environment()
        .get_template("druid/ingestion.json.j2")
        .render(topic=asked.topic, datasource=asked.datasource, bootstrap=asked.bootstrap)
    )


def query(asked: Druid) -> str:
    """The native query of 2017: the sum of a group's offsets by minute, newest first."""
    return (
        environment()
        .get_template("druid/query.json.j2")
        .render(datasource=asked.datasource, group=asked.group, interval=asked.interval)
    )


def _problems(asked: Druid) -> Iterator[str]:
    try:
        types.checked(types.brokers, "--bootstrap-servers", asked.bootstrap)
    except ValueError as error:
        yield str(error)
    if re.search("[\ud800-\udfff]", asked.group):
        yield f"--group is {types.quoted(asked.group)}: it must be a text in UTF-8"
    yield from validation.matching("--topic", asked.topic, r"[a-zA-Z0-9._-]{1,249}", "the name of a topic")
    yield from validation.matching("--datasource", asked.datasource, r"[^/\s]+", "a name without slashes and spaces")
    yield from validation.matching(
        "--interval", asked.interval, _INTERVAL, "as 2026-11-20/2026-11-21 or P1D/2026-11-21"
    )
