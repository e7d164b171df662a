"""Copies an event log from SQLite to PostgreSQL, back, and from one schema to another."""

import os
import subprocess
import sys
from functools import partial
from itertools import pairwise
from random import Random

import pytest

from karrot.clock import SystemClock
from karrot.settings.options import Settings
from support.eventlog.appended_events import append_many
from support.eventlog.log_copies import copy, everything, fill, newest_event, serving
from support.eventlog.log_copy_contract import LogCopyContract, NewPlace
from support.manual_clock import ManualClock
from support.waiting import wait_for


class TestSqliteToPostgres(LogCopyContract):
    @pytest.fixture
    def new_source(self, new_directory: NewPlace) -> NewPlace:
        return new_directory

    @pytest.fixture
    def new_target(self, new_schema: NewPlace) -> NewPlace:
        return new_schema


class TestPostgresToSqlite(LogCopyContract):
    @pytest.fixture
    def new_source(self, new_schema: NewPlace) -> NewPlace:
        return new_schema

    @pytest.fixture
    def new_target(self, new_directory: NewPlace) -> NewPlace:
        return new_directory


def test_a_log_goes_from_schema_to_schema_and_to_sqlite_and_back(new_schema: NewPlace, new_directory: NewPlace) -> None:
    clock = ManualClock()
    places = [new_schema(), new_schema(), new_directory(), new_schema()]
    with serving(places[0], clock) as log:
        fill(log, clock)
        before = everything(log)
    for source, target in pairwise(places):
        assert copy(source, target, clock, page=7).is_finished
        with serving(target, clock) as log:
            assert everything(log) == before


@pytest.mark.parametrize(("events", "kills"), [(1_500, 2), pytest.param(4_000, 3, marks=pytest.mark.deep)])
@pytest.mark.parametrize("to_postgres", [True, False], ids=["to PostgreSQL", "to SQLite"])
def test_a_command_that_is_killed_again_and_again_makes_the_same_copy(
    new_schema: NewPlace, new_directory: NewPlace, events: int, kills: int, *, to_postgres: bool
) -> None:
    clock, schema, directory = SystemClock(), new_schema(), new_directory()
    source, target = (directory, schema) if to_postgres else (schema, directory)
    with serving(source, clock) as log:
        append_many(log, events)
        before = everything(log)
    urls = [schema.event_log, f"sqlite:{directory.data_dir}"]
    from_url, to_url = reversed(urls) if to_postgres else urls
    command = [sys.executable, "-m", "karrot", "log", "copy", "--from", from_url, "--to", to_url]
    environment = {**os.environ, "KARROT_EVENT_LOG_PASSWORD_FILE": str(schema.event_log_password_file)}
    for goal in sorted(Random(25).sample(range(1, events * 3 // 4), kills)):
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
            # A copy that is finished has no unfinished file any more, and can be faster than the next look.
            wait_for(partial(has_copied_or_ended, running, target, goal), 60, every_s=0.005)
            running.kill()
        if running.returncode == 0:
            break
    else:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    with serving(target, clock) as log:
        assert everything(log) == before


def has_copied_or_ended(running: subprocess.Popen[bytes], target: Settings, events: int) -> bool:
    return newest_event(target) >= events or running.poll() is not None
