"""Lists the groups of a log that another process may have open, without writing or locking anything."""

from contextlib import closing
from pathlib import Path

import apsw

from karrot.event import GroupKey
from karrot.eventlog.sqlite import database, datadir


def known_groups(directory: Path) -> list[GroupKey]:
    """Every group in the log of a directory that was not deleted; none if there is no log that can be read."""
    path = directory / datadir.DATABASE
    if not path.is_file():
        return []
    try:
        with closing(database.connect_reader(path)) as connection:
            found = connection.execute("SELECT cluster, consumer FROM groups WHERE NOT gone").fetchall()
    except apsw.Error:
        return []
    return [GroupKey(str(cluster), str(consumer)) for cluster, consumer in found]
