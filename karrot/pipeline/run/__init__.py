"""Runs the jobs of the pipeline in turns (`turns.TurnLoop`), in one process with one Spark session."""
