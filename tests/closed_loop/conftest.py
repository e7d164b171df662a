from collections.abc import Iterator

import pytest

from support.autoscaling.closed_loop import Aws


@pytest.fixture(scope="session")
def aws() -> Iterator[Aws]:
    with Aws() as aws:
        yield aws
