"""Receivers of messages, as fixtures."""

from collections.abc import Iterator

import pytest

from support.reporters.notify_rig import Receiver
from support.servers.background_server import serve_in_thread


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    with serve_in_thread(server):
        yield server
        server.free.set()


other = receiver
"""A second receiver."""
