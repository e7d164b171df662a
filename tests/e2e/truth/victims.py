"""A process with healthy consumers, which a run kills: ``python -m e2e.truth.victims JSON``.

The JSON is a list of the arguments of `Member`, an object for each.
"""

import json
import signal
import sys

from e2e.truth.members import Member


def main() -> None:
    for told in json.loads(sys.argv[1]):
        Member(**told).start()
    signal.pause()


if __name__ == "__main__":
    main()
