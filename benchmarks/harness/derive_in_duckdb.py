"""Derives the tables of events in SQL for DuckDB: the yardstick for the cost of ``derive``.

The prototype makes ``lag_minute`` (with lag in seconds by hindsight), ``skew_minute`` (with causes), ``rates_minute``,
``slo_daily`` and ``verdict_runs`` from ``events`` and ``partitions``, and writes a Parquet file of each. It does less
than ``derive``: it looks for no changed days and no repeated events, uses no log ends of polls and no commits, makes no
incidents and no intervals. It takes a lag in seconds only from between two samples, without the correction for old
log ends.
"""

from pathlib import Path
from typing import Final

import duckdb

from support.pipeline.duckdb_scan import scan

_SEVERITY: Final = (
    "CASE {} WHEN 'NOTFOUND' THEN 0 WHEN 'OK' THEN 1 WHEN 'WARN' THEN 2 WHEN 'ERR' THEN 3 WHEN 'STOP' THEN 4 "
    "WHEN 'STALL' THEN 5 WHEN 'REWIND' THEN 6 END"
)
_NAME: Final = "['NOTFOUND', 'OK', 'WARN', 'ERR', 'STOP', 'STALL', 'REWIND'][{} + 1]"

_VIEWS: Final = f"""
CREATE TEMP TABLE events AS SELECT * EXCLUDE (batch_id), {_SEVERITY.format("status")} AS severity
FROM {{events}};
CREATE TEMP TABLE partitions AS SELECT * EXCLUDE (batch_id)
FROM {{partitions}};
CREATE TEMP TABLE samples AS
WITH every AS (
  SELECT cluster, topic, partition, day, epoch_ms(observed_at) AS at_ms, max(end_offset + current_lag) AS log_end
  FROM (SELECT cluster, topic, partition, day, observed_at, end_offset, current_lag FROM partitions
    UNION ALL
    SELECT cluster, max_lag_topic, max_lag_partition, day, observed_at, max_lag_committed, max_lag FROM events)
  WHERE end_offset + current_lag IS NOT NULL GROUP BY ALL),
agreeing AS (SELECT *, max(log_end) OVER (PARTITION BY cluster, topic, partition, day ORDER BY at_ms
    RANGE BETWEEN 60000 PRECEDING AND 1 PRECEDING) AS before FROM every),
kept AS (SELECT * EXCLUDE (before) FROM agreeing WHERE before IS NULL OR before <= log_end)
SELECT *, lead(at_ms) OVER log AS next_ms, lead(log_end) OVER log AS next_end FROM kept
WINDOW log AS (PARTITION BY cluster, topic, partition, day ORDER BY at_ms);
CREATE TEMP TABLE whole AS SELECT p.* FROM partitions p SEMI JOIN (
  SELECT log_id, seq FROM (SELECT log_id, seq, count(*) AS listed FROM partitions GROUP BY ALL)
  JOIN events USING (log_id, seq) WHERE partition_count > 0 AND partition_count = listed) USING (log_id, seq);
"""

_LAG_MINUTE: Final = f"""
WITH judged AS (SELECT *, CASE WHEN lag_seconds_kind IS NULL THEN max_lag_committed < max_lag_first_end AND max_lag > 0
  ELSE lag_seconds_kind <> 'exact' AND lag_seconds_topic = max_lag_topic
    AND lag_seconds_partition = max_lag_partition END AS inexact FROM events),
timed AS (
  SELECT j.*, CASE WHEN s.next_end > j.max_lag_committed AND s.next_ms - s.at_ms <= 600000 THEN round(greatest(0,
    j.observed_at_ms - s.at_ms - (j.max_lag_committed - s.log_end) / (s.next_end - s.log_end) * (s.next_ms - s.at_ms))
    / 1000, 3) ELSE j.lag_seconds END AS seconds
  FROM (FROM judged WHERE inexact) j ASOF LEFT JOIN samples s ON s.cluster = j.cluster AND s.topic = j.max_lag_topic
    AND s.partition = j.max_lag_partition AND s.day = j.day AND j.max_lag_committed >= s.log_end
  UNION ALL SELECT *, lag_seconds FROM judged WHERE inexact IS NOT TRUE)
SELECT day, cluster, consumer, epoch_ms(received_at) // 60000 AS minute, count(*) AS count, min(total_lag) AS lag_min,
  max(total_lag) AS lag_max, avg(total_lag) AS lag_avg, arg_max(total_lag, received_at_ms) AS lag_last,
  max(seconds) AS lag_seconds_max, {_NAME.format("max(severity)")} AS worst_status,
  count(*) FILTER (severity > 1) AS not_ok
FROM timed GROUP BY ALL ORDER BY ALL
"""

