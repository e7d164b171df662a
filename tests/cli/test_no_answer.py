import ssl

import pytest

from support.karrot_command import run_karrot
from support.servers.recording_server import RecordingServer


def test_an_address_with_the_wrong_scheme_gets_the_right_one_in_the_message(server: RecordingServer) -> None:
    secure = server.url.replace("http:", "https:")
    assert f"does not use TLS: try {server.url}" in run_karrot("send-sample", "--karrot", secure).stderr
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=True)
    assert f"if it uses TLS, try {secure}" in run_karrot("send-sample", "--karrot", server.url).stderr


def test_an_unreachable_karrot_is_reported_in_one_line(server: RecordingServer) -> None:
    server.shutdown()  # a closed socket accepts connections as long as its thread polls
    server.server_close()
    for command in ("send-sample", "healthcheck"):
        result = run_karrot(command, "--karrot", server.url)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "Connection refused" in result.stderr
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "command",
    [
        *(
            "explain orders --karrot",
            "mute --list --karrot",
            "doctor --karrot",
            "doctor --burrow",
            "healthcheck --karrot",
        ),
        *("send-sample --karrot", "forget-cluster a --karrot", "groups --burrow", "burrow-config --karrot"),
        *("watch --bootstrap-servers a:9092 --cluster a --post", "render alert-rules --external-url"),
    ],
)
def test_no_message_shows_the_secrets_of_an_address(command: str) -> None:
    for url in ("http://h/?token=s3cret", "http://user:s3cret@h", "http://h/#s3cret"):
        result = run_karrot(*command.split(), url)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "must be an http:// or https:// address without user, query or fragment" in result.stderr
        assert "s3cret" not in result.stderr


def test_a_redirect_is_named_without_its_query(server: RecordingServer) -> None:
    server.status, server.location = 302, "https://login.example/?state=s3cret"
    result = run_karrot("explain", "orders", "--karrot", server.url)
    assert "a redirect to 'https://login.example/?***'" in result.stderr


@pytest.mark.parametrize(
    "command", ["explain orders", "mute --list", "mute --end a", "mute orders --cluster a --for 1h --reason r"]
)
@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (502, b"<html>bad gateway</html>", "HTTP 502 Bad Gateway, '<html>bad gateway</html>'"),
        (401, b"", "HTTP 401 Unauthorized, ''"),
        (403, b"\xff" + b"[" * 100_000, "HTTP 403 Forbidden, "),
        (404, b'{"detail": 5}', "HTTP 404 Not Found, "),
        (200, b"<html>log in</html>", "HTTP 200 OK, '<html>log in</html>'"),
        (200, b'{"mutes": [{}]}', "HTTP 200 OK, "),
        (599, b"null", "HTTP 599, 'null'"),
    ],
)
def test_an_answer_of_another_server_is_named_with_its_status(
    server: RecordingServer, command: str, status: int, body: bytes, said: str
) -> None:
    server.status, server.body = status, body
    result = run_karrot(*command.split(), "--karrot", server.url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"karrot: {server.url}/api/v1/")
    assert f": {said}" in result.stderr
    assert len(result.stderr.splitlines()) == 1
