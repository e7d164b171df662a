"""Starts Python functions in child processes that share nothing with the test's process.

A forked child would share the connections and threads of the test. A spawned one would import Karrot again, which takes
longer than most of what it then does. So the children are forked from a process that has only imported modules.
"""

from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

CHILDREN = get_context("forkserver")
CHILDREN.set_forkserver_preload(["__main__", "hypothesis.strategies", "karrot.wiring", "psycopg"])


def runs(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
