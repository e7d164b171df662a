"""The history pipeline on PySpark: reads archive segments or Kafka records, writes Parquet tables.

Only this package imports pyspark (``pip install 'karrot-burrow[spark]'``). The service does not import this package.

A transform takes DataFrames and returns a DataFrame; its last step is a ``select`` of the columns of its schema. A
transform uses no session, and reads and writes no files. A job reads, calls transforms and writes.
"""
