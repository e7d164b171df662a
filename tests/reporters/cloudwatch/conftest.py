"""Fixtures of a fake AWS on loopback, without this machine's own AWS configuration."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.reporters.cloudwatch_datum import NOW_MS
from support.reporters.fake_aws import FakeAws

_NOT_OURS = ("AWS_", "ECS_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "REQUESTS_CA_BUNDLE")


@pytest.fixture
def fake() -> Iterator[FakeAws]:
    with FakeAws(clock_ms=lambda: NOW_MS) as serving:
        yield serving


@pytest.fixture
def bare_environ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Mapping[str, str]:
    """Set up an environment without any AWS configuration or agent."""
    for name in list(os.environ):
        if name.upper().startswith(_NOT_OURS):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    return os.environ


@pytest.fixture
def environ(bare_environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, fake: FakeAws) -> Mapping[str, str]:
    """Set up an environment with the fake's Region, credentials and endpoint."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", fake.url)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDTEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    return bare_environ
