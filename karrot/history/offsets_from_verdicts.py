"""A group's offsets by what Burrow, or ``karrot watch``, said of it: for those who cannot read ``__consumer_offsets``.

A webhook lists the bad partitions alone. The events of resync and of watch list them all, so the newest of these is the
whole group as of that moment.
"""

from karrot.history.duckdb_reader import Duck, Row
from karrot.history.filters import named
from karrot.history.moments import moment_of
from karrot.history.offsets_at_moment import LookBack
from karrot.history.results import PartitionDescription

__all__ = ["listed"]

_LISTED = """
SELECT DISTINCT cluster, topic, partition, end_offset, current_lag, owner, client_id, epoch_ms(end_ts),
  epoch_ms(observed_at)
FROM {table}
WHERE source IN ('rest', 'kafka') AND epoch_ms(observed_at) BETWEEN $since AND $at{named}
QUALIFY observed_at = max(observed_at) OVER (PARTITION BY cluster)
ORDER BY cluster, topic, partition
"""


def listed(
    duck: Duck, look_back: LookBack, group: str, cluster: str | None
) -> dict[str, tuple[PartitionDescription, ...]]:
    """The partitions of the newest event that lists them all, by cluster."""
    words, asked = named(cluster, group)
    rows = duck.rows("partitions", look_back.has, _LISTED.replace("{named}", words), asked | look_back.bounds)
    clusters = dict.fromkeys(row[0] for row in rows)
    return {where: tuple(_partition(row) for row in rows if row[0] == where) for where in clusters}


def _partition(row: Row) -> PartitionDescription:
    _, topic, partition, offset, lag, owner, client, committed_ms, observed_ms = row
    return PartitionDescription(
        topic,
        partition,
        offset,
        None if offset is None or lag is None else offset + lag,
        lag,
        None,
        owner or None,
        client or None,
        None if committed_ms is None else moment_of(committed_ms),
        moment_of(observed_ms),
    )
