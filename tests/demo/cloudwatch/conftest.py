from collections.abc import Iterator

import pytest

from karrot.demo.cloudwatch import FakeCloudWatch
from support.reporters.fake_cloudwatch_client import NOW_MS


@pytest.fixture
def fake() -> Iterator[FakeCloudWatch]:
    with FakeCloudWatch(clock_ms=lambda: NOW_MS) as serving:
        yield serving
