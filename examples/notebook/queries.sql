-- Questions to the tables, for DuckDB with its extension delta. Run duckdb in the directory that has tables/.

-- skew_minute: in which groups does one partition have nearly all lag?
SELECT cluster, consumer, worst_partition, count(*) AS minutes, round(avg(max_share), 2) AS share, round(avg(gini), 2) AS gini
FROM delta_scan('tables/skew_minute') WHERE max_share > 0.7 GROUP BY ALL ORDER BY minutes DESC, consumer LIMIT 3;

-- slo_daily: which groups use up the error budget?
SELECT cluster, consumer, minutes_measured AS measured, minutes_within_target AS within_target, round(burn_rate, 1) AS burn,
    worst_partition FROM delta_scan('tables/slo_daily') ORDER BY burn DESC, consumer LIMIT 3;

-- partition_lag_minute: which partition has lag, how much, and who owns it? (after karrot pipeline offsets; make history has no commits)
SELECT strftime(minute, '%H:%M') AS "at", partition, committed_offset AS committed, end_offset AS log_end, lag,
    round(lag_seconds) AS behind_s, method, commits, owner FROM delta_scan('tables/partition_lag_minute')
WHERE consumer = 'super-streamer' AND partition < 2 AND minute::TIME IN ('10:11', '10:14', '10:20') ORDER BY partition, "at";
