from collections.abc import Iterator

import pytest

from support.autoscaling.closed_loop import LoopCloudWatch


@pytest.fixture(scope="session")
def aws() -> Iterator[LoopCloudWatch]:
    with LoopCloudWatch() as aws:
        yield aws
