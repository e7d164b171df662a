import threading
from collections.abc import Iterator

import pytest

from support.servers.recording_server import RecordingServer


@pytest.fixture
def server() -> Iterator[RecordingServer]:
    with RecordingServer() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()
