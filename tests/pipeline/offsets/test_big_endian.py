from struct import unpack
from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from karrot.pipeline.offsets.commits import int64, tables, uint16, uint32

_EDGES = (0, 1, 0x7F, 0x80, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)


@given(st.integers(0, 2**32 - 1))
def test_a_checksum_from_the_tables_equals_the_computed_number(number: int) -> None:
    checksum = crc32(number.to_bytes(4, "big"))
    first, second, third, fourth = (table[checksum >> 8 * place & 0xFF] for place, table in enumerate(tables()))
    assert first ^ second ^ third ^ fourth == number


def test_spark_reads_the_same_numbers_as_struct(spark: SparkSession) -> None:
    told = [one.to_bytes(4, "big") + other.to_bytes(4, "big") for one in _EDGES for other in _EDGES]
    data = F.col("data")
    table = spark.createDataFrame([(bytearray(each),) for each in told], "data binary").select(
        data, uint16(data, F.lit(7)), uint32(data, F.lit(5)), int64(data, F.lit(1))
    )
    assert [tuple(row[1:]) for row in table.collect()] == [
        (unpack(">H", row.data[6:])[0], unpack(">I", row.data[4:])[0], unpack(">q", row.data)[0])
        for row in table.collect()
    ]
