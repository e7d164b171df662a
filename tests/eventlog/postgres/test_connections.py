import pytest

from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.postgres.connections import DatabaseUrl


def test_a_url_keeps_the_parameters_of_libpq_and_prefers_the_primary() -> None:
    url = DatabaseUrl.parse("postgresql://karrot@one:5433,two:5434/lag?sslmode=verify-full&schema=karrot_eu")
    assert url.schema == "karrot_eu"
    wanted = {"host": "one,two", "port": "5433,5434", "user": "karrot", "dbname": "lag", "sslmode": "verify-full"}
    assert wanted.items() <= url.parameters.items()
    assert url.parameters["target_session_attrs"] == "read-write"
    assert str(url) == "karrot@one,two/lag"


def test_a_url_may_choose_other_time_limits() -> None:
    assert DatabaseUrl.parse("postgresql://h/d?connect_timeout=9").parameters["connect_timeout"] == "9"


@pytest.mark.parametrize("schema", ["Karrot", "a-b", "1st", "", "a" * 64, 'a"b'])
def test_a_schema_that_would_need_quotes_is_refused(schema: str) -> None:
    with pytest.raises(LogUnavailableError, match="it must be lower-case letters"):
        DatabaseUrl.parse(f"postgresql://h/d?schema={schema}")


def test_an_unknown_parameter_is_named() -> None:
    with pytest.raises(LogUnavailableError, match="ssslmode"):
        DatabaseUrl.parse("postgresql://h/d?ssslmode=require")
