from pyspark.sql import SparkSession

from karrot.pipeline.derive.lag_minute import lag_minute
from support.pipeline.event_rows import event_row, events_frame


def test_of_two_events_of_one_millisecond_the_one_with_the_larger_number_is_the_last(spark: SparkSession) -> None:
    second, first = event_row(30, "warn", total_lag=7, seq=2), event_row(30, "warn", total_lag=8, seq=1)
    for rows in ([first, second], [second, first]):
        [minute] = lag_minute(events_frame(spark, rows)).collect()
        assert minute.lag_last == 7
