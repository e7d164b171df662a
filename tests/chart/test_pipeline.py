"""The CronJob of the pipeline."""

from support.kubernetes.helm_charts import CHARTS, only_object, render_chart, render_error, render_values_file


def test_a_run_ingests_then_derives_and_never_overlaps_another() -> None:
    job = only_object(render_values_file(CHARTS / "karrot" / "ci" / "pipeline.yaml"), "CronJob")
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    conf = [
        "--conf=spark.driver.memory=2g",
        "--conf=spark.jars.ivy=/tmp/ivy",
        "--conf=spark.jars.packages=org.apache.hadoop:hadoop-aws:3.5.0",
    ]
    assert [(each["name"], each["args"]) for each in [*pod["initContainers"], *pod["containers"]]] == [
        ("ingest", ["pipeline", "ingest", "--archive=s3a://lag/archive", "--tables=s3a://lag/tables", *conf]),
        ("derive", ["pipeline", "derive", "--tables=s3a://lag/tables", *conf]),
    ]


def test_no_cron_job_is_rendered_by_default() -> None:
    assert [each for each in render_chart("karrot") if each.kind == "CronJob"] == []


def test_an_archive_on_the_volume_of_the_service_is_refused() -> None:
    for config in ({}, {"archive_dir": "/data/archive"}):
        said = render_error("karrot", {"config": config, "pipeline": {"enabled": True, "tables": "/tables"}})
        assert "an archive that another pod can read" in said
