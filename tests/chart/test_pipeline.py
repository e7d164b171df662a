"""The pipeline as a Deployment or as a CronJob."""

from typing import Any

from click.testing import CliRunner

from karrot.cli import main
from support.kubernetes.helm_charts import CHARTS, only_object, render_chart, render_error, render_values_file

CI = CHARTS / "karrot" / "ci"
S3 = {"config": {"archive_dir": "s3://lag/archive"}}


def _pipeline(**values: Any) -> dict[str, Any]:
    return {**S3, "pipeline": {"enabled": True, "tables": "s3://lag/tables", **values}}


def test_one_pod_stays_and_runs_all_jobs() -> None:
    [deployment] = [
        each.body
        for each in render_values_file(CI / "pipeline.yaml")
        if each.name.endswith("-pipeline") and each.kind == "Deployment"
    ]
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"] == [
        "pipeline",
        "run",
        "--every=15m",
        "--turn-limit=21600s",
        "--metrics-port=9464",
        "--archive=s3://lag/archive",
        "--tables=s3://lag/tables",
        "--compact-at=02:30",
        "--keep=400d",
        "--conf=spark.driver.memory=2g",
    ]
    assert {container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")} == {"/healthz"}
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 30


def test_a_turn_can_also_be_a_run_of_a_cron_job_that_never_overlaps_another() -> None:
    manifests = render_values_file(CI / "pipeline-cronjob.yaml")
    job = only_object(manifests, "CronJob")
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    [container] = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == [
        "pipeline",
        "run",
        "--once",
        "--archive=/lag/archive",
        "--tables=/lag/tables",
        "--compact-at=02:30",
        "--keep=400d",
    ]
    assert "livenessProbe" not in container
    assert [each.name for each in manifests if each.kind == "Deployment"] == ["karrot"]


def test_the_command_knows_every_option_that_the_chart_passes() -> None:
    known = CliRunner().invoke(main, ["pipeline", "run", "--help"]).output
    for shape in ("pipeline", "pipeline-cronjob"):
        [args] = [
            pod["containers"][0]["args"]
            for each in render_values_file(CI / f"{shape}.yaml")
            if each.name.endswith("-pipeline") and "spec" in each.body
            for pod in [_pod_of(each.body)]
            if pod
        ]
        assert {each.partition("=")[0] for each in args[2:]} - {*known.split()} == set()


def _pod_of(body: dict[str, Any]) -> dict[str, Any]:
    spec = body["spec"].get("jobTemplate", body)["spec"]
    pod: dict[str, Any] = spec.get("template", {}).get("spec", {})
    return pod


def test_prometheus_scrapes_the_pod_that_stays() -> None:
    for monitored in ({"podMonitor": {"enabled": True}}, {"serviceMonitor": {"enabled": True, "interval": "1m"}}):
        manifests = render_chart("karrot", _pipeline() | monitored)
        [monitor] = [each.body for each in manifests if each.name == "karrot-pipeline" and each.kind == "PodMonitor"]
        [pod] = [each.body for each in manifests if each.name == "karrot-pipeline" and each.kind == "Deployment"]
        labels = pod["spec"]["template"]["metadata"]["labels"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert monitor["spec"]["podMetricsEndpoints"][0]["port"] == "metrics"
        cron = render_chart("karrot", _pipeline(kind="CronJob") | monitored)
        assert [each for each in cron if each.name == "karrot-pipeline" and each.kind == "PodMonitor"] == []


def test_a_network_policy_limits_the_traffic_of_the_pipelines_pod() -> None:
    def rules(**values: Any) -> tuple[set[str], set[int]]:
        manifests = render_chart("karrot", _pipeline(**values) | {"networkPolicy": {"enabled": True}})
        [policy] = [
            each.body["spec"] for each in manifests if (each.name, each.kind) == ("karrot-pipeline", "NetworkPolicy")
        ]
        [pod] = [
            each.body for each in manifests if each.name == "karrot-pipeline" and each.kind in {"Deployment", "CronJob"}
        ]
        spec = pod["spec"] if pod["kind"] == "Deployment" else pod["spec"]["jobTemplate"]["spec"]
        assert policy["podSelector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        incoming = {port["port"] for rule in policy.get("ingress", []) for port in rule["ports"]}
        return incoming, {port["port"] for rule in policy["egress"] for port in rule["ports"]}

    assert rules() == ({"metrics"}, {53, 443, 80})
    assert rules(kind="CronJob") == (set(), {53, 443, 80})
    assert rules(archive="/lag/archive", tables="/lag/tables") == ({"metrics"}, {53})
    kafka = ["--offsets=prod", "--bootstrap-servers=kafka-0:9092, kafka-1:9094,kafka-2:9092"]
    assert rules(args=kafka) == ({"metrics"}, {53, 443, 80, 9092, 9094})


def test_a_suspended_pipeline_has_no_pod() -> None:
    manifests = render_chart("karrot", _pipeline(suspend=True))
    [deployment] = [each.body for each in manifests if each.name == "karrot-pipeline"]
    assert deployment["spec"]["replicas"] == 0
    assert only_object(render_chart("karrot", _pipeline(suspend=True, kind="CronJob")), "CronJob")["spec"]["suspend"]


def test_wrong_values_of_the_pipeline_are_refused() -> None:
    wrong: list[dict[str, Any]] = [{"kind": "Job"}, {"compactAt": "2:30"}, {"compactAt": "24:00"}, {"deriveArgs": []}]
    for values in wrong:
        assert "pipeline" in render_error("karrot", _pipeline(**values))


def test_an_archive_on_the_volume_of_the_service_is_refused() -> None:
    for config in ({}, {"archive_dir": "/data/archive"}):
        said = render_error("karrot", {"config": config, "pipeline": {"enabled": True, "tables": "/tables"}})
        assert "an archive that another pod can read" in said
