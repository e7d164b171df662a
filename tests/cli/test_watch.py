"""`karrot watch` on the command line."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from karrot.cli import main
from karrot.cli.watch import _as_json, _as_table, _print
from karrot.event import LagEvent, PartitionLag, Source
from karrot.eventlog.watch_data_of_groups import GroupHealth
from karrot.watch.poll_loop import PollOutcome
from support.kafka.in_memory_kafka import make_member
from support.kafka.mock_brokers import mock_brokers
from support.kafka.watch_rig import NEW, WatchRig
from support.waiting import wait_for


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["watch", *arguments])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(
            ["--bootstrap-servers", "kafka", "--cluster", "c"],
            (
                "karrot: --bootstrap-servers is 'kafka': it must be HOST:PORT, several separated by commas, "
                "with ports from 1 to 65535\n"
            ),
            id="a broker without a port",
        ),
        *(
            pytest.param(
                ["--bootstrap-servers", "kafka:9092", "--cluster", "c", option, "("],
                f"karrot: {option} is '(': it must be a regular expression\n",
                id=option,
            )
            for option in ("--groups", "--exclude-groups", "--topics", "--exclude-topics", "--offsets-elsewhere")
        ),
        pytest.param(
            ["--bootstrap-servers", "kafka:9092", "--cluster", "c", "--command-config", "/nonexistent"],
            "karrot: /nonexistent cannot be read: No such file or directory\n",
            id="a file that is missing",
        ),
    ],
)
def test_a_wrong_option_gives_one_sentence(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stderr) == (2, said)


def test_a_missing_client_library_is_reported_with_the_command_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "confluent_kafka.py").write_text("raise ImportError")  # the process with the client finds this first
    monkeypatch.syspath_prepend(tmp_path)
    result = run("--bootstrap-servers", "kafka:9092", "--cluster", "c")
    assert result.stderr == "karrot: watching Kafka needs confluent-kafka: pip install 'karrot-burrow[kafka]'\n"
    assert result.exit_code == 2


def outcome() -> PollOutcome:
    worst = PartitionLag(topic="t", partition=0, status_text="STALL", current_lag=90)
    event = LagEvent("c", "orders", "ERR", 100, 0, Source.KAFKA, partition_count=1, max_lag=worst, partitions=(worst,))
    groups = (
        GroupHealth("orders", "Stable", 3, 1, 2, 0, 500),
        GroupHealth("bill\x1b[2J\u202e", "Unknown", None, None, 0, None, None),
    )
    return PollOutcome(0, 0.1, [event], groups)


def test_a_poll_is_printed_as_a_table() -> None:
    assert "\n".join(_as_table(outcome())) == (
        "GROUP              STATUS  LAG  MAX-LAG  STATE    MEMBERS  COORDINATOR  REBALANCES  LOST  MARGIN\n"
        "bill\\x1b[2J\\u202e  -         -        -  Unknown        -            -           0     -       -\n"
        "orders             ERR     100       90  Stable         3            1           2     0     500\n"
        "00:00:00 UTC: 2 groups; lag 100; 1 ERR; 1 not judged yet\n"
    )


def test_a_group_that_never_committed_does_not_wait_for_a_verdict(tmp_path: Path) -> None:
    rig = WatchRig(tmp_path)
    rig.kafka.put("empty", {})
    rig.kafka.put("console", {}, make_member(NEW))
    rig.kafka.put("new", {NEW: 1000}, make_member(NEW))
    endings = []
    for polls in (3, 25):
        rig.poll(polls, writes=0, reads={})
        endings.append(_as_table(rig.outcomes[-1])[-2].partition("; ")[2])
    assert endings == [
        "2 without a committed offset; 1 not judged yet",
        "lag 0 without 1 group; 2 OK; 1 without a committed offset",
    ]


def test_groups_that_are_not_watched_are_counted_below_the_table() -> None:
    assert _as_table(outcome()._replace(others=3))[-2].endswith(
        "; 3 more not watched yet (share groups or other kinds)"
    )


def test_a_poll_can_be_printed_as_the_bodies_that_burrow_would_post() -> None:
    [line] = _as_json(outcome())
    assert line.startswith('{"Event":{"Cluster":"c","Group":"orders"')


def test_watch_ends_cleanly_on_a_signal(tmp_path: Path) -> None:
    said = tmp_path / "said"
    # These brokers refuse at once to list groups. One that does not listen is given up after 10 seconds.
    with mock_brokers() as bootstrap, said.open("w") as file:
        command = ["watch", "--bootstrap-servers", bootstrap, "--cluster", "c", "--every", "0.5"]
        with subprocess.Popen([sys.executable, "-m", "karrot", *command], stderr=file) as process:
            wait_for(lambda: "cannot be watched" in said.read_text(), timeout_s=60)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def test_watch_ends_when_its_output_is_closed() -> None:
    stop = threading.Event()
    trouble: list[OSError] = []
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.raises(BrokenPipeError), open(writer, "w") as closed, redirect_stdout(closed):  # noqa: PTH123
        _print(_as_table, stop, trouble, outcome(), lambda: 0)
    assert stop.is_set()
    assert isinstance(trouble[0], BrokenPipeError)
