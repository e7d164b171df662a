"""The history pipeline on PySpark: reads archive segments or Kafka records, writes Parquet tables.

The service does not import this package, and only this package imports pyspark
(``pip install 'karrot-burrow[spark]'``).

A transform takes DataFrames and returns one, which ends in the ``select`` of its schema. A transform has no session,
and reads and writes no files. The jobs read, call transforms and write.
"""
