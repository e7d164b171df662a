"""`karrot groups`, `status` and `lag` ask the fake Burrow over HTTP."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from karrot.cli import main
from karrot.cli.print_table import width_of
from support.burrow.fake.simulated_kafka import Behaviour, Phase
from support.burrow.fake_burrow_rig import FakeBurrowRig, fake_burrow, simulated_group
from support.servers.scripted_server import http_response, scripted_server

ROOT = Path(__file__).parents[2]
RECORDED = (ROOT / "tests" / "data" / "burrow" / "real" / "rest-lag-warn.json").read_bytes()
CLUSTERS = b'{"error":false,"message":"cluster list returned","clusters":["stack"]}'
STALLED = Behaviour((Phase(100_000, pace=0),), starts=(0, 0))


@pytest.fixture
def asked() -> Iterator[FakeBurrowRig]:
    with fake_burrow(
        simulated_group("billing"), simulated_group("audit", STALLED, topic="audit.log", partitions=2)
    ) as told:
        told.after(60)
        yield told


def karrot(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"KARROT_BURROW_URL": None, **environ})


def run(asked: FakeBurrowRig, *arguments: str, **environ: str) -> Result:
    return karrot(*arguments, "--burrow", asked.server.url, **environ)


# The tables


def test_the_recorded_answer_is_printed_as_a_table() -> None:
    with scripted_server(http_response(CLUSTERS), http_response(RECORDED)) as (url, _):
        result = karrot("lag", "--group", "skewed-consumer-group", "--burrow", url)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "GROUP                  TOPIC         PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  STATUS  OWNER\n"
        "skewed-consumer-group  skewed-topic          0             115             383  268  WARN    -\n"
        "skewed-consumer-group  skewed-topic          1              57             196  139  WARN    -\n"
        "skewed-consumer-group  skewed-topic          2              58             187  129  WARN    -\n"
        "skewed-consumer-group: WARN, lag 536, 50% of it in skewed-topic-0; 3 partitions\n"
    )
    assert f"```text\n{result.stdout}```" in (ROOT / "docs" / "burrow.md").read_text(encoding="utf-8")


def test_each_group_has_one_line_and_the_sum_follows(asked: FakeBurrowRig) -> None:
    result = run(asked, "groups")
    head, audit, billing, total = result.stdout.splitlines()
    assert head.split() == ["GROUP", "STATUS", "LAG", "SHARE", "WORST", "PARTITIONS", "COMPLETE"]
    assert (audit.split()[:2], billing.split()[:2]) == (["audit", "ERR"], ["billing", "OK"])
    lags = [int(line.split()[2]) for line in (audit, billing)]
    assert total == f"prod: 2 groups, lag {sum(lags)}; 1 ERR, 1 OK"


def test_status_lists_only_bad_partitions(asked: FakeBurrowRig) -> None:
    lines = run(asked, "status").stdout.splitlines()
    assert [line.split()[:3] for line in lines[1:3]] == [["audit", "audit.log", "0"], ["audit", "audit.log", "1"]]
    assert lines[3].startswith("audit: ERR, lag ")
    assert lines[-1].startswith("billing: OK, lag ")


def test_lag_lists_every_partition_of_every_group(asked: FakeBurrowRig) -> None:
    blocks = run(asked, "lag").stdout.split("\n\n")
    assert [len(block.strip().splitlines()) for block in blocks] == [4, 5]


@pytest.mark.parametrize("option", ["--json", "-ojson"])
def test_json_is_one_line_with_exact_numbers(asked: FakeBurrowRig, option: str) -> None:
    [line] = run(asked, "lag", "--group", "billing", option).stdout.splitlines()
    told = json.loads(line)
    verdict = asked.burrow.lag("prod", "billing")
    [billing] = told["groups"]
    assert (told["cluster"], told["failed"]) == ("prod", [])
    assert (billing["group"], billing["status"], billing["lag"]) == ("billing", "OK", verdict.total_lag)
    for partition, known in zip(billing["partitions"], verdict.partitions, strict=True):
        assert known.end is not None
        assert known.current_lag is not None
        assert (partition["current_offset"], partition["lag"], partition["owner"], partition["client_id"]) == (
            known.end.offset,
            known.current_lag,
            known.owner,
            known.client_id,
        )
        assert partition["log_end_offset"] == known.end.offset + known.current_lag


def test_the_address_may_come_from_the_environment(asked: FakeBurrowRig) -> None:
    assert karrot("groups", KARROT_BURROW_URL=asked.server.url).exit_code == 0


# Unusual names


def test_unusual_names_take_one_line_and_cannot_control_the_terminal() -> None:
    names = ["\x1b[2Jred", "two words", " padded", "漢字", "line\nbreak", "right\u202eleft", "a/b"]
    with fake_burrow(*[simulated_group(name) for name in names]) as asked:
        result = run(asked, "groups")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[1:-1]] == [
        r"\x1b[2Jred",
        '" padded"',
        r"line\nbreak",
        r"right\u202eleft",
        "two words",
        "漢字",
    ]
    assert len({width_of(line[: line.index("OK")]) for line in lines[1:-1]}) == 1
    assert result.stderr == (
        f"""karrot: 'a/b' is not shown: {asked.server.url}/v3/kafka/prod/consumer/a%2Fb/status: """
        """a request to Burrow cannot contain a name with "/" in it\n"""
    )


# Errors from Burrow


@pytest.mark.parametrize("command", ["groups", "status", "lag"])
def test_an_unknown_group_gives_one_sentence_and_exit_code_1(command: str, asked: FakeBurrowRig) -> None:
    result = run(asked, command, "--group", "billing", "--group", "nobody")
    assert result.exit_code == 1
    assert "billing" in result.stdout
    call = "lag" if command == "lag" else "status"
    url = f"{asked.server.url}/v3/kafka/prod/consumer/nobody/{call}"
    assert result.stderr == f"karrot: 'nobody' is not shown: {url}: Burrow does not know the group\n"


def test_asking_for_a_name_with_a_slash_is_an_error(asked: FakeBurrowRig) -> None:
    result = run(asked, "lag", "--group", "team/billing")
    assert (result.exit_code, 'a name with "/" in it' in result.stderr) == (1, True)


def test_one_of_several_clusters_must_be_named() -> None:
    with fake_burrow(simulated_group("billing"), clusters=("prod", "test")) as asked:
        unnamed = run(asked, "groups")
        assert (unnamed.exit_code, unnamed.stderr) == (
            2,
            "karrot: Burrow has 2 clusters: give --cluster with one of prod, test\n",
        )
        assert "billing" in run(asked, "groups", "--cluster", "PROD").stdout
        empty = run(asked, "groups", "--cluster", "test")
        assert (empty.exit_code, empty.stdout, empty.stderr) == (1, "", "karrot: Burrow has no group in test\n")
        wrong = run(asked, "groups", "--cluster", "nowhere")
        assert (wrong.exit_code, wrong.stderr) == (
            1,
            f"karrot: {asked.server.url}: Burrow has no cluster 'nowhere'; its clusters: prod, test\n",
        )


def test_a_starting_burrow_is_reported_as_starting(asked: FakeBurrowRig) -> None:
    asked.fake.restart()
    asked.after(1)
    result = run(asked, "groups")
    assert (result.exit_code, result.stderr) == (1, "karrot: Burrow has no group in prod: Burrow is still starting\n")


def test_an_unreachable_burrow_gives_one_sentence_and_exit_code_1() -> None:
    with scripted_server() as (url, _):
        pass
    result = karrot("lag", "--burrow", url)
    assert (result.exit_code, result.stderr) == (1, f"karrot: {url}/v3/kafka: no connection: Connection refused\n")


@pytest.mark.parametrize("url", ["burrow:8000", "ftp://burrow", "http://"])
def test_an_invalid_address_is_refused(url: str) -> None:
    result = karrot("lag", "--burrow", url)
    assert (result.exit_code, result.stderr.startswith(f"karrot: --burrow is '{url}'")) == (2, True)


def test_a_group_that_is_deleted_after_the_list_was_read_is_left_out() -> None:
    consumers = b'{"error":false,"message":"","consumers":["gone"]}'
    not_found = (
        b'{"error":false,"message":"","status":{"cluster":"stack","group":"gone","status":"NOTFOUND","totallag":0}}'
    )
    with scripted_server(
        http_response(CLUSTERS), http_response(consumers), http_response(not_found, "404 Not Found")
    ) as (url, _):
        result = karrot("groups", "--burrow", url)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "karrot: Burrow has no group in stack\n")
