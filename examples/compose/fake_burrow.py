"""Simulates a Burrow: posts verdicts on made-up consumer groups to Karrot until SIGTERM or Ctrl-C.

``python fake_burrow.py http://karrot:5000/burrow [--groups 24] [--seed 7] [--speed 1]``; needs Karrot installed.
"""

import argparse
import signal
import sys
import threading

from karrot import logs
from karrot.clock import SystemClock
from karrot.demo.demo import post_verdicts
from karrot.demo.simulated_burrow import SimulatedBurrow


def main() -> None:
    """Post each verdict once, when it is due. Nothing is stored and no post is repeated."""
    given = _arguments()
    logs.configure("INFO", sys.stdout)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        # In a thread: the handler interrupts the main thread, which may hold the lock of the event.
        signal.signal(number, lambda _number, _frame: threading.Thread(target=stop.set).start())
    clock = SystemClock()
    burrow = SimulatedBurrow(given.groups, seed=given.seed, speed=given.speed, start_ms=clock.wall_ms())
    post_verdicts(burrow, given.url, stop, clock=clock)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--groups", type=int, default=24)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--speed", type=float, default=1.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
