"""Runs the fake CloudWatch in another process, so that it takes no time from the measured program."""

from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from karrot.clock import SystemClock
from support.reporters.cloudwatch_service.request_handler import Call
from support.reporters.injected_faults import Fault
from support.reporters.scripted_cloudwatch import ScriptedCloudWatch


class FakeCloudWatchProcess:
    """What `ScriptedCloudWatch` is here, there. At most ``keep`` data are remembered."""

    def __init__(self, keep: int = 200_000) -> None:
        context = get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there, keep), daemon=True)
        self._process.start()
        there.close()
        self.url: str = self._here.recv()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._here.close()
        self._process.join()

    def stand(self, fault: Fault) -> None:
        """Answer every request with a fault until `clear`."""
        self._ask("stand", fault)

    def clear(self) -> None:
        """End the faults."""
        self._ask("clear")

    def forget(self) -> None:
        """Forget data and calls."""
        self._ask("forget")

    def calls(self) -> list[Call]:
        """Return all requests so far."""
        return list(self._ask("calls"))

    def _ask(self, name: str, *arguments: object) -> Any:
        self._here.send((name, arguments))
        return self._here.recv()


def _serve(here: Connection, keep: int) -> None:
    with ScriptedCloudWatch(clock_ms=SystemClock().wall_ms, keep=keep) as fake:
        here.send(fake.url)
        while True:
            try:
                name, arguments = here.recv()
            except (EOFError, ConnectionError, KeyboardInterrupt):
                return
            asked = getattr(fake, name)
            here.send(asked(*arguments) if callable(asked) else asked)