_SKEW_MINUTE: Final = """
WITH one AS (SELECT day, cluster, consumer, topic, epoch_ms(received_at) // 60000 AS minute, partition,
  avg(current_lag) AS lag, arg_max(owner, (received_at, seq)) AS owner FROM whole GROUP BY ALL),
ranked AS (SELECT *, row_number() OVER (PARTITION BY cluster, consumer, topic, minute ORDER BY lag, partition) AS place,
  sum(lag) OVER (PARTITION BY cluster, consumer, topic, minute, owner) AS of_owner,
  count(*) OVER (PARTITION BY cluster, consumer, topic, minute, owner) AS owned FROM one),
topics AS (SELECT day, cluster, consumer, topic, minute, sum(lag) AS total, count(lag) / count(*) AS coverage,
  count(*) AS n, sum(place * lag) AS weighted, max(lag) AS most, arg_max(partition, place) AS worst,
  arg_max(owner, place) AS owner, arg_max(of_owner, place) AS theirs, arg_max(owned, place) AS owned
  FROM ranked GROUP BY ALL)
SELECT day, cluster, consumer, topic, minute, coverage,
  CASE WHEN total > 0 THEN round(most / total, 6) END AS max_share,
  CASE WHEN total > 0 THEN round(2 * weighted / (n * total) - (n + 1) / n, 6) ELSE 0 END AS gini,
  CASE WHEN total > 0 THEN worst END AS worst_partition, CASE WHEN total > 0 THEN owner END AS owner,
  CASE WHEN total > 0 AND owner IS NOT NULL THEN round(theirs / total, 6) END AS owner_share,
  CASE WHEN total > 0 AND most / total * n > 2 AND owner IS NOT NULL AND owned > 1 THEN
    CASE WHEN most >= 0.8 * theirs THEN 'hot_partition' ELSE 'slow_owner' END END AS cause
FROM topics WHERE coverage = 1 ORDER BY ALL
"""

_RATES_MINUTE: Final = """
WITH seen AS (SELECT cluster, consumer, topic, partition, seq, epoch_ms(received_at) AS to_ms, end_offset,
  end_offset + current_lag AS head, current_lag AS lag FROM whole WHERE end_offset + current_lag IS NOT NULL),
spans AS (SELECT *, lag(to_ms) OVER part AS from_ms, head - lag(head) OVER part AS grown,
  end_offset - lag(end_offset) OVER part AS read FROM seen
  WINDOW part AS (PARTITION BY cluster, consumer, topic, partition ORDER BY to_ms, seq)),
minutes AS (SELECT *, unnest(range(from_ms - from_ms % 60000, to_ms, 60000)) AS minute_ms FROM spans
  WHERE to_ms > from_ms AND to_ms - from_ms <= 600000 AND grown >= 0 AND read >= 0),
shares AS (SELECT *, least(to_ms, minute_ms + 60000) - greatest(from_ms, minute_ms) AS ms FROM minutes),
summed AS (SELECT cluster, consumer, topic, partition, minute_ms, sum(grown * (ms / (to_ms - from_ms))) AS produced,
  sum(read * (ms / (to_ms - from_ms))) AS consumed, sum(ms) AS seen, arg_max(lag, to_ms) AS lag
  FROM shares GROUP BY ALL)
SELECT cluster, consumer, topic, partition, minute_ms // 60000 AS minute, round(produced) AS produced,
  round(consumed) AS consumed, round(produced * 1000 / seen, 6) AS produce_rate,
  round(consumed * 1000 / seen, 6) AS consume_rate, CASE WHEN lag = 0 THEN 0
    WHEN consumed > produced THEN round(lag / ((consumed - produced) * 1000 / seen), 3) END AS catch_up_seconds,
  seen / 60000 AS coverage FROM summed ORDER BY ALL
"""

