"""Runs ``make demo`` as a newcomer does: lag moves on ``/metrics`` in time, CloudWatch is told, and Ctrl-C ends it.

``python3 tools/demo_smoke.py``; needs nothing but the standard library. Exit code 1 if the demo is not as promised.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[1]
_IN_TIME_S = 30.0
_STOP_S = 20.0


def main() -> int:
    """Start, watch and stop the demo; say what was seen."""
    command = ["make", "--no-print-directory", "demo", "ARGS=--port 0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as make:
        try:
            metrics, cloudwatch = _addresses(make)
            seconds = _seconds_until_lag_moves(metrics)
            print(f"lag moved {seconds:.1f} s after the demo was up")
            print(f"the fake CloudWatch has {_points(cloudwatch)} points")
        finally:
            _interrupt_children(make.pid)
        return make.wait(_STOP_S)


def _addresses(make: "subprocess.Popen[str]") -> tuple[str, str]:
    """Of the metrics and of the fake CloudWatch, as the greeting names them."""
    said = ""
    for line in make.stdout or ():
        print(line, end="")
        said += line
        if found := re.search(r"(http://\S+/metrics)\b.*(http://\S+)/ is the stand-in", said, re.DOTALL):
            return found[1], found[2]
    sys.exit("the demo ended without naming its addresses")


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


def _points(cloudwatch: str) -> int:
    """How many there are as soon as there are any."""
    start = time.monotonic()
    while not (points := sum(len(metric["points"]) for metric in _json(f"{cloudwatch}/points")["metrics"])):
        if time.monotonic() - start > _IN_TIME_S:
            sys.exit(f"CloudWatch got nothing within {_IN_TIME_S:g} s")
        time.sleep(0.2)
    return points


def _json(address: str) -> Any:
    with urlopen(address, timeout=5) as answer:  # noqa: S310 - the address is the demo's own
        return json.load(answer)


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
