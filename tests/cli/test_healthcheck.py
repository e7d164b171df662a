from support.karrot_command import run_karrot
from support.servers.recording_server import RecordingServer


def test_health_is_asked_of_this_machine_where_karrot_listens(server: RecordingServer) -> None:
    server.status = 200
    result = run_karrot(
        "healthcheck", env={"KARROT_BIND": f"0.0.0.0:{server.server_port}", "http_proxy": "http://127.0.0.1:1"}
    )
    assert (result.exit_code, result.stdout) == (0, '{"status":"told"}\n')
    assert [(each.method, each.path) for each in server.seen] == [("GET", "/healthz")]


def test_a_karrot_that_is_not_well_is_not_healthy(server: RecordingServer) -> None:
    server.status = 500
    result = run_karrot("healthcheck", "--url", server.url)
    assert (result.exit_code, result.stderr) == (1, 'karrot: 500: {"status":"told"}\n')
