"""Every worker's scrape has the process metrics of the worker that leads."""

import os
import re
import signal
import threading
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from karrot.reporters.prometheus import render
from karrot.server.start_gunicorn import LeaderProcess
from support.service.karrot_service import Service
from support.waiting import wait_for

NAMES = {
    "process_virtual_memory_bytes",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_max_fds",
}
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def names(leader: LeaderProcess, accept: str = "", *chosen: str) -> set[str]:
    """Return the names of the samples of an exposition with only these metrics."""
    content_type, pieces = render({"process": leader.collector()}, accept, chosen)
    parse = parse_openmetrics if "openmetrics" in content_type else parse_text
    text = b"".join(pieces).decode()
    return {sample.name for family in parse(text) for sample in family.samples}


@pytest.mark.parametrize("accept", ["", OPENMETRICS], ids=["the text format", "OpenMetrics"])
def test_the_metrics_are_those_of_the_process_that_holds_the_lead(accept: str) -> None:
    leader = LeaderProcess()
    assert (leader.pid, names(leader, accept)) == (0, set())
    over = threading.Event()
    holding = threading.Thread(target=leader.hold, args=(over,))
    holding.start()
    wait_for(lambda: leader.pid == os.getpid())
    assert names(leader, accept) == NAMES
    assert names(leader, accept, "process_open_fds") == {"process_open_fds"}
    over.set()
    holding.join()
    assert (leader.pid, names(leader, accept)) == (0, set())


def test_a_former_leader_does_not_take_the_id_of_the_new_one_away() -> None:
    leader = LeaderProcess()
    over = threading.Event()
    holding = threading.Thread(target=leader.hold, args=(over,))
    holding.start()
    wait_for(lambda: leader.pid == os.getpid())
    leader._shared[0] = 1  # another worker took the lead before this one was told
    over.set()
    holding.join()
    assert leader.pid == 1


def lock_holder(lock: Path) -> int | None:
    """Return the process that holds a file lock, as the kernel says it."""
    if not lock.exists():
        return None
    held = re.search(rf"FLOCK +ADVISORY +WRITE +(\d+) \S+:{lock.stat().st_ino} ", Path("/proc/locks").read_text())
    return int(held[1]) if held else None


def start_time(pid: int | None) -> float:
    """Return the start of a process in seconds since 1970."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    [boot] = re.findall(r"^btime (\d+)$", Path("/proc/stat").read_text(), re.MULTILINE)
    return ticks / os.sysconf("SC_CLK_TCK") + int(boot)


def test_all_workers_show_the_worker_that_leads_also_after_the_death_of_a_leader(tmp_path: Path) -> None:
    def every_scrape_shows(start: float) -> bool:
        return {service.metric("process_start_time_seconds") for _ in range(9)} == {start}

    with Service(tmp_path / "data", workers="3") as service:
        lock = tmp_path / "data" / "leader.lock"
        dead: list[int | None] = [None]
        for _ in range(4):
            wait_for(lambda: lock_holder(lock) not in dead)
            leader = lock_holder(lock)
            assert leader in service.workers()
            wait_for(partial(every_scrape_shows, start_time(leader)))
            os.kill(leader, signal.SIGKILL)
            dead.append(leader)
