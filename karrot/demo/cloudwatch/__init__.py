"""Fakes a strict CloudWatch for tests, benchmarks and the demo.

PutMetricData over HTTP in AWS JSON 1.0 (gzip too) and in the older query protocol, with every documented limit, the
real error codes and as far as they are known the real messages; all or nothing. Faults can be scripted.
"""
