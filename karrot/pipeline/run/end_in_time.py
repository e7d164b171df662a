"""Ends the process of ``karrot pipeline run`` in time: after a signal in the middle of a job, and when Spark ends."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import structlog
from pyspark.sql import SparkSession

from karrot.pipeline.run.turns import CannotContinue
from karrot.pipeline.store.lease import release_all

_log = structlog.get_logger(__name__)

_GRACE_S: Final = 20
"""How long a step may take to end after a signal. Kubernetes kills a pod after 30 s."""

_HALT_S: Final = 4
_RELEASE_S: Final = 2
_LOOK_S: Final = 2


@contextmanager
def ended_in_time(spark: SparkSession, stop: threading.Event) -> Iterator[None]:
    """After a signal, give the open step 20 s. Then cancel its Spark jobs, and end the process if this does not help.

    The next start repeats what was not finished.
    """
    over = threading.Event()

    def watch() -> None:
        stop.wait()
        if over.wait(_GRACE_S):
            return
        spark.sparkContext.setLogLevel("OFF")  # otherwise Spark logs a stack trace for each job that ends here
        spark.sparkContext.cancelAllJobs()
        if not over.wait(_HALT_S):
            _log.warning("turn abandoned", code="turn_abandoned")
            releasing = threading.Thread(target=release_all, daemon=True)  # which can wait for a store that is away
            releasing.start()
            releasing.join(_RELEASE_S)
            os._exit(0)

    threading.Thread(target=watch, name="end in time", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        stop.set()


@contextmanager
def ended_with_spark(is_alive: Callable[[], bool], stop: threading.Event, every_s: float = _LOOK_S) -> Iterator[None]:
    """Set ``stop`` when Spark has ended, also between two turns. The end of the block then raises `CannotContinue`.

    A signal to ``spark-submit`` ends only the JVM. Without this, its Python process would live until the next turn.
    """
    over, ended = threading.Event(), threading.Event()

    def watch() -> None:
        while not over.wait(every_s) and not stop.is_set():
            if not is_alive():
                ended.set()
                stop.set()

    threading.Thread(target=watch, name="end with Spark", daemon=True).start()
    try:
        yield
    finally:
        over.set()
    if ended.is_set():
        raise CannotContinue("Spark has ended")
