"""Requests use the proxy of the environment, follow no redirect, and trust the authorities of OpenSSL."""

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import ANY

import pytest

from karrot.burrow.client import Burrow
from karrot.http_client import Answer, HttpClient, Limits, RequestFailed, Unavailable, proxy_for
from support.karrot_command import run_karrot
from support.servers.background_server import serve_in_thread
from support.servers.forward_proxy import ForwardProxy
from support.servers.recording_server import RecordingServer
from support.servers.scripted_server import Script, http_response, scripted_server

KARROT = "karrot.internal.test"  # only the proxy knows a way to it


@pytest.fixture
def server() -> Iterator[RecordingServer]:
    running = RecordingServer()
    with serve_in_thread(running):
        yield running


@pytest.fixture
def proxy() -> Iterator[ForwardProxy]:
    running = ForwardProxy()
    with serve_in_thread(running):
        yield running


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("http://karrot:5000", {}, None),
        ("http://karrot:5000", {"http_proxy": "http://p:3128"}, "http://p:3128"),
        ("http://karrot:5000", {"HTTP_PROXY": "http://p:3128"}, "http://p:3128"),
        ("http://karrot:5000", {"HTTP_PROXY": "p:3128"}, "http://p:3128"),
        ("http://karrot:5000", {"HTTPS_PROXY": "http://p:3128"}, None),
        ("https://karrot", {"HTTPS_PROXY": "http://p:3128", "HTTP_PROXY": "http://q"}, "http://p:3128"),
        ("http://karrot:5000", {"HTTP_PROXY": "http://p", "NO_PROXY": "a, karrot"}, None),
        ("http://karrot.ns.svc.cluster.local", {"HTTP_PROXY": "http://p", "NO_PROXY": ".cluster.local"}, None),
        ("http://karrot:5000", {"HTTP_PROXY": "http://p", "NO_PROXY": "karrot:5001"}, "http://p"),
        ("http://karrot:5000", {"HTTP_PROXY": "http://p", "no_proxy": "*"}, None),
        ("http://10.1.2.3:5000", {"HTTP_PROXY": "http://p", "NO_PROXY": "10.0.0.0/8"}, None),
        ("http://11.1.2.3:5000", {"HTTP_PROXY": "http://p", "NO_PROXY": "10.0.0.0/8,x/y"}, "http://p"),
        ("http://localhost:5000", {"HTTP_PROXY": "http://p"}, None),
        ("http://127.8.0.1:5000", {"HTTP_PROXY": "http://p"}, None),
        ("http://[::1]:5000", {"HTTP_PROXY": "http://p"}, None),
        ("http://169.254.170.2/v4/x", {"HTTP_PROXY": "http://p"}, None),
    ],
)
def test_the_environment_names_the_proxy(url: str, environ: dict[str, str], proxy: str | None) -> None:
    assert proxy_for(url, environ) == proxy


def test_a_request_goes_through_the_proxy_with_its_user(server: RecordingServer, proxy: ForwardProxy) -> None:
    url = f"http://{KARROT}:{server.server_port}/burrow"
    with HttpClient(url, environ={"HTTP_PROXY": f"http://me:p%40ss@{proxy.address}"}) as client:
        assert client.post("", b"x").status == 202
    assert proxy.seen == [f"POST {url}"]
    assert proxy.authorizations == ["Basic bWU6cEBzcw=="]
    assert [(each.path, each.body) for each in server.seen] == [("/burrow", b"x")]


def test_a_command_uses_the_proxy(server: RecordingServer, proxy: ForwardProxy) -> None:
    url = f"http://{KARROT}:{server.server_port}"
    through = {"HTTP_PROXY": f"http://{proxy.address}", "http_proxy": "", "NO_PROXY": "", "no_proxy": ""}
    result = run_karrot("send-sample", "--karrot", url, env=through)
    assert (result.exit_code, proxy.seen) == (0, [f"POST {url}/burrow"])
    server.status = 200
    run_karrot("lag", "--burrow", url, env=through)
    assert proxy.seen[1:] == [f"GET {url}/v3/kafka"]


@pytest.mark.parametrize("address", ["socks5://me:hunter2@127.0.0.1:1", "http://[hunter2", "ftp://hunter2"])
def test_a_proxy_that_cannot_be_used_is_an_error_of_the_request_without_its_address(address: str) -> None:
    with (
        HttpClient("http://karrot:5000", environ={"HTTP_PROXY": address}) as client,
        pytest.raises(Unavailable, match="HTTP_PROXY is not the address of an HTTP proxy") as raised,
    ):
        client.get("/")
    assert "hunter2" not in str(raised.value)


