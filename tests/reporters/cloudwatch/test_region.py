import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from karrot.reporters.cloudwatch.boto_client import find_region
from karrot.settings.options import CloudWatch as Options
from support.reporters.cloudwatch_datum import NOW_MS
from support.reporters.fake_aws import FakeAws

COMPAT = Options(default_region="us-east-1")


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Serve an agent that gives every request the same answer; without an answer it keeps the connection open."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = threading.Event()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)
                if not answer:
                    done.wait(10)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/v4/some"
        finally:
            done.set()
            thread.join()


def http(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(body), body)


@pytest.mark.parametrize(
    ("environ", "options", "profile", "region"),
    [
        ({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-2"}, COMPAT, "eu-west-3", "eu-west-1"),
        ({"AWS_DEFAULT_REGION": "eu-west-2"}, COMPAT, "eu-west-3", "eu-west-2"),
        ({"AWS_REGION": " ", "AWS_DEFAULT_REGION": "eu-west-2"}, COMPAT, "eu-west-3", "eu-west-2"),
        ({}, COMPAT, "eu-west-3", "us-east-1"),
        ({}, Options(), "eu-west-3", "eu-west-3"),
        ({}, Options(), None, None),
    ],
    ids=["AWS_REGION", "AWS_DEFAULT_REGION", "a blank AWS_REGION", "compat 2019", "the profile", "no source"],
)
def test_the_first_source_that_has_a_region_is_used(
    environ: Mapping[str, str], options: Options, profile: str | None, region: str | None
) -> None:
    assert find_region(options, environ, profile) == region


def test_an_ecs_task_is_in_the_region_of_its_arn(fake: FakeAws) -> None:
    environ = {"ECS_CONTAINER_METADATA_URI_V4": fake.task_metadata_url}
    assert find_region(Options(), environ, "eu-west-3") == "eu-west-1"


def test_the_first_karrot_s_setting_wins_over_the_task(fake: FakeAws) -> None:
    assert find_region(COMPAT, {"ECS_CONTAINER_METADATA_URI_V4": fake.task_metadata_url}, "eu-west-3") == "us-east-1"


def test_the_environment_wins_and_the_task_is_not_asked() -> None:
    environ = {"AWS_REGION": "eu-west-2", "ECS_CONTAINER_METADATA_URI_V4": "http://127.0.0.1:1/never"}
    assert find_region(COMPAT, environ, None) == "eu-west-2"


def test_the_task_metadata_are_read_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with FakeAws(clock_ms=lambda: NOW_MS, region="ap-south-1") as fake:
        assert find_region(Options(), {"ECS_CONTAINER_METADATA_URI_V4": fake.task_metadata_url}, None) == "ap-south-1"


@pytest.mark.parametrize(
    ("answer", "region"),
    [
        (http(b'{"AvailabilityZone": "us-gov-west-1b"}'), "us-gov-west-1"),
        (http(b'{"TaskARN": "arn:aws-cn:ecs:cn-north-1:123456789012:task/x"}'), "cn-north-1"),
        (http(b'{"TaskARN": "nonsense", "AvailabilityZone": ""}'), "eu-west-3"),
        (http(b"[1]"), "eu-west-3"),
        (http(b"{"), "eu-west-3"),
        (http(b"\xff\xfe"), "eu-west-3"),
        (http(b"gone", b"404 Not Found"), "eu-west-3"),
        (b"SSH-2.0\r\n\r\n", "eu-west-3"),
        (b"", "eu-west-3"),  # within a second
    ],
    ids=[
        "an availability zone",
        "the ARN of a task",
        "an ARN without a region",
        "an array",
        "JSON without its end",
        "not UTF-8",
        "404",
        "an SSH server",
        "no answer",
    ],
)
def test_the_agent_s_region_is_used_and_without_one_the_profile_s(answer: bytes, region: str) -> None:
    with answering(answer) as address:
        assert find_region(Options(), {"ECS_CONTAINER_METADATA_URI_V4": address}, "eu-west-3") == region


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:1/v4/gone", "file:///etc", "nonsense", pytest.param("", id="an empty address"), "http://[bad"],
)
def test_an_address_without_an_agent_leaves_the_profile_s_region(address: str) -> None:
    assert find_region(Options(), {"ECS_CONTAINER_METADATA_URI_V4": address}, "eu-west-3") == "eu-west-3"
