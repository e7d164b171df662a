from collections.abc import Iterator

import pytest

from support.reporters.fake_aws import FakeAws
from support.reporters.fake_cloudwatch_client import NOW_MS


@pytest.fixture
def fake() -> Iterator[FakeAws]:
    with FakeAws(clock_ms=lambda: NOW_MS) as serving:
        yield serving
