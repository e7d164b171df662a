"""Runs ``karrot`` so that it checkpoints, prunes, archives and starts workers often. It is a program for `Service`."""

from karrot import delivery, wiring
from karrot.cli import main
from karrot.eventlog import writer
from karrot.eventlog.sqlite import database
from karrot.reporters.archive.reporter import ArchiveReporter

if __name__ == "__main__":
    delivery._HOUSEKEEPING_MS = 200
    delivery._LEAD_S = delivery._POLL_S = 0.05
    wiring._START_AGAIN_S = 0.05
    database._FRAMES = 20
    writer._TICK_S = 0.1
    ArchiveReporter.every_s = 0.05  # type: ignore[assignment,method-assign]
    main()
