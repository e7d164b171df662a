import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from karrot.cli import main
from karrot.history import table_files_in_folder
from support.pipeline.mirrored_tables import aws_environment
from support.pipeline.row_times import minute_at
from support.pipeline.table_files import incident_row, lag_minute_row, verdict_run_row, write_note, write_rows

DAY = ["--from", "2026-11-20", "--to", "2026-11-21"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tables")
    orders = {"consumer": "orders/eu svc", "cluster": "prod"}
    lags = [lag_minute_row(at, at * 10, "WARN" if at > 2 else "OK", **orders) for at in range(5)]
    other = [
        lag_minute_row(3, None, consumer="\x1b[red", cluster="prod"),
        lag_minute_row(5, 7, **orders | {"cluster": "test"}),
    ]
    write_rows(directory, "lag_minute", [*lags, *other])
    open_one = incident_row(4, None, "018f-open", peak_lag=40, **orders)
    write_rows(directory, "incidents", [incident_row(3, 3.75, "018f-ended", topics=["a", "b"], **orders), open_one])
    runs = [
        verdict_run_row(0, 5, **orders),
        verdict_run_row(5, **orders | {"cluster": "test"}),
        verdict_run_row(3, consumer="\x1b[red", cluster="prod"),
    ]
    write_rows(directory, "verdict_runs", runs)
    write_note(directory)
    return directory


def run(tables: Path, *arguments: str, **environment: str) -> Result:
    command, *rest = arguments
    asked = ["history", command, "--tables", str(tables), *rest]
    return CliRunner().invoke(main, asked, env=environment or None, catch_exceptions=False)


def test_each_group_has_one_line(tables: Path) -> None:
    rows = [re.split(r"  +", line) for line in run(tables, "groups", *DAY).stdout.splitlines()]
    assert rows == [
        [
            "CLUSTER",
            "GROUP",
            "STATUS",
            "WORST",
            "LAG",
            "MAX-LAG",
            "MAX-SECONDS",
            "MINUTES",
            "NOT-OK",
            "INCIDENTS",
            "LAST",
        ],
        ["prod", r"\x1b[red", "OK", "OK", "-", "-", "-", "1", "0", "0", "2026-11-20 00:03"],
        ["prod", "orders/eu svc", "WARN", "WARN", "40", "40", "-", "5", "2", "2", "2026-11-20 00:04"],
        ["test", "orders/eu svc", "OK", "OK", "7", "7", "-", "1", "0", "0", "2026-11-20 00:05"],
        ["3 groups; at worst 1 WARN, 2 OK"],
    ]
    first = run(tables, "groups", *DAY, "--limit", "1", "--order", "incidents").stdout.splitlines()
    assert [line.split()[:3] for line in first[1:]] == [["prod", "orders/eu", "svc"], ["3", "groups", "(1"]]


def test_a_group_without_a_verdict_has_a_lag_but_no_status_and_no_number_of_incidents(tmp_path: Path) -> None:
    write_rows(tmp_path, "lag_minute", [lag_minute_row(1, 7, worst_status=None, not_ok=0)])
    heads, row, tally = run(tmp_path, "groups", *DAY).stdout.splitlines()
    told = dict(zip(heads.split(), row.split(), strict=False))
    shown = [told[name] for name in ("STATUS", "WORST", "LAG", "NOT-OK", "INCIDENTS")]
    assert (shown, tally) == (["-", "-", "7", "0", "-"], "1 group")
    listed = json.loads(run(tmp_path, "groups", *DAY, "--order", "incidents", "--json").stdout)["groups"]
    assert [each["incidents"] for each in listed] == [None]


def test_one_long_name_does_not_widen_other_lines_and_seconds_are_whole(tmp_path: Path) -> None:
    names = {"g" * 32_767: 311.6, "short": 41.0}
    write_rows(
        tmp_path, "lag_minute", [lag_minute_row(1, 7, consumer=name, lag_seconds_max=of) for name, of in names.items()]
    )
    _heads, long, short, _tally = run(tmp_path, "groups", *DAY).stdout.splitlines()
    assert (long.split()[1], [long.split()[6], short.split()[6]]) == ("g" * 32_767, ["312", "41"])
    assert len(short) < 110


def test_a_time_series_has_one_line_for_each_step(tables: Path) -> None:
    asked = ["timeseries", "--group", "orders/eu svc", "--cluster", "prod", *DAY, "--granularity", "2m"]
    result = run(
        tables, *asked, "--metric", "lag,lag_avg", "--metric", "lag_seconds", "--order", "desc", "--limit", "2"
    )
    assert result.stdout.splitlines() == [
        "TIME              LAG  LAG-AVG  LAG-SECONDS",
        "2026-11-20 00:04   40       40            -",
        "2026-11-20 00:02   30       25            -",
    ]
    assert json.loads(run(tables, *asked, "--metric", "lag", "--limit", "1", "--json").stdout) == {
        "cluster": "prod",
        "group": "orders/eu svc",
        "granularity_seconds": 120,
        "points": [{"at": "2026-11-20T00:00:00Z", "lag": 10}],
        "days": {"held": [{"first": "2026-11-20", "last": "2026-11-20"}], "missing": []},
    }


def test_each_incident_has_one_line(tables: Path) -> None:
    assert run(tables, "incidents", *DAY).stdout.splitlines() == [
        "STARTED           LASTED  CLUSTER  GROUP          WORST  PEAK-LAG  ENDED-BY  EVENTS  TOPICS  INCIDENT",
        "2026-11-20 00:04       -  prod     orders/eu svc  ERR          40  open           2  t       018f-open",
        "2026-11-20 00:03     45s  prod     orders/eu svc  ERR          10  close          2  a, b    018f-ended",
        "2 incidents, 1 open",
    ]
    assert run(tables, "incidents", *DAY, "--limit", "1").stdout.splitlines()[2:] == ["2 incidents (1 shown), 1 open"]
    [oldest] = json.loads(run(tables, "incidents", *DAY, "--order", "oldest", "--limit", "1", "--json").stdout)[
        "incidents"
    ]
    assert oldest == {
        "incident_id": "018f-ended",
        "cluster": "prod",
        "group": "orders/eu svc",
        "started_at": "2026-11-20T00:03:00Z",
        "ended_at": "2026-11-20T00:03:45Z",
        "ended_by": "close",
        "worst_status": "ERR",
        "peak_lag": 10,
        "events": 2,
        "topics": ["a", "b"],
    }


@pytest.fixture
def gaps(tmp_path: Path) -> Path:
    """Group g has the 10th, 11th and 13th, group h the 13th, cluster d other days; one incident is on the 11th.

    A run of ``derive`` that has not ended wrote the 14th.
    """
    moments = {"g": (10, 11, 13), "h": (13,)}
    runs = [verdict_run_row(*judged_on(day), consumer=group) for group, days in moments.items() for day in days]
    runs += [verdict_run_row(*judged_on(day), consumer="d", cluster="d") for day in (11, 13)]
    write_rows(tmp_path, "verdict_runs", runs)
    minutes = [lag_minute_row(at_day(day), 1, consumer=group) for group, days in moments.items() for day in days]
    write_rows(tmp_path, "lag_minute", minutes)
    write_rows(tmp_path, "incidents", [incident_row(at_day(11), at_day(13) + 30)])
    write_note(tmp_path)
    write_rows(tmp_path, "verdict_runs", [verdict_run_row(*judged_on(14))])
    write_rows(tmp_path, "lag_minute", [lag_minute_row(at_day(14), 1)])
    return tmp_path


def at_day(day: int) -> int:
    """Return noon of a day of November 2025, in minutes since the start time of the test rows."""
    return (day - 20 - 365) * 1440 + 720


def judged_on(day: int) -> tuple[int, int]:
    """Return rows that judge a group from noon until the last verdict before midnight."""
    return at_day(day), at_day(day) + 718


def asked(tables: Path, first: int, last: int, *arguments: str, command: str = "incidents") -> tuple[int, str, str]:
    """Ask about days of that month; return the exit code, the answer's last line and the standard error."""
    result = run(tables, command, "--from", f"2025-11-{first:02}", "--to", f"2025-11-{last + 1:02}", *arguments)
    said = result.stderr.replace(str(tables), "<tables>").removeprefix("karrot: ").removesuffix("\n")
    return result.exit_code, (result.stdout.splitlines() or [""])[-1], said


def test_no_incident_is_an_answer_if_all_days_are_held(gaps: Path) -> None:
    assert asked(gaps, 10, 10) == (0, "0 incidents", "")
    assert asked(gaps, 13, 13, "--group", "h") == (0, "0 incidents", "")
    assert asked(gaps, 13, 13, "--cluster", "d") == (0, "0 incidents", "")


def test_days_that_are_not_held_give_no_answer(gaps: Path) -> None:
    held = "<tables> has 2025-11-10 to 2025-11-11, 2025-11-13"
    assert asked(gaps, 20, 21) == (
        1,
        "",
        f"no data about incidents of any group from 2025-11-20 00:00 to 2025-11-22 00:00 UTC; {held}",
    )
    assert asked(gaps, 14, 14)[::2] == (
        1,
        f"no data about incidents of any group from 2025-11-14 00:00 to 2025-11-15 00:00 UTC; {held}",
    )
    assert asked(gaps, 10, 11, "--group", "h")[2].endswith("; <tables> has 2025-11-13")
    span = "from 2025-11-10 00:00 to 2025-11-11 00:00 UTC"
    assert asked(gaps, 10, 10, "--cluster", "d")[::2] == (
        1,
        f"no data about incidents of any group of cluster 'd' {span}; <tables> has 2025-11-11, 2025-11-13",
    )


def test_partly_held_days_give_an_answer_that_names_the_missing_days(gaps: Path) -> None:
    assert asked(gaps, 9, 12) == (
        0,
        "1 incident",
        "the tables do not hold 2025-11-09, 2025-11-12 (2 of 4 days)",
    )
    assert asked(gaps, 9, 10) == (
        0,
        "0 incidents",
        "the tables do not hold 2025-11-09 (1 of 2 days)",
    )
    assert asked(gaps, 10, 14, "--group", "h")[1:] == (
        "0 incidents",
        "the tables do not hold 2025-11-10 to 2025-11-12, 2025-11-14 (4 of 5 days)",
    )


def test_an_incident_of_an_earlier_day_answers_for_a_day_that_is_not_held(gaps: Path) -> None:
    assert asked(gaps, 12, 12) == (
        0,
        "1 incident",
        "the tables do not hold 2025-11-12 (1 of 1 day)",
    )


def test_groups_and_series_name_the_days_that_are_not_held(gaps: Path) -> None:
    assert asked(gaps, 11, 13, command="groups") == (
        0,
        "2 groups; at worst 2 OK",
        "the tables do not hold 2025-11-12 (1 of 3 days)",
    )
    assert asked(gaps, 13, 14, "--group", "g", command="timeseries") == (
        0,
        "2025-11-13 12:00    1",
        "the tables do not hold 2025-11-14 (1 of 2 days)",
    )
    assert asked(gaps, 20, 20, "--group", "h", command="groups")[::2] == (
        1,
        "no data about group 'h' from 2025-11-20 00:00 to 2025-11-21 00:00 UTC; <tables> has 2025-11-13",
    )


@pytest.mark.parametrize("command", ["incidents", "groups", "timeseries"])
def test_json_has_the_days_as_ranges_and_standard_error_stays_empty(gaps: Path, command: str) -> None:
    group = ["--group", "g"] if command == "timeseries" else []
    code, line, said = asked(gaps, 8, 13, *group, "--json", command=command)
    assert (code, json.loads(line)["days"], said) == (
        0,
        {
            "held": [{"first": "2025-11-10", "last": "2025-11-11"}, {"first": "2025-11-13", "last": "2025-11-13"}],
            "missing": [{"first": "2025-11-08", "last": "2025-11-09"}, {"first": "2025-11-12", "last": "2025-11-12"}],
        },
        "",
    )


def test_json_of_incidents_has_the_newest_verdict(gaps: Path) -> None:
    _, line, _ = asked(gaps, 10, 12, "--json", "--order", "oldest", "--limit", "1")
    assert json.loads(line)["newest_verdict"] == "2025-11-11T23:58:00Z"
    _, line, _ = asked(gaps, 12, 12, "--json")
    assert json.loads(line)["newest_verdict"] is None


def test_many_ranges_of_days_are_summarized(tmp_path: Path) -> None:
    days = range(1, 28, 2)
    write_rows(tmp_path, "lag_minute", [lag_minute_row(at_day(day), 1, worst_status=None) for day in days])
    assert asked(tmp_path, 10, 28, command="groups")[2] == (
        "the tables do not hold 2025-11-10, 2025-11-12, 2025-11-14, 2025-11-16, "
        "2025-11-18 and 5 later days (10 of 19 days)"
    )


def test_hours_after_the_newest_verdict_and_future_days_do_not_count_as_missing(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    minutes = (now - minute_at(0)) // timedelta(minutes=1)
    runs = [verdict_run_row(minutes - 1440 * day, day=(now - timedelta(days=day)).date()) for day in (0, 1)]
    write_rows(tmp_path, "verdict_runs", runs)
    write_rows(tmp_path, "lag_minute", [lag_minute_row(minutes, 1)])
    write_note(tmp_path)
    tomorrow = f"{(now + timedelta(days=3)).date()}"
    for span in ([], ["--to", tomorrow]):
        result = run(tmp_path, "incidents", *span)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "0 incidents\n", "")


def test_a_time_after_the_newest_verdict_of_its_day_is_reported(tmp_path: Path) -> None:
    write_rows(
        tmp_path,
        "verdict_runs",
        [verdict_run_row(at_day(10) - 60, at_day(10))],
    )
    write_rows(tmp_path, "lag_minute", [lag_minute_row(at_day(10), 1)])
    write_note(tmp_path)

    def said(first: str, last: str) -> tuple[int, str, str]:
        result = run(tmp_path, "incidents", "--from", f"2025-11-{first}", "--to", f"2025-11-{last}")
        return result.exit_code, result.stdout, result.stderr

    newest = "karrot: the newest verdict is from 2025-11-10 12:00 UTC\n"
    for span in (("10T13:00", "10T14:00"), ("10T11:00", "10T12:06"), ("10", "11")):
        assert said(*span) == (0, "0 incidents\n", newest)
    missing = "karrot: the tables do not hold 2025-11-11 (1 of 2 days)\n"
    assert said("10", "12") == (0, "0 incidents\n", missing + newest)
    assert said("10T11:00", "10T12:05") == (0, "0 incidents\n", "")


def test_incidents_are_unknown_if_the_tables_are_not_of_one_run_of_derive(gaps: Path) -> None:
    (gaps / "_derived.json").unlink()
    for whose in ([], ["--group", "g"]):
        code, _, said = asked(gaps, 10, 10, *whose)
        assert code == 1
        assert said.endswith("; <tables> has no day of it")
    heads, row, _ = run(gaps, "groups", "--from", "2025-11-11", "--to", "2025-11-12").stdout.splitlines()
    assert dict(zip(heads.split(), row.split(), strict=False))["INCIDENTS"] == "-"


@pytest.mark.parametrize("url", ["s3://Lag", "gs://lag", "hdfs://nn:8020/t", "file://host/tables"])
def test_tables_at_another_url_are_refused_with_the_option_or_setting_that_named_them(url: str) -> None:
    allowed = "a path, or s3://bucket/prefix. From another file system, copy the tables to a path"
    wrong = f"is {url!r}: it must be {allowed}\n"
    for command in ("groups", "incidents", "stale"):
        named = CliRunner().invoke(main, ["history", command, "--tables", url])
        from_environment = CliRunner().invoke(main, ["history", command], env={"KARROT_TABLES_DIR": url})
        assert (named.exit_code, from_environment.exit_code) == (2, 2)
        assert named.stderr == f"karrot: --tables {wrong}"
        assert from_environment.stderr == f"karrot: KARROT_TABLES_DIR {wrong}"


def test_tables_in_s3_that_is_away_end_the_command_with_a_code_and_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in aws_environment("http://127.0.0.1:1").items():
        monkeypatch.setenv(name, value)
    ended = CliRunner().invoke(main, ["history", "groups", "--tables", "s3a://lag/tables/"])
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr == (
        "karrot: s3://lag/tables/_derived.json cannot be read: AWS could not be reached, or its answer did not arrive: "
        'Could not connect to the endpoint URL: "http://127.0.0.1:1/lag/tables/_derived.json" (tables_unavailable). '
        "Check the network between Karrot and S3, the Region, and AWS_ENDPOINT_URL_S3 if it is set.\n"
    )


def test_a_command_ends_at_its_timeout(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files_in_folder, "monotonic", iter(range(0, 10**6, 3)).__next__)
    ended = CliRunner().invoke(main, ["history", "groups", *DAY, "--tables", str(tables), "--timeout", "2s"])
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"karrot: {tables}/lag_minute did not give the answer within 2 s (history_too_slow)")


