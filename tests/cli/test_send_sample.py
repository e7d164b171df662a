import pytest

from karrot.burrow.payload import parse_webhook
from karrot.event import Kind, Status
from support.karrot_command import run_karrot
from support.servers.recording_server import RecordingServer

NOW_MS = 1_763_740_800_000


@pytest.mark.parametrize(
    ("status", "kind"), [("OK", Kind.OBSERVATION), ("WARN", Kind.INCIDENT), ("ERR", Kind.INCIDENT)]
)
def test_a_sample_has_the_form_of_an_event_from_burrow(server: RecordingServer, status: str, kind: Kind) -> None:
    result = run_karrot("send-sample", "--karrot", server.url, "--status", status, "--count", "2")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f'karrot-sample sample-group-{number} {status}: 202 {{"status":"told"}}' for number in (1, 2)
    ]
    assert [(each.method, each.path) for each in server.seen] == [("POST", "/burrow")] * 2
    assert server.seen[0].headers["Content-Type"] == "application/json"
    events = [parse_webhook(each.body, observed_at_ms=NOW_MS) for each in server.seen]
    assert [each.consumer for each in events] == ["sample-group-1", "sample-group-2"]
    assert {(each.status, each.kind) for each in events} == {(Status[status], kind)}
    assert events[0].max_lag is not None


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (400, "check whether a proxy on the way to Karrot changes the body"),
        (401, "the credentials are missing or wrong"),
        (404, "check that it is Karrot's address"),
        (302, "which Burrow would follow without the event"),
        (503, "/readyz give the reason"),
        (200, '200 {"status":"told"}'),
    ],
)
def test_a_refused_sample_ends_with_advice(server: RecordingServer, status: int, sentence: str) -> None:
    server.status = status
    result = run_karrot("send-sample", "--karrot", server.url, "--count", "5")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f'karrot: {status} {{"status":"told"}}\n' in result.stderr
    assert sentence in result.stderr
    assert len(server.seen) == 1


def test_the_address_may_come_from_the_environment(server: RecordingServer) -> None:
    assert run_karrot("send-sample", env={"KARROT_URL": f"{server.url}/burrow"}).exit_code == 0
    assert [each.path for each in server.seen] == ["/burrow"]
