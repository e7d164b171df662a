import ssl

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
