"""Runs ``karrot`` with a wall clock that a test can set. It is a program for `Service`.

The file that the environment variable ``SHIFTED_CLOCK`` names has the seconds that are added to the clock.
"""

import os
import time
from pathlib import Path

from karrot.cli import main

if __name__ == "__main__":
    shift, real_ns = Path(os.environ["SHIFTED_CLOCK"]), time.time_ns
    time.time_ns = lambda: real_ns() + int(shift.read_text()) * 1_000_000_000
    main()
