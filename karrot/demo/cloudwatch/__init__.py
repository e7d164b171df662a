"""A strict fake of Amazon CloudWatch for the demo and for tests.

It serves PutMetricData over HTTP in AWS JSON 1.0, plain or gzipped, with every documented limit, the real error codes
and, where they are known, the real messages. A request is stored completely or not at all.
"""
