import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from karrot.cli import main
from support.stored_tables import incident, minute, moment_of, store

DAY = ["--from", "2026-11-20", "--to", "2026-11-21"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tables")
    orders = {"consumer": "orders/eu svc", "cluster": "prod"}
    lags = [minute(at, at * 10, "WARN" if at > 2 else "OK", **orders) for at in range(5)]
    other = [minute(3, None, consumer="\x1b[red", cluster="prod"), minute(5, 7, **orders | {"cluster": "test"})]
    store(directory, "lag_minute", [*lags, *other])
    open_one = incident(4, None, "018f-open", peak_lag=40, **orders)
    store(directory, "incidents", [incident(3, 3.75, "018f-ended", topics=["a", "b"], **orders), open_one])
    return directory


def run(tables: Path, *arguments: str, **environment: str) -> Result:
    command, *rest = arguments
    asked = ["history", command, "--tables", str(tables), *rest]
    return CliRunner().invoke(main, asked, env=environment or None, catch_exceptions=False)


def test_groups_are_a_line_each(tables: Path) -> None:
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
    narrow = run(tables, "groups", *DAY, "--limit", "1", "--order", "incidents", COLUMNS="60").stdout.splitlines()
    assert narrow == [
        "GROUP          STATUS  LAG  MAX-LAG  NOT-OK  INCIDENTS",
        "orders/eu svc  WARN     40       40       2          2",
        "3 groups (1 shown); at worst 1 WARN, 2 OK",
    ]


def test_a_group_that_nobody_judged_has_a_lag_and_no_status(tmp_path: Path) -> None:
    store(tmp_path, "lag_minute", [minute(1, 7, worst_status=None, not_ok=0)])
    heads, row, tally = run(tmp_path, "groups", *DAY).stdout.splitlines()
    told = dict(zip(heads.split(), row.split(), strict=False))
    assert (told["STATUS"], told["WORST"], told["LAG"], told["NOT-OK"], tally) == ("-", "-", "7", "0", "1 group")


def test_one_long_name_does_not_widen_the_lines_of_the_others_and_seconds_are_whole(tmp_path: Path) -> None:
    names = {"g" * 32_767: 311.6, "short": 41.0}
    store(tmp_path, "lag_minute", [minute(1, 7, consumer=name, lag_seconds_max=of) for name, of in names.items()])
    _heads, long, short, _tally = run(tmp_path, "groups", *DAY).stdout.splitlines()
    assert (long.split()[1], [long.split()[6], short.split()[6]]) == ("g" * 32_767, ["312", "41"])
    assert len(short) < 110


def test_a_time_series_is_a_line_for_each_step(tables: Path) -> None:
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
    }


def test_incidents_are_a_line_each_and_none_is_an_answer(tables: Path) -> None:
    assert run(tables, "incidents", *DAY).stdout.splitlines() == [
        "STARTED           LASTED  CLUSTER  GROUP          WORST  PEAK-LAG  ENDED-BY  EVENTS  TOPICS  INCIDENT",
        "2026-11-20 00:04       -  prod     orders/eu svc  ERR          40  open           2  t       018f-open",
        "2026-11-20 00:03     45s  prod     orders/eu svc  ERR          10  close          2  a, b    018f-ended",
        "2 incidents, 1 open",
    ]
    assert run(tables, "incidents", *DAY, "--limit", "1").stdout.splitlines()[2:] == ["2 incidents (1 shown), 1 open"]
    for named in (["--cluster", "test"], ["--group", "orders/eu svc"], []):
        nothing = run(tables, "incidents", "--from", "2026-10-01", "--to", "2026-10-02", *named)
        assert (nothing.exit_code, nothing.stdout) == (0, "0 incidents\n")
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


def test_a_time_may_be_relative_and_the_tables_named_by_the_environment(tables: Path) -> None:
    ago = f"{(datetime.now(UTC) - moment_of(0)).days + 2}d"
    result = CliRunner().invoke(main, ["history", "groups", "--from", ago], env={"KARROT_TABLES_DIR": str(tables)})
    assert len(result.stdout.splitlines()) == 5


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["groups", "--from", "2026-11-19", "--to", "2026-11-20"], 1, "nothing is known of any group from 2026-11-19"),
        (["groups", *DAY, "--group", "g'"], 1, 'nothing is known of group "g\'" from 2026-11-20 00:00 to'),
        (["timeseries", *DAY, "--group", "g", "--metric", "gini"], 1, "nothing is known of gini of group 'g' from"),
        (["incidents", *DAY, "--group", "mistyped"], 1, "nothing is known of group 'mistyped': no table of"),
        (["incidents", *DAY, "--cluster", "mistyped"], 1, "nothing is known of any group of cluster 'mistyped'"),
        (
            ["timeseries", *DAY, "--group", "g", "--metric", "offset"],
            2,
            "(of what karrot pipeline offsets reads)",
        ),
        (["timeseries", *DAY, "--group", "orders/eu svc"], 2, "is in prod, test: choose by --cluster"),
        (["timeseries", *DAY, "--group", "g", "--metric", "lags"], 2, "there is no metric 'lags': lag, lag_min,"),
        (["timeseries", *DAY, "--group", "g", "--partition", "1"], 2, "--partition needs --topic"),
        (["timeseries", *DAY, "--group", "g", "--granularity", "90s"], 2, "the tables know whole minutes"),
        (["groups", "--from", "2026-11-21", "--to", "2026-11-20"], 2, "there is no time"),
        (["groups", "--from", "yesterday"], 2, "'yesterday' is no time: write 2026-11-20,"),
        (["groups", *DAY, "--group", "\udcff"], 2, "surrogates not allowed"),
    ],
)
def test_what_cannot_be_answered_is_a_sentence(tables: Path, arguments: list[str], code: int, sentence: str) -> None:
    result = run(tables, *arguments)
    [line] = result.stderr.splitlines()
    assert (result.exit_code, line[:8], sentence in line) == (code, "karrot: ", True), line


def test_tables_that_are_not_there_are_a_sentence(tmp_path: Path) -> None:
    result = run(tmp_path / "nowhere", "incidents")
    assert result.exit_code == 2
    assert "no such directory; karrot pipeline ingest and derive make the tables" in result.stderr


def test_neither_spark_nor_pandas_is_imported(tables: Path) -> None:
    script = (
        "import sys; from karrot.cli import main\n"
        "main(sys.argv[1:], standalone_mode=False)\n"
        "print(sorted({'pyspark', 'pandas', 'flask', 'boto3'} & set(sys.modules)))"
    )
    asked = ["history", "groups", "--tables", str(tables), *DAY]
    done = subprocess.run([sys.executable, "-c", script, *asked], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
