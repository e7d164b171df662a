"""Posts the verdicts of the simulated Burrow to Karrot, each once and without a retry, as Burrow's notifier does."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog

from karrot.burrow.payload import to_wire
from karrot.clock import Clock
from karrot.demo.simulated_burrow import TIMEOUT_S, SimulatedBurrow
from karrot.event import LagEvent
from karrot.http_client import ACCEPTED, HttpClient, Limits, RequestFailed

_log = structlog.get_logger(__name__)

_THREADS = 16
_PAUSE_S = 0.05


def post_verdicts(
    burrow: SimulatedBurrow,
    url: str,
    stop: threading.Event,
    *,
    clock: Clock,
    failover: threading.Event | None = None,
) -> None:
    """Post what is due until ``stop`` is set. If ``failover`` is set, another Burrow takes over once.

    While posts wait for answers, nothing new is judged, because a slow receiver slows a real Burrow too.
    """
    client = HttpClient(url, Limits(timeout_s=TIMEOUT_S, connections=_THREADS))
    told: set[str | None] = {None}
    with client, ThreadPoolExecutor(_THREADS, thread_name_prefix="simulated-burrow") as threads:
        while not stop.wait(_PAUSE_S):
            if failover is not None and failover.is_set():
                failover.clear()
                burrow.failover()
            for problem in threads.map(partial(_post, client, stop), burrow.due(clock.wall_ms())):
                if problem not in told:  # Burrow logs each failure, but this would fill the demo's output
                    _log.warning("the simulated Burrow's posts are refused", code="demo_refused", reason=problem)
                told.add(problem)


def _post(client: HttpClient, stop: threading.Event, verdict: LagEvent) -> str | None:
    """Post one verdict, if the demo does not end. Returns the problem, if there is one."""
    if stop.is_set():
        return None
    try:
        status = client.post("", to_wire(verdict)).status
    except RequestFailed as error:
        return error.said
    return None if status in ACCEPTED else f"HTTP {status}"
