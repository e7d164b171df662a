from collections.abc import Iterator

import pytest

from support.loop import Aws


@pytest.fixture(scope="session")
def aws() -> Iterator[Aws]:
    with Aws() as aws:
        yield aws
