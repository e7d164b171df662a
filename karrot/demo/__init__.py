"""Runs the real service with a simulated Burrow and a fake CloudWatch: `demo.demo`.

`simulated_burrow.SimulatedBurrow` makes the verdicts, for the demo, the tests and the benchmarks.
"""
