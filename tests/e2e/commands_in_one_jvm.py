"""Runs commands of karrot one after the other in one process, so that only the first one starts a JVM.

Each line of standard input is a JSON list of arguments. Each line of standard output is the command's result.
"""

import json
import sys
import traceback

from click.testing import CliRunner

from karrot.cli import main


def run() -> None:
    """Run the commands until standard input ends."""
    for line in sys.stdin:
        ended = CliRunner().invoke(main, json.loads(line))
        broken = ended.exception is not None and not isinstance(ended.exception, SystemExit)
        trace = "".join(traceback.format_exception(ended.exception)) if broken else ""
        sys.stdout.write(json.dumps([ended.exit_code, ended.stdout, ended.stderr + trace]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    run()
