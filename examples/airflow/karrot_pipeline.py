"""Keeps Karrot's tables up to date from Airflow 3: one turn of ``karrot pipeline run`` every 15 minutes.

The turn runs on the worker of Airflow, or in a pod if PIPELINE_IMAGE names an image. See docs/pipeline-places.md.
"""

import os
import shlex
from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

ARCHIVE = os.environ.get("KARROT_ARCHIVE_DIR", "s3://lag/archive")
TABLES = os.environ.get("KARROT_TABLES_DIR", "s3://lag/tables")
KARROT = os.environ.get("KARROT_COMMAND", "/opt/karrot/bin/karrot")
TURN = ["pipeline", "run", "--once", "--wait", "5m", "--archive", ARCHIVE, "--tables", TABLES]

with DAG(
    "karrot_pipeline",
    schedule=timedelta(minutes=15),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # one turn reads all that is new, so a missed turn needs no second one
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=2), "execution_timeout": timedelta(hours=6)},
):
    if image := os.environ.get("PIPELINE_IMAGE"):
        # pip install apache-airflow-providers-cncf-kubernetes
        from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

        KubernetesPodOperator(task_id="turn", name="karrot-pipeline", image=image, arguments=TURN)
    else:
        BashOperator(task_id="turn", bash_command=shlex.join([KARROT, *TURN]))