def test_a_time_may_be_relative_and_the_environment_may_name_the_tables(tables: Path) -> None:
    ago = f"{(datetime.now(UTC) - minute_at(0)).days + 2}d"
    result = CliRunner().invoke(main, ["history", "groups", "--from", ago], env={"KARROT_TABLES_DIR": str(tables)})
    assert len(result.stdout.splitlines()) == 5


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["groups", "--from", "2026-11-19", "--to", "2026-11-20"], 1, "no data about any group from 2026-11-19"),
        (["groups", *DAY, "--group", "g'"], 1, 'no data about group "g\'" from 2026-11-20'),
        (
            ["timeseries", *DAY, "--group", "orders/eu svc", "--cluster", "prod", "--metric", "gini"],
            1,
            "no data about gini of group 'orders/eu svc' of cluster 'prod' from",
        ),
        (["incidents", *DAY, "--group", "mistyped"], 1, "no data about incidents of group 'mistyped' from"),
        (["incidents", *DAY, "--cluster", "mistyped"], 1, "no data about incidents of any group of cluster 'mistyped'"),
        (
            ["timeseries", *DAY, "--group", "g", "--metric", "offset"],
            2,
            "run karrot pipeline run --once --only derive (after karrot pipeline offsets)",
        ),
        (["timeseries", *DAY, "--group", "orders/eu svc"], 2, "is in the clusters prod, test: choose one"),
        (
            ["timeseries", *DAY, "--group", "g", "--metric", "lags"],
            2,
            "there is no metric 'lags'. The metrics are lag, lag_min,",
        ),
        (["timeseries", *DAY, "--group", "g", "--partition", "1"], 2, "--partition needs --topic"),
        (["timeseries", *DAY, "--group", "g", "--granularity", "90s"], 2, "it must be whole minutes"),
        (["groups", "--from", "2026-11-21", "--to", "2026-11-20"], 2, "its end must be after its start"),
        (["groups", "--from", "yesterday"], 2, "'yesterday' is not a time: write 2026-11-20,"),
        (["groups", *DAY, "--group", "\udcff"], 2, "surrogates not allowed"),
    ],
)
def test_a_question_without_an_answer_gives_one_sentence(
    tables: Path, arguments: list[str], code: int, sentence: str
) -> None:
    result = run(tables, *arguments)
    [line] = result.stderr.splitlines()
    assert (result.exit_code, line[:8], sentence in line) == (code, "karrot: ", True), line


