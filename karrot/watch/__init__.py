"""Polls Kafka's Admin API, judges the groups by Burrow's rules and makes the events that Burrow would post."""

from karrot.watch.cluster_reader import ClusterReader, ClusterSnapshot
from karrot.watch.connect import NotConnected, connect
from karrot.watch.kafka_protocol import ClusterError
from karrot.watch.outputs import IntakeSink, PostSink
from karrot.watch.persistence import FileKeeper, NoKeeper, NoteKeeper
from karrot.watch.watcher import PollOutcome, Sink, Watcher, run

__all__ = [
    "ClusterError",
    "ClusterReader",
    "ClusterSnapshot",
    "FileKeeper",
    "IntakeSink",
    "NoKeeper",
    "NotConnected",
    "NoteKeeper",
    "PollOutcome",
    "PostSink",
    "Sink",
    "Watcher",
    "connect",
    "run",
]
