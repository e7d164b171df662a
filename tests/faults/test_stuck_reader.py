"""The log continues while another program holds a read transaction; its growth is reported and ends with the reader."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.burrow.recorded_bodies import padded_warn_body, warn_body
from support.service.karrot_service import Service
from support.waiting import wait_for

READER = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM events").fetchall()
print("reading", flush=True)
sys.stdin.read()
"""
LIMIT = 64 << 20
LARGE = 7 << 20


@contextmanager
def stuck_reader(database: Path) -> Iterator[None]:
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"reading\n"
        yield


def test_a_stuck_reader_is_reported_and_its_disk_space_is_freed_afterwards(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as service:
        wal = tmp_path / "data" / "events.db-wal"
        assert service.post(warn_body("before")).status == 202
        with stuck_reader(tmp_path / "data" / "events.db"):
            for number in range(12):
                assert service.post(padded_warn_body(f"g{number}", LARGE)).status == 202
            assert wal.stat().st_size > LIMIT + LARGE
            # The service can commit counters between the two reads.
            wait_for(lambda: service.metric("karrot_log_wal_bytes") == wal.stat().st_size)
            told = [line for line in service.said.read_text().splitlines() if "cannot be emptied" in line]
            assert told
            assert all("a program has an open read transaction on it" in line for line in told)
            assert len(told) <= len(service.workers())
            assert service.metric("karrot_consumer_lag", consumer="g11") == 11_020
        for number in range(4):
            assert service.post(padded_warn_body(f"h{number}", LARGE)).status == 202
        assert wal.stat().st_size <= LIMIT
        assert service.stop() == 0
    assert len(service.stored_consumers()) == 17