def test_a_name_in_a_sentence_cannot_control_the_terminal(tmp_path: Path) -> None:
    clusters = ["a", "\x1b]0;pwned\x07\x1b[2Jb", "c\nd"]
    write_rows(tmp_path, "lag_minute", [lag_minute_row(1, 5, cluster=cluster) for cluster in clusters])
    asked = ["timeseries", "--group", "g"]
    [told] = run(tmp_path, *asked, *DAY).stderr.splitlines()
    assert told == r"karrot: 'g' is in the clusters \x1b]0;pwned\x07\x1b[2Jb, a, c\nd: choose one with --cluster"
    for command in (asked, ["incidents"], ["incidents", "--group", "nobody\x1b"], ["describe", "--group", "g"]):
        [line] = run(tmp_path / "\x1b[2Jtables", *command).stderr.splitlines()
        assert r"\x1b[2Jtables" in line
        assert line.isprintable()


def test_missing_tables_give_one_sentence(tmp_path: Path) -> None:
    result = run(tmp_path / "nowhere", "incidents")
    assert result.exit_code == 2
    assert "no such directory. karrot pipeline run makes the tables" in result.stderr


def test_neither_spark_nor_pandas_is_imported(tables: Path) -> None:
    script = (
        "import sys; from karrot.cli import main\n"
        "main(sys.argv[1:], standalone_mode=False)\n"
        "print(sorted({'pyspark', 'pandas', 'flask', 'boto3'} & set(sys.modules)))"
    )
    asked = ["history", "groups", "--tables", str(tables), *DAY]
    done = subprocess.run([sys.executable, "-c", script, *asked], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
