"""A look into a log that may be another process's: nothing is written, and nothing locked."""

from contextlib import closing
from pathlib import Path

import apsw

from karrot.event import GroupKey
from karrot.eventlog.sqlite import database, datadir


def known_groups(directory: Path) -> list[GroupKey]:
    """Every group that the log in a directory knows and that was not deleted; none where there is no log to read."""
    path = directory / datadir.DATABASE
    if not path.is_file():
        return []
    try:
        with closing(database.connect_reader(path)) as connection:
            found = connection.execute("SELECT cluster, consumer FROM groups WHERE NOT gone").fetchall()
    except apsw.Error:
        return []
    return [GroupKey(str(cluster), str(consumer)) for cluster, consumer in found]
