from collections.abc import Iterator

import pytest

from support.burrow.recorded_bodies import recorded_body
from support.karrot_command import run_karrot
from support.servers.recording_server import RecordingServer
from support.service.karrot_service import Service

ORDERS = ("mute", "orders-*", "--cluster", "prod-eu", "--for", "2h", "--reason", "a planned\tmigration")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("mute") / "data"
    with Service(directory, workers="1", event_log="memory", api_token="secret") as service:
        assert service.post(recorded_body("karrot_v1.9.5_err_stop.json")).status == 202
        yield service


@pytest.fixture
def env(service: Service) -> dict[str, str]:
    return {"KARROT_URL": f"http://127.0.0.1:{service.port}", "KARROT_API_TOKEN": "secret"}


def test_a_group_is_muted_listed_and_heard_again(env: dict[str, str]) -> None:
    begun = run_karrot(*ORDERS, env=env)
    assert (begun.exit_code, begun.stderr) == (0, "")
    known, *told = begun.stdout.rstrip().split("  ")
    assert (told[:2], told[3]) == (["prod-eu", "orders-*"], r"a planned\u{9}migration")
    assert run_karrot("mute", "--list", env=env).stdout == begun.stdout
    assert run_karrot("mute", "--end", known, env=env).stdout == begun.stdout
    assert run_karrot("mute", "--list", env=env).stdout == ""
    again = run_karrot("mute", "--end", known, env=env)
    assert (again.exit_code, again.stderr) == (1, "karrot: No mute has this id. It may have ended.\n")


def test_a_mute_without_its_options_names_them() -> None:
    refused = run_karrot("mute", "x", "--for", "2h", "--karrot", "http://127.0.0.1:1")
    assert refused.exit_code == 2
    assert refused.stderr.endswith("Error: A mute needs --cluster and --reason.\n")


def test_a_group_that_does_not_live_yet_is_muted_with_a_note(env: dict[str, str]) -> None:
    begun = run_karrot("mute", "later", *ORDERS[2:], env=env)
    assert begun.exit_code == 0
    assert begun.stderr == "No live group has such a name now. Groups that appear later are muted.\n"
    run_karrot("mute", "--end", begun.stdout.split("  ")[0], env=env)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("orders", "--cluster", "a", "--for", "31d", "--reason", "r"), "for is '31d': it must be seconds, or a"),
        (("orders", "--cluster", "a", "--for", "2h", "--reason", " "), "reason must have 1 to 500 characters."),
        (("[", "--cluster", "a", "--for", "2h", "--reason", "r"), "pattern has a [ without a ]"),
    ],
)
def test_karrots_refusal_is_shown(env: dict[str, str], arguments: tuple[str, ...], sentence: str) -> None:
    refused = run_karrot("mute", *arguments, env=env)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"karrot: {sentence}")


def test_without_the_token_nothing_is_muted(env: dict[str, str]) -> None:
    refused = run_karrot(*ORDERS, env={**env, "KARROT_API_TOKEN": ""})
    assert (refused.exit_code, refused.stderr) == (1, "karrot: The API token is missing or wrong.\n")


@pytest.mark.parametrize("arguments", [(), ("orders", "--list"), ("--list", "--end", "1"), ("orders", "--end", "1")])
def test_a_command_does_one_thing(arguments: tuple[str, ...]) -> None:
    refused = run_karrot("mute", *arguments, "--karrot", "http://127.0.0.1:1")
    assert refused.exit_code == 2
    assert "Give a group or a pattern, or --list, or --end." in refused.stderr


def test_a_server_that_is_not_karrot_is_named(server: RecordingServer) -> None:
    refused = run_karrot("mute", "--list", "--karrot", server.url)
    assert refused.exit_code == 1
    assert server.url in refused.stderr
