"""An event that the database refuses is refused alone: other events are stored, and Karrot stays ready."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from support.burrow.recorded_bodies import warn_body
from support.eventlog.postgres_server import PostgresServer, running_postgres
from support.service.karrot_service import Service
from support.service.postgres_service import PostgresService
from support.service.posting_threads import PostingThreads, assert_nothing_is_lost
from support.waiting import wait_for

POISON = "poison"
POSTGRES_TEXT = "the text of PostgreSQL"
IN_POSTGRES = f"""
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION USING ERRCODE = '{{code}}', MESSAGE = '{POSTGRES_TEXT}';
END $$;
CREATE TRIGGER refuse BEFORE INSERT ON groups FOR EACH ROW WHEN (NEW.consumer = '{POISON}') EXECUTE FUNCTION refuse();
"""
IN_SQLITE = f"CREATE TRIGGER refuse BEFORE INSERT ON groups WHEN NEW.consumer = '{POISON}' BEGIN SELECT {{action}}; END"

Poisoned = Callable[[str], Service]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as running:
        yield running


@pytest.fixture
def on_postgres(server: PostgresServer, tmp_path: Path) -> Iterator[Poisoned]:
    """Start a service whose database refuses one group with an error of this SQLSTATE."""
    started: list[PostgresService] = []

    def start(code: str) -> Service:
        schema = f"sqlstate_{code}"
        started.append(PostgresService(tmp_path / schema, server, schema))
        started[-1].start()
        with server.connect("karrot") as connection:
            connection.execute(f"SET search_path TO {schema}")
            connection.execute(IN_POSTGRES.format(code=code).encode())
        return started[-1]

    yield start
    for service in started:
        service.kill()


def assert_refused_alone(service: Service) -> None:
    """Post good events and, at the same time, events that the database refuses."""
    with PostingThreads(service) as load:
        load.reach(20)
        for _ in range(20):
            answer = service.post(warn_body(POISON))
            assert (answer.status, answer.json["code"]) == (400, "invalid_field")
            assert "The database of the event log refuses a value of this event" in answer.json["detail"]
            assert service.get("/readyz").status == 200
        load.reach(20)
    assert set(load.answers) == {202}
    assert_nothing_is_lost(service, load)
    assert service.metric("karrot_log_writable") == 1
    wait_for(lambda: service.metric("karrot_events_rejected_total", code="invalid_field") == 20)
    rejects = service.get("/api/v1/rejects").json["rejects"]
    assert [each["body"] for each in rejects] == [warn_body(POISON).decode()[:4096]] * 20
    assert service.get(f"/api/v1/group?cluster=prod-eu&consumer={POISON}").status == 404
    assert '"code": "value_not_stored"' in service.said.read_text()


@pytest.mark.parametrize("code", ["22001", "23514", "54000"], ids=["a value", "a constraint", "a limit of PostgreSQL"])
def test_a_row_that_postgresql_refuses_takes_no_other_event_with_it(on_postgres: Poisoned, code: str) -> None:
    service = on_postgres(code)
    assert_refused_alone(service)
    assert POSTGRES_TEXT not in service.post(warn_body(POISON)).body.decode()


def test_an_error_that_is_not_about_a_row_is_still_the_trouble_of_the_log(on_postgres: Poisoned) -> None:
    service = on_postgres("53100")  # the disk of the server is full

    def is_in_trouble() -> bool:
        """Whether Karrot is not ready after a refused event, unless another commit came between the two requests."""
        assert service.post(warn_body(POISON)).status == 503
        return service.get("/readyz").status == 503

    wait_for(is_in_trouble)
    wait_for(lambda: service.post(warn_body("good")).status == 202)


@pytest.mark.parametrize(
    "action",
    [
        pytest.param("RAISE(ABORT, 'the text of SQLite')", id="a constraint"),
        pytest.param("zeroblob(1000000001)", id="a blob that is too big"),
    ],
)
def test_a_row_that_sqlite_refuses_takes_no_other_event_with_it(tmp_path: Path, action: str) -> None:
    with Service(tmp_path / "data", workers="1") as service:
        with closing(apsw.Connection(str(tmp_path / "data" / "events.db"))) as connection:
            connection.set_busy_timeout(5_000)
            connection.execute(IN_SQLITE.format(action=action))
        assert_refused_alone(service)
        assert "SQLite" not in service.post(warn_body(POISON)).body.decode()
