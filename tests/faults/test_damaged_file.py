"""A running service whose log file is damaged takes the next events and reports the damage."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from support.burrow.recorded_bodies import padded_warn_body, warn_body
from support.service.karrot_service import Service
from support.waiting import wait_for


def overwrite_pages(file: Path) -> None:
    with file.open("r+b") as damaged:
        for page in range(1, file.stat().st_size // 4096):
            damaged.seek(page * 4096)
            damaged.write(b"\xa5" * 4096)


def zero_the_header(file: Path) -> None:
    with file.open("r+b") as damaged:
        damaged.write(bytes(100))


def truncate(file: Path) -> None:
    with file.open("r+b") as damaged:
        damaged.truncate(file.stat().st_size // 2)


def remove(file: Path) -> None:
    for part in file.parent.glob("events.db*"):
        part.unlink()


def put_a_foreign_one_there(file: Path) -> None:
    other = file.with_name("other.db")
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE plants (name TEXT)")
    for part in file.parent.glob("events.db-*"):
        part.unlink()
    other.replace(file)


def merge(file: Path) -> None:
    """Move all data from the write-ahead log into the file, which is then damaged."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


@pytest.mark.parametrize("damage", [overwrite_pages, zero_the_header, truncate, remove, put_a_foreign_one_there])
def test_a_service_with_a_damaged_log_continues(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    file = tmp_path / "data" / "events.db"
    with Service(tmp_path / "data") as service:
        for number in range(40):
            assert service.post(padded_warn_body(f"g{number}", 50_000)).status == 202
        merge(file)
        damage(file)
        answers = [service.post(warn_body(f"after-{number}")).status for number in range(20)]

        def continues() -> bool:
            if answers[-1] == 202 and service.get("/api/v1/groups").status == 200:
                return True
            answers.append(service.post(warn_body(f"again-{len(answers)}")).status)
            return False

        wait_for(continues)
        assert set(answers) <= {202, 503}
        name = f"after-{answers.index(202)}" if 202 in answers[:20] else f"again-{len(answers) - 1}"
        assert service.metric("karrot_consumer_lag", consumer=name) == 11_020
        assert service.metric("karrot_log_replaced_total") == 1
        assert "Traceback" not in service.said.read_text()
        assert service.stop() == 0
