"""Runs the jobs of the pipeline in turns, in one process with one Spark session."""
