"""Defines the options that say where Spark jobs read events: ``--source archive`` or ``--source kafka``."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.errors import Refused
from karrot.cli.options import asked_for, put_on
from karrot.cli.pipeline.source_options import KAFKA, kafka_of, kafka_options

if TYPE_CHECKING:
    from karrot.pipeline.ingest.event_sources import Road


_ARCHIVE = "archive"
_OPTIONS = (
    click.option(
        "--source",
        type=click.Choice([_ARCHIVE, KAFKA]),
        default=_ARCHIVE,
        show_default=True,
        help="What the archive reporter writes, or the kafka reporter.",
    ),
    click.option("--archive", help="Where the archive reporter writes: a directory or a URL (s3a://…)."),
    click.option("--topic", default="karrot.events", show_default=True, help="The topic of the kafka reporter."),
)


def road_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a source of events; `road_of` reads them."""
    return put_on(command, *_OPTIONS, kafka_options)


def road_of(asked: Mapping[str, Any]) -> "Callable[[], Road]":
    """A function that opens the source of events once Spark has started. Raises Refused for wrong options."""
    if asked["source"] == KAFKA:
        return _topic(asked)
    if asked["archive"] is None:
        raise Refused("--source archive needs --archive")
    return partial(_from_archive, asked["archive"])


def _from_archive(archive: str) -> "Road":
    from karrot.pipeline.ingest.event_sources import FromArchive

    return FromArchive(archive)


def _topic(asked: Mapping[str, Any]) -> "Callable[[], Road]":
    from karrot.settings import types

    reached, topic = kafka_of(asked, "karrot-pipeline"), asked_for(types.topic, "topic", asked)

    def road() -> "Road":
        from karrot.pipeline.ingest.event_sources import BATCH_EVENTS, FromTopic
        from karrot.pipeline.stream.record_sources import FromKafka

        return FromTopic(FromKafka(*reached, topic, BATCH_EVENTS))

    return road