_SLO_DAILY: Final = """
WITH lagging AS (SELECT day, cluster, consumer, arg_max(topic || '/' || partition, current_lag) AS worst_partition
  FROM partitions WHERE current_lag > 0 GROUP BY ALL),
daily AS (SELECT day, cluster, consumer, count(*) AS minutes_seen, count(*) FILTER (worst_status = 'OK') AS minutes_ok,
  count(lag_seconds_max) AS measured, count(*) FILTER (lag_seconds_max <= 60) AS within_target
  FROM read_parquet('{to}/lag_minute.parquet') WHERE worst_status <> 'NOTFOUND' GROUP BY ALL)
SELECT *, round((measured - within_target) / measured / 0.01, 6) AS burn_rate
FROM daily LEFT JOIN lagging USING (day, cluster, consumer) ORDER BY ALL
"""

_VERDICT_RUNS: Final = """
WITH bad AS (SELECT log_id, seq, list_sort(list(DISTINCT topic)) AS topics FROM partitions
  WHERE status NOT IN ('OK', 'NOTFOUND') GROUP BY ALL),
placed AS (SELECT events.*, topics, CASE WHEN observed_at_ms BETWEEN received_at_ms - 86400000 AND received_at_ms
  THEN observed_at_ms ELSE received_at_ms END AS at_ms FROM events LEFT JOIN bad USING (log_id, seq)),
ordered AS (SELECT *, max(at_ms) OVER (PARTITION BY cluster, consumer, day ORDER BY received_at_ms, seq
  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS heard FROM placed),
begun AS (SELECT *, heard IS NULL OR at_ms - heard > 300000 OR (kind, incident_id, status) IS DISTINCT FROM
  lag((kind, incident_id, status)) OVER (PARTITION BY cluster, consumer, day ORDER BY received_at_ms, seq) AS begins
  FROM ordered WHERE heard IS NULL OR at_ms >= heard),
runs AS (SELECT *, count(*) FILTER (begins) OVER (PARTITION BY cluster, consumer, day ORDER BY received_at_ms, seq)
  AS run FROM begun)
SELECT cluster, consumer, day, run, kind, incident_id, status, min(at_ms) AS first_ms, max(at_ms) AS last_ms,
  count(*) AS events, max(incident_start) FILTER (begins) AS incident_start, max(total_lag) AS peak_lag,
  list_sort(list_distinct(flatten(list(topics)))) AS topics FROM runs GROUP BY ALL ORDER BY ALL
"""

_TABLES: Final = {
    "lag_minute": _LAG_MINUTE,
    "skew_minute": _SKEW_MINUTE,
    "rates_minute": _RATES_MINUTE,
    "slo_daily": _SLO_DAILY,
    "verdict_runs": _VERDICT_RUNS,
}


def derive_in_duckdb(tables: Path, to: Path, *, threads: int) -> dict[str, int]:
    """Derive all days, and write the tables below ``to``. Return the number of rows in each table."""
    to.mkdir(parents=True, exist_ok=True)
    rows = {}
    with duckdb.connect(config={"threads": threads}) as connection:
        connection.execute(_VIEWS.format(events=scan(tables, "events"), partitions=scan(tables, "partitions")))
        for name, query in _TABLES.items():
            file = f"{to}/{name}.parquet"
            connection.execute(f"COPY ({query.format(to=to)}) TO '{file}' (FORMAT parquet, COMPRESSION zstd)")
            (rows[name],) = connection.execute(f"SELECT count(*) FROM read_parquet('{file}')").fetchone() or (0,)
    return rows
