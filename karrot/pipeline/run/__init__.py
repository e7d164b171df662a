"""Runs the jobs of the pipeline in turns (`step_loop.TurnLoop`), in one process with one Spark session."""
