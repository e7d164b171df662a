"""Starts the command ``karrot``, also as ``python -m karrot``."""

import os
import signal


def main() -> None:
    """Run the command. As process 1 of a container, handle SIGTERM: the kernel would ignore it until gunicorn does."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    from karrot.cli import main as run  # noqa: PLC0415 - this takes a while

    run()


if __name__ == "__main__":
    main()
