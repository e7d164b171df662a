"""Fakes a strict CloudWatch for the demo and for tests.

PutMetricData over HTTP in AWS JSON 1.0, plain or in gzip, with every documented limit, the real error codes and as far
as they are known the real messages. A request is kept whole or not at all.
"""
