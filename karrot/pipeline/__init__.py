"""The history pipeline on PySpark: reads archive segments or Kafka records, writes Parquet tables.

Nothing of the service imports this package, and only this package imports pyspark
(``pip install 'karrot-burrow[spark]'``).
A transform takes DataFrames, returns one and ends in the ``select`` of the schema that it declares. It knows no session
and reads and writes nothing. The jobs read, transform and write.
"""
