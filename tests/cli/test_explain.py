import json
from pathlib import Path

import msgspec
import pytest

from karrot.diagnosis.explanations import explain
from karrot.diagnosis.known_facts import Known
from support.karrot_command import run_karrot
from support.servers.recording_server import RecordingServer

FILE = Path(__file__).parents[1] / "data" / "explained" / "poison_record.json"


@pytest.fixture
def answer(server: RecordingServer) -> bytes:
    known = msgspec.convert(msgspec.json.decode(FILE.read_bytes())["known"], Known)
    server.status, server.body = 200, msgspec.json.encode(explain(known))
    return server.body


def test_the_cause_comes_first_and_then_its_evidence_and_the_commands(server: RecordingServer, answer: bytes) -> None:
    told = json.loads(answer)
    result = run_karrot("explain", told["consumer"], "--karrot", server.url)
    assert result.exit_code == 0
    first, sentence, lag, *rest = result.stdout.splitlines()
    assert first.startswith(f"ERR {told['consumer']} on truth: poison_record since 20")
    assert sentence == told["sentence"]
    assert lag.startswith("Lag: ")
    assert [f"- {each}" for each in told["evidence"]] == rest[: len(told["evidence"])]
    assert f"Runbook: {server.url}/runbooks/KarrotPartitionStopped" in rest
    assert rest[-1] == told["commands"][-1]["command"]
    assert server.seen[0].path == f"/api/v1/explain?consumer={told['consumer']}"


@pytest.mark.parametrize("option", [["--json"], ["-o", "json"]])
def test_the_json_is_the_answer_of_the_api(server: RecordingServer, answer: bytes, option: list[str]) -> None:
    result = run_karrot("explain", "orders", "--cluster", "truth", *option, env={"KARROT_URL": server.url})
    assert (result.exit_code, result.stdout.strip()) == (0, answer.decode())
    assert server.seen[0].path == "/api/v1/explain?consumer=orders&cluster=truth"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"detail":"Several clusters have this group: a, b. Name one."}', "Several clusters have this group: a, b."),
        (b"no JSON", "HTTP 400 Bad Request, 'no JSON'"),
        (b"{}", "HTTP 400"),
    ],
)
def test_a_refusal_is_a_sentence(server: RecordingServer, body: bytes, said: str) -> None:
    server.status, server.body = 400, body
    result = run_karrot("explain", "orders", "--karrot", server.url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr


def test_a_karrot_that_does_not_answer_is_a_sentence(server: RecordingServer) -> None:
    result = run_karrot("explain", "orders", "--karrot", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert "no connection" in result.stderr
    assert server.seen == []