def test_burrows_client_reports_a_proxy_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("http_proxy", raising=False)
    monkeypatch.setenv("HTTP_PROXY", "socks5://127.0.0.1:1")
    with Burrow("http://burrow:8000") as burrow, pytest.raises(RequestFailed, match="HTTP_PROXY is not the address"):
        burrow.clusters()


def test_a_redirect_is_not_followed(server: RecordingServer) -> None:
    server.status = 302
    with HttpClient(server.url) as client:
        assert [client.get("/here").status, client.post("/here", b"").status] == [302, 302]
    assert [each.path for each in server.seen] == ["/here", "/here"]


def test_a_command_names_the_redirect_and_sends_the_token_nowhere_else(server: RecordingServer) -> None:
    server.status = 307
    result = run_karrot("forget-cluster", "prod", "--karrot", server.url, env={"KARROT_API_TOKEN": "secret"})
    assert f"{server.url}/api/v1/groups: HTTP 307, a redirect" in result.stderr
    assert [each.path.partition("?")[0] for each in server.seen] == ["/api/v1/groups"]


def test_an_answer_that_does_not_come_in_time_is_an_error() -> None:
    with (
        ForwardProxy() as silent,  # nothing serves its socket
        HttpClient(f"http://{silent.address}", Limits(timeout_s=0.1)) as client,
        pytest.raises(Unavailable, match=r"no answer within 0\.1 s"),
    ):
        client.get("/")


def test_a_certificate_must_be_of_an_authority_of_openssl(
    server: RecordingServer, proxy: ForwardProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a tunnel through the proxy, which sees only the name of the host."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    command += ["-subj", f"/CN={KARROT}", "-addext", f"subjectAltName=DNS:{KARROT}", "-keyout", str(key)]
    subprocess.run([*command, "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url = f"https://{KARROT}:{server.server_port}"
    environ = {"HTTPS_PROXY": f"http://{proxy.address}"}
    with HttpClient(url, environ=environ) as client, pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
        client.get()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with HttpClient(url, environ=environ) as client:
        assert client.get().status == 202
    assert proxy.seen == [f"CONNECT {KARROT}:{server.server_port}"] * 2


UNCONFIRMED = "503 Service Unavailable"


def posted(*scripts: Script, retries: int = 1) -> tuple[Answer, int, list[float]]:
    """The answer to a post, the number of requests, and the pauses between them."""
    pauses: list[float] = []
    with scripted_server(*scripts) as (url, asked), HttpClient(url, Limits(pause=pauses.append)) as client:
        return client.post("/burrow", b"{}", retries=retries), len(asked), pauses


@pytest.mark.parametrize(
    ("header", "pause_s"),
    [(b"", 0.1), (b"Retry-After: 0\r\n", 0.1), (b"Retry-After: 7\r\n", 7.0), (b"Retry-After: soon\r\n", 0.1)],
)
def test_a_post_is_repeated_not_before_the_server_asks_for_it(header: bytes, pause_s: float) -> None:
    answer, requests, pauses = posted(http_response(b"", UNCONFIRMED, header), http_response(b"", "202 Accepted"))
    assert (answer.status, requests, pauses) == (202, 2, [pause_s])


def test_a_post_is_not_repeated_if_the_server_asks_for_a_pause_of_an_hour() -> None:
    answer, requests, pauses = posted(http_response(b"", UNCONFIRMED, b"Retry-After: 3600\r\n"))
    assert (answer.status, answer.retry_after_s, requests, pauses) == (503, 3600, 1, [])


def test_a_post_is_repeated_only_as_often_as_allowed_and_only_if_it_can_help() -> None:
    assert posted(http_response(b"", UNCONFIRMED), retries=0)[:2] == (ANY, 1)
    assert posted(*[http_response(b"", UNCONFIRMED)] * 3, retries=2)[1:] == (3, [0.1, 0.2])
    assert posted(http_response(b"", "400 Bad Request"), retries=2)[1:] == (1, [])


def test_a_url_with_a_slash_at_its_end_is_used_as_it_is(server: RecordingServer) -> None:
    with HttpClient(f"{server.url}/hooks/") as client:
        client.post("", b"{}")
        client.post("/more", b"{}")
    assert [each.path for each in server.seen] == ["/hooks/", "/hooks/more"]
