"""``spark-submit karrot_pipeline.py ingest …`` is ``karrot pipeline ingest …``."""

from karrot.cli.pipeline import pipeline

pipeline(prog_name="karrot pipeline")
