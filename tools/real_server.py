"""Runs the tests with the marker ``real_server``, and tells a fault from a chance of the servers or of the machine.

A test that fails may run a second time, because its servers belong to others: at most two tests in a run. Each of them
is shown in a box, with the lines to commit into ``tests/flaky.toml``. A test that this file lists runs 20 times under
load instead, and one failure fails the run, until somebody mends the test and removes the lines.

The box is also in ``build/real-server.txt``, for the end of the gate. Run this script by ``make real-server``.
"""

import argparse
import os
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

FLAKY: Final = Path("tests") / "flaky.toml"
BOX: Final = Path("build") / "real-server.txt"
MOST_RERUNS: Final = 2
TIMES_OF_LISTED: Final = 20
BUSY_LOOPS_PER_CORE: Final = 2


def main() -> int:
    """Run the tests. Return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("arguments", nargs="*", default=["tests/e2e"], help="files and options for pytest")
    arguments = parser.parse_args().arguments
    listed = [each["test"] for each in tomllib.loads(FLAKY.read_text()).get("flaky", [])]
    BOX.parent.mkdir(exist_ok=True)
    BOX.write_text("")
    code, failed = _pytest("-m", "real_server", *(f"--deselect={each}" for each in listed), *arguments)
    again = code
    if failed and len(failed) <= MOST_RERUNS:
        again, _ = _pytest(*failed)
    if failed and not again:
        _show_box(failed)
    if listed:
        with _busy():
            print(f"{FLAKY} lists {len(listed)}: {TIMES_OF_LISTED} times each, under load", flush=True)
            functions = {each.partition("[")[0] for each in listed}  # --times changes what the brackets have
            chance, _ = _pytest("-m", "real_server", f"--times={TIMES_OF_LISTED}", *sorted(functions))
        again = again or chance
    return again


def _pytest(*arguments: str) -> tuple[int, list[str]]:
    """Return pytest's exit code, and the names of the tests that failed."""
    summary = BOX.with_name("tests-with-real-servers.txt").absolute()
    summary.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", *arguments]
    code = subprocess.run(command, env={**os.environ, "TESTS_SUMMARY": str(summary)}, check=False).returncode
    lines = summary.read_text().splitlines() if summary.exists() else []
    return code, sorted({line.partition(" ")[2] for line in lines if line.startswith(("FAILED ", "ERROR "))})


def _show_box(failed: Sequence[str]) -> None:
    """Print which tests passed only the second time, and what to do about them."""
    today = datetime.now(UTC).date()
    lines = [f'[[flaky]]\ntest = "{each}"\nseen = {today}' for each in failed]
    text = (
        f"{len(failed)} of the tests with real servers failed, and passed when they ran again.\n"
        f"Add these lines to {FLAKY}, and mend the test. Until then, it runs {TIMES_OF_LISTED} times under load.\n\n"
        + "\n\n".join(lines)
    )
    rule = "=" * 100
    BOX.write_text(f"{rule}\n{textwrap.indent(text, '| ', lambda _: True)}\n{rule}\n")
    print(BOX.read_text(), flush=True)


@contextmanager
def _busy() -> Iterator[None]:
    """Keep every core busy."""
    loop = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(loop) for _ in range(BUSY_LOOPS_PER_CORE * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for each in loops:
            each.kill()
            each.wait()


if __name__ == "__main__":
    sys.exit(main())
