"""Spark's types by short names, and a row's columns told as keywords."""

from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

STRING, INT, LONG, DOUBLE, TIME, BOOLEAN = (
    StringType(),
    IntegerType(),
    LongType(),
    DoubleType(),
    TimestampType(),
    BooleanType(),
)


def struct(**columns: DataType) -> StructType:
    """A row type: its columns in the order they are given, each of which may be NULL."""
    return StructType([StructField(name, kind) for name, kind in columns.items()])
