"""No secret appears in any output, even if everything fails. Every secret here is a marked value, a canary."""

import base64
import os
import signal
from pathlib import Path

import pytest

from karrot.settings.options import OPTIONS
from support.burrow.recorded_bodies import recorded_body
from support.service.karrot_service import Service
from support.waiting import wait_for

WARN = recorded_body("karrot_v1.9.5_warn.json")
CANARIES = {each.key: f"canary-{each.key.replace('_', '-')}" for each in OPTIONS if each.is_secret}
TRIED = "canary-tried-by-a-stranger"
PATHS = [
    *("/", "/metrics", "/config", "/readyz", "/healthz", "/heartbeat", "/openapi.json", "/reporters"),
    *("/reporters/stdout", "/api/v1/groups", "/api/v1/groups?limit=none", "/api/v1/reporters", "/nowhere"),
    *("/rejects", "/api/v1/rejects"),
    *("/group?cluster=prod-eu&consumer=orders-svc", "/api/v1/group?cluster=prod-eu&consumer=nobody", "/burrow"),
]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def answers(service: Service) -> bytes:
    """Return the service's answers to authorized, unauthorized and invalid requests."""
    said = b""
    readers = (bearer(CANARIES["api_token"]), bearer(CANARIES["api_token_previous"]))
    for credentials in (*readers, bearer(TRIED), basic("any", TRIED), {}):
        for path in PATHS:
            for accept in ({}, {"Accept": "text/html"}):
                answer = service.get(path, credentials | accept)
                assert answer.status < 500, path
                said += answer.body + repr(answer.headers).encode()
    for body in (WARN, b'{"Event": }', b"\xff" * 100, b"[" * 9_000):
        for secret in ("burrow_token", "burrow_token_previous", "burrow_password_previous"):
            allowed = bearer(CANARIES[secret]) if "token" in secret else basic("burrow", CANARIES[secret])
            assert service.post(body, allowed).status in {202, 400}
        answer = service.post(body, basic("burrow", TRIED))
        assert answer.status == 401
        said += answer.body
    return said


def assert_no_canary(text: bytes, where: str) -> None:
    for canary in (*CANARIES.values(), TRIED):
        for form in (canary.encode(), base64.b64encode(canary.encode()).rstrip(b"=")[:-1]):
            assert form not in text, f"{canary} is in {where}"


@pytest.mark.parametrize("by_file", [False, True], ids=["environment", "files"])
def test_no_secret_is_ever_shown(tmp_path: Path, by_file: bool) -> None:  # noqa: FBT001 (a parameter of the test)
    config = tmp_path / "karrot.toml"
    config.write_text("")
    given = dict(CANARIES)
    if by_file:
        for name, canary in CANARIES.items():
            (tmp_path / name).write_text(f"{canary}\n")
        given = {f"{name}_file": str(tmp_path / name) for name in CANARIES}
    service = Service(tmp_path / "data", arguments=("--config", str(config)), log="DEBUG", burrow_username="burrow")
    service.settings |= given | {"reporters": "prometheus,stdout"}
    with service:
        said = answers(service)
        config.write_text('max_consumers = "many"\n')
        os.kill(service.pid, signal.SIGHUP)
        wait_for(lambda: "the new settings are refused" in service.said.read_text())
        os.kill(service.workers()[0], signal.SIGKILL)
        wait_for(service.ready)
        assert service.stop() == 0
    assert b'"KARROT_API_TOKEN":"***"' in said
    assert_no_canary(said, "an answer")
    assert_no_canary(service.said.read_bytes(), "the logs")
    for kept in (tmp_path / "data").iterdir():
        assert_no_canary(kept.read_bytes(), kept.name)


def test_a_failed_start_does_not_show_a_secret(tmp_path: Path) -> None:
    service = Service(tmp_path / "data")
    service.settings |= {**CANARIES, "workers": "many"}
    service.start(wait=False)
    assert service.process is not None
    assert service.process.wait(30) == 2
    assert_no_canary(service.said.read_bytes(), "the refusal")
