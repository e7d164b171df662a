import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from karrot.cli import main
from support.pipeline import stale_partition_cases
from support.pipeline.row_times import minute_at
from support.pipeline.table_files import write_rows

AT = ["--at", "2026-11-20T00:10"]
HOST = "/10.1.2.3"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the cases of stale partitions, the group ``super-streamer`` with an owner, and its minutes."""
    directory = tmp_path_factory.mktemp("tables")
    written = minute_at(4)
    record: dict[str, Any] = {
        "cluster": "prod-eu",
        "consumer": "super-streamer",
        "topic": "stream",
        "log_partition": 1,
        "log_ts": written,
        "log_ts_ms": round(written.timestamp() * 1_000),
    }
    commits = [
        record | {"partition": number, "offset": 100 * number, "log_offset": number, "tombstone": False}
        for number in (0, 1)
    ]
    write_rows(directory, "commits", [*stale_partition_cases.commit_rows(), *commits])
    looks = [{"cluster": "prod-eu", "topic": "stream", "partition": number, "end_offset": 130} for number in (0, 1)]
    seen = minute_at(9)
    looked = {"start_offset": 20, "observed_at": seen, "observed_at_ms": round(seen.timestamp() * 1_000)}
    write_rows(directory, "ends", [*stale_partition_cases.end_rows(), *(each | looked for each in looks)])
    member = {"member_id": "c-1-8b2f", "client_id": "c-1", "client_host": HOST, "topic": "stream"}
    owned = [{"partition": number, "version": 3, "log_offset": 9} for number in (0, 2)]
    write_rows(directory, "members", [record | member | each for each in owned])
    minute = {"cluster": "prod-eu", "consumer": "super-streamer", "topic": "stream", "commits": 12}
    sums = [
        minute
        | {"minute": minute_at(at), "partition": number, "offset_sum": 1000 * at + number}
        | {"offset_first": at, "offset_last": at + 10 * number}
        for at in range(3)
        for number in range(2)
    ]
    idle = minute | {"minute": minute_at(3), "partition": 0, "commits": 0}
    write_rows(directory, "partition_lag_minute", [*sums, idle])
    return directory


def run(tables: Path, command: str, *rest: str) -> Result:
    return CliRunner().invoke(main, ["history", command, "--tables", str(tables), *rest], catch_exceptions=False)


def rows(result: Result) -> list[list[str]]:
    return [re.split(r"  +", line.strip()) for line in result.stdout.splitlines()]


def test_a_group_is_described_as_in_kafkas_tool_with_the_sum_last(tables: Path) -> None:
    asked, whose = ["--group", "super-streamer", *AT], "super-streamer of prod-eu, 2026-11-20 00:10:00"
    ages = "last commit 00:04:00, log ends of 00:09:00"
    assert rows(run(tables, "describe", *asked)) == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "OWNER"],
        ["super-streamer", "stream", "0", "0", "130", "130", "c-1-8b2f/10.1.2.3/c-1"],
        ["super-streamer", "stream", "1", "100", "130", "30", "-"],
        ["super-streamer", "stream", "2", "-", "-", "-", "c-1-8b2f/10.1.2.3/c-1"],
        [f"{whose}: lag 160, 3 partitions, 1 of unknown lag, 1 without an offset, 1 member, {ages}"],
    ]
    told = json.loads(run(tables, "describe", *asked, "--json").stdout)
    assert {name: told[name] for name in told if name != "partitions"} == {
        "cluster": "prod-eu",
        "group": "super-streamer",
        "at": "2026-11-20T00:10:00Z",
        "lag": 160,
        "unknown_lags": 1,
        "never_committed": 1,
        "members": 1,
    }
    assert told["partitions"][0] == {
        "topic": "stream",
        "partition": 0,
        "current_offset": 0,
        "log_end_offset": 130,
        "lag": 130,
        "consumer_id": "c-1-8b2f",
        "host": HOST,
        "client_id": "c-1",
        "committed_at": "2026-11-20T00:04:00Z",
        "looked_at": "2026-11-20T00:09:00Z",
    }


def test_a_group_with_unknown_owners_is_shown_with_the_reason(tables: Path) -> None:
    [*_, [total], [why]] = rows(run(tables, "describe", "--group", "stands while the log moves", *AT))
    assert total.startswith("stands while the log moves of prod-eu, ")
    assert why.startswith("the owners are unknown: ")
    assert "KIP-848" in why


def test_each_stale_partition_has_one_line_and_no_stale_partition_is_an_answer(tables: Path) -> None:
    one = "stands while the log moves"
    assert rows(run(tables, "stale", "--group", one, *AT)) == [
        ["SINCE", "STALE-FOR", "CLUSTER", "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"],
        ["2026-11-20 00:05:00", "5m", "prod-eu", one, one, "3", "300", "600", "300"],
        ["1 partition of 1 group stale, 2026-11-20 00:10:00: last commit 00:05:00, log ends of 00:10:00"],
    ]
    longer = run(tables, "stale", "--group", one, *AT, "--stale-for", "301s")
    known = "last commit 00:05:00, log ends of 00:10:00"
    assert (longer.exit_code, longer.stdout) == (0, f"0 partitions of 0 groups stale, 2026-11-20 00:10:00: {known}\n")
    [*_, [late]] = rows(run(tables, "stale", "--group", one, "--at", "2026-11-20T00:13"))
    assert late.endswith("log ends of 00:10:00 (no newer ones are known)")
    [*_, [early]] = rows(run(tables, "stale", "--group", one, "--at", "2026-11-20T00:13", "--stale-for", "3m"))
    assert early.endswith("log ends of 00:10:00")
    [*_, total] = rows(run(tables, "stale", *AT))
    [_head, _first, limited] = rows(run(tables, "stale", *AT, "--limit", "1"))
    assert (limited, total[0].startswith("1 partition of 1 group stale")) == (total, False)
    told = json.loads(run(tables, "stale", *AT, "--limit", "1", "--json").stdout)
    assert (told["looked_at"], told["committed_at"] is None) == ("2026-11-20T00:10:00Z", False)
    assert (told["at"], [each["lag"] for each in told["partitions"]]) == ("2026-11-20T00:10:00Z", [1])


def test_each_risk_has_one_line_with_the_next_one_first(tables: Path) -> None:
    group = "super-streamer"
    asked = ["--group", group, "--at", "2026-11-20T01:00", "--retention", "2h"]
    assert rows(run(tables, "risks", *asked)) == [
        ["RISK", "AT", "CLUSTER", "GROUP", "TOPIC", "PARTITION", "OFFSET", "LAG", "MARGIN", "BECAUSE"],
        ["log_start", "2026-11-20 01:00:00", "prod-eu", group, "stream", "0", "0", "130", "-20", "messages lost"],
        ["1 partition of 1 group at risk, 1 log_start; last commit 00:04:00"],
    ]
    told = json.loads(run(tables, "risks", *asked, "--json").stdout)
    assert (told["at"], told["committed_at"]) == ("2026-11-20T01:00:00Z", "2026-11-20T00:04:00Z")
    assert [(each["kind"], each["at"], each["margin"]) for each in told["risks"]] == [
        ("log_start", "2026-11-20T01:00:00Z", -20)
    ]
    lone = run(tables, "risks", "--group", "reads on", "--at", "2026-11-26T12:00", "--limit", "1")
    assert rows(lone)[1:] == [
        [
            "expires",
            "2026-11-27 00:09:55",
            "prod-eu",
            "reads on",
            "reads on",
            "3",
            "595",
            "5",
            "595",
            "no commit since",
        ],
        ["1 partition of 1 group at risk, 1 expires; last commit 2026-11-20 00:09:55"],
    ]


def test_the_answer_says_which_inputs_of_risks_no_table_has(tmp_path: Path) -> None:
    write_rows(tmp_path, "commits", stale_partition_cases.commit_rows())
    asked = ["--group", "reads on", "--at", "2026-11-26T12:00"]
    assert run(tmp_path, "risks", *asked).stdout == (
        "0 partitions of 0 groups at risk; last commit 2026-11-20 00:09:55; log ends not known; members not known\n"
    )
    told = json.loads(run(tmp_path, "risks", *asked, "--json").stdout)
    assert (told["unknown"], told["risks"]) == (["log ends", "members"], [])


def test_the_sum_of_offsets_by_minute_can_be_listed_newest_first(tables: Path) -> None:
    day = ["--group", "super-streamer", "--from", "2026-11-20", "--to", "2026-11-21"]
    assert rows(run(tables, "timeseries", *day, "--metric", "offset", "--order", "desc")) == [
        ["TIME", "OFFSET"],
        ["2026-11-20 00:02", "4001"],
        ["2026-11-20 00:01", "2001"],
        ["2026-11-20 00:00", "1"],
    ]
    metrics = ["--metric", "offset_first,offset_last,commits", "--granularity", "1h"]
    assert rows(run(tables, "timeseries", *day, *metrics))[1:] == [["2026-11-20 00:00", "0", "14", "72"]]
    one = run(tables, "timeseries", *day, *metrics, "--topic", "stream", "--partition", "1")
    assert rows(one)[1:] == [["2026-11-20 00:00", "0", "12", "36"]]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["describe", "--group", "nobody", *AT], 1, "no data about group 'nobody' at 2026-11-20 00:10 UTC"),
        (["describe", "--group", "g", "--look-back", "1w"], 2, "--look-back is '1w': it must be seconds, or a number"),
        (
            ["stale", "--stale-for", "0s"],
            2,
            "--stale-for is '0s': it must be seconds, or a number with s, m, h or d, from 1s",
        ),
        (["risks", "--at", "tomorrow"], 2, "'tomorrow' is not a time"),
        (
            ["timeseries", "--group", "g", "--metric", "partition_lag"],
            1,
            "no data about partition_lag of group 'g' from",
        ),
        (
            ["timeseries", "--group", "super-streamer", "--metric", "partition_lag"],
            1,
            "no data about partition_lag of group 'super-streamer' from",
        ),
        (["timeseries", "--group", "g"], 2, "has no table lag_minute: run karrot pipeline run --once --only derive"),
    ],
)
def test_a_question_without_an_answer_gives_one_sentence(
    tables: Path, arguments: list[str], code: int, sentence: str
) -> None:
    result = run(tables, *arguments)
    [line] = result.stderr.splitlines()
    assert (result.exit_code, line[:8], sentence in line) == (code, "karrot: ", True), line


def test_no_stale_partition_is_not_the_answer_for_an_unknown_group(tables: Path) -> None:
    for command in ("stale", "risks"):
        for named in (["--group", "mistyped"], ["--cluster", "mistyped"]):
            result = run(tables, command, *named, *AT)
            assert (result.exit_code, result.stdout) == (1, "")
            assert "no data about" in result.stderr
        assert "no data about any group" in run(tables, command, "--at", "2027-11-20").stderr


def test_a_day_other_than_the_requested_one_is_shown(tables: Path) -> None:
    [*_, [told]] = rows(run(tables, "describe", "--group", "super-streamer", "--at", "2026-11-22"))
    assert told.endswith("last commit 2026-11-20 00:04:00, log ends of 2026-11-20 00:09:00")
