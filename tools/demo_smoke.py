"""Runs ``make demo`` as a newcomer does: lag moves on ``/metrics`` in time, and Ctrl-C ends it well.

``python3 tools/demo_smoke.py``; needs nothing but the standard library. Exit code 1 if the demo is not as promised.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[1]
_IN_TIME_S = 30.0
_STOP_S = 20.0


def main() -> int:
    """Start, watch and stop the demo; say what was seen."""
    command = ["make", "--no-print-directory", "demo", "ARGS=--port 0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as make:  # noqa: S603
        try:
            seconds = _seconds_until_lag_moves(_metrics_address(make))
            print(f"lag moved {seconds:.1f} s after the demo was up")
        finally:
            _interrupt_children(make.pid)
        return make.wait(_STOP_S)


def _metrics_address(make: "subprocess.Popen[str]") -> str:
    for line in make.stdout or ():
        print(line, end="")
        if found := re.search(r"http://\S+/metrics", line):
            return found[0]
    sys.exit("the demo ended without naming its address")


def _seconds_until_lag_moves(address: str) -> float:
    """Until one group has had two different lags."""
    start = time.monotonic()
    seen: dict[str, str] = {}
    while all(seen.setdefault(group, lag) == lag for group, lag in _lags(address).items()):
        if time.monotonic() - start > _IN_TIME_S:
            sys.exit(f"no lag moved within {_IN_TIME_S:g} s")
        time.sleep(0.2)
    return time.monotonic() - start


def _lags(address: str) -> dict[str, str]:
    with urlopen(address, timeout=5) as answer:  # noqa: S310 - the address is the demo's own
        return dict(re.findall(r"^karrot_consumer_lag(\{.*\}) (\S+)$", answer.read().decode(), re.MULTILINE))


def _interrupt_children(pid: int) -> None:
    """Ctrl-C for what make runs. Make itself would answer it with an exit code that tells nothing of the demo."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            is_child = f"PPid:\t{pid}\n" in status.read_text()
        except OSError:
            continue  # a process that ended meanwhile
        if is_child:
            os.kill(int(status.parent.name), signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
