"""On which road the Spark jobs get the service's events: ``--source archive`` or ``--source kafka``."""
# ruff: noqa: PLC0415

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.common import NotDone, Refused, valid
from karrot.cli.failures import why_it_failed

if TYPE_CHECKING:
    from karrot.pipeline.roads import Road

__all__ = ["road_of", "road_options", "told"]

_ARCHIVE, _KAFKA = "archive", "kafka"
_OPTIONS = (
    click.option(
        "--source",
        type=click.Choice([_ARCHIVE, _KAFKA]),
        default=_ARCHIVE,
        show_default=True,
        help="What the archive reporter writes, or the kafka reporter.",
    ),
    click.option("--archive", help="Where the archive reporter writes: a directory or a URL (s3a://…)."),
    click.option("--bootstrap-servers", metavar="HOST:PORT,...", help="With --source kafka: its brokers."),
    click.option("--topic", default="karrot.events", show_default=True, help="The topic of the kafka reporter."),
    click.option(
        "--command-config",
        type=click.Path(path_type=Path, dir_okay=False),
        help="A file of client properties (TLS, SASL, MSK IAM) under Java's names, as Kafka's own tools take it.",
    ),
    click.option(
        "--starting",
        default="earliest",
        show_default=True,
        metavar="earliest|latest|TIME",
        help="Where to begin with a topic the first time; a time in ISO 8601, UTC unless it says otherwise.",
    ),
)


def road_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that name a road: `road_of` reads them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def road_of(asked: Mapping[str, Any]) -> "Callable[[], Road]":
    """How the road is taken, once there is a Spark. Raises Refused for what is asked wrongly."""
    if asked["source"] == _KAFKA:
        return _topic(asked)
    if asked["archive"] is None:
        raise Refused("--source archive needs --archive")
    return partial(_from_archive, asked["archive"])


@contextmanager
def told(asked: Mapping[str, Any]) -> Iterator[None]:
    """What keeps a job from its events, or from going on, becomes a sentence."""
    from karrot.kafka.properties import without_values
    from karrot.pipeline.brokers import Brokers, PropertiesError
    from karrot.pipeline.jobs.ingest import StreamingQueryException
    from karrot.pipeline.kafka import ConnectorMissing
    from karrot.pipeline.records import NoRecords
    from karrot.watch import ClusterError

    try:
        yield
    except (FileNotFoundError, ConnectorMissing, NoRecords, PropertiesError) as error:
        raise Refused(str(error)) from error
    except ClusterError as error:
        raise NotDone(f"Kafka: {error}") from error
    except StreamingQueryException as error:
        properties = Brokers.of((), asked["command_config"]).properties if asked["source"] == _KAFKA else {}
        raise NotDone(without_values(why_it_failed(str(error)), properties)) from error


def _from_archive(archive: str) -> "Road":
    from karrot.pipeline.roads import FromArchive

    return FromArchive(archive)


def _topic(asked: Mapping[str, Any]) -> "Callable[[], Road]":
    from karrot import values
    from karrot.pipeline.brokers import Brokers, Start
    from karrot.watch import connect

    if asked["bootstrap_servers"] is None:
        raise Refused("--source kafka needs --bootstrap-servers")
    addresses = valid(partial(values.checked, values.brokers, "--bootstrap-servers", asked["bootstrap_servers"]))
    topic = valid(partial(values.checked, values.topic, "--topic", asked["topic"]))
    properties = asked["command_config"]
    brokers = valid(partial(Brokers.of, addresses, properties))
    kafka = valid(partial(connect, addresses, properties, client_id="karrot-pipeline"))
    start = valid(partial(Start, asked["starting"]))

    def road() -> "Road":
        from karrot.pipeline.records import FromKafka
        from karrot.pipeline.roads import BATCH_EVENTS, FromTopic

        return FromTopic(FromKafka(brokers, kafka, start, topic, BATCH_EVENTS))

    return road
