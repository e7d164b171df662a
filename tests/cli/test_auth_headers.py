from pathlib import Path

from support.karrot_command import run_karrot
from support.servers.recording_server import RecordingServer


def test_a_sample_is_sent_with_credentials_that_are_not_arguments(server: RecordingServer, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2\n")
    file = str(tmp_path / "secret")
    run_karrot("send-sample", "--karrot", server.url, "--user", "burrow", env={"KARROT_BURROW_PASSWORD": "hunter2"})
    run_karrot("send-sample", "--karrot", server.url, env={"KARROT_BURROW_TOKEN": "hunter2"})
    run_karrot("send-sample", "--karrot", server.url, "--user", "burrow", env={"KARROT_BURROW_PASSWORD_FILE": file})
    run_karrot("send-sample", "--karrot", server.url, env={"KARROT_BURROW_TOKEN_FILE": file})
    run_karrot("send-sample", "--karrot", server.url)
    basic = "Basic YnVycm93Omh1bnRlcjI="
    assert [each.headers.get("Authorization") for each in server.seen] == [
        *(basic, "Bearer hunter2"),
        *(basic, "Bearer hunter2", None),
    ]


def test_a_missing_secret_file_gives_one_sentence(server: RecordingServer) -> None:
    result = run_karrot("send-sample", "--karrot", server.url, env={"KARROT_BURROW_TOKEN_FILE": "/none"})
    assert (result.exit_code, server.seen) == (2, [])
    assert result.stderr == (
        "karrot: KARROT_BURROW_TOKEN_FILE names '/none', which cannot be read: No such file or directory\n"
    )


def test_a_user_without_a_password_gives_one_sentence(server: RecordingServer) -> None:
    result = run_karrot("send-sample", "--karrot", server.url, "--user", "burrow")
    assert (result.exit_code, server.seen) == (2, [])
    assert result.stderr == (
        "karrot: --user needs a password: set KARROT_BURROW_PASSWORD or KARROT_BURROW_PASSWORD_FILE\n"
    )


def test_a_token_that_no_header_can_hold_is_refused_without_showing_it(server: RecordingServer) -> None:
    result = run_karrot("send-sample", "--karrot", server.url, env={"KARROT_BURROW_TOKEN": "hunter2\nX: y"})
    assert (result.exit_code, result.stderr) == (2, "karrot: a Bearer token must be printable ASCII\n")
