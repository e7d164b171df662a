"""Copies an event log from one directory to another. ``postgres/test_log_copy.py`` has the other directions."""

from itertools import count
from pathlib import Path

import pytest

from support.eventlog.log_copies import limits
from support.eventlog.log_copy_contract import LogCopyContract, NewPlace


class TestSqliteToSqlite(LogCopyContract):
    @pytest.fixture
    def new_source(self, tmp_path: Path) -> NewPlace:
        numbers = count()
        return lambda: limits(data_dir=tmp_path / f"source-{next(numbers)}")

    @pytest.fixture
    def new_target(self, tmp_path: Path) -> NewPlace:
        numbers = count()
        return lambda: limits(data_dir=tmp_path / f"target-{next(numbers)}")
