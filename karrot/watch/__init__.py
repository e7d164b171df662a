"""Burrow's verdicts without Burrow: Kafka's Admin API, Burrow's rules, and the events that come of it."""

from karrot.watch.cluster import ClusterError
from karrot.watch.connecting import NotConnected, connect
from karrot.watch.keep import FileKeeper, NoKeeper, NoteKeeper
from karrot.watch.sinks import IntakeSink, PostSink
from karrot.watch.standing import Onlooker, Standing
from karrot.watch.watcher import Outcome, Sink, Watcher, run

__all__ = [
    "ClusterError",
    "FileKeeper",
    "IntakeSink",
    "NoKeeper",
    "NotConnected",
    "NoteKeeper",
    "Onlooker",
    "Outcome",
    "PostSink",
    "Sink",
    "Standing",
    "Watcher",
    "connect",
    "run",
]
