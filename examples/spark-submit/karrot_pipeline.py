"""Runs ``karrot pipeline`` under ``spark-submit``: ``spark-submit karrot_pipeline.py run …``."""

from karrot.cli.pipeline import pipeline

pipeline(prog_name="karrot pipeline")
