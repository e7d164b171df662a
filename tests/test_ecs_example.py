"""The example of a CloudFormation template that runs Karrot, and optionally Burrow, on ECS."""

import os
import re
import shlex
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from karrot.render import burrow_config, burrow_template
from karrot.settings.loading import load
from karrot.settings.options import OPTIONS
from karrot.wiring import try_out
from support.cloudformation import deployed, read_template
from support.eventlog.postgres_server import DATABASE as DATABASE_NAME
from support.eventlog.postgres_server import PASSWORD as PASSWORD_OF_USER
from support.eventlog.postgres_server import USER
from support.eventlog.postgres_tls import running_postgres_with_tls
from support.service.free_ports import free_port
from support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "ecs" / "karrot.yaml"
TEMPLATE = read_template(EXAMPLE)
LARGEST_FILE = 51_200
"""The largest template body in bytes that CloudFormation accepts without a bucket."""

SECRET = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:karrot-1a2B3c"
KEY = "arn:aws:kms:eu-west-1:123456789012:key/1a2b3c4d-0000-4000-8000-000000000000"
MSK = "arn:aws:kafka:eu-west-1:123456789012:cluster/prod/1a2b3c4d-0000-4000-8000-000000000000-1"
NEEDED = {
    "KafkaCluster": "prod-eu",
    "EcsCluster": "prod",
    "Image": "registry.example/karrot:2",
    "Vpc": "vpc-1",
    "Subnets": "subnet-1,subnet-2",
}
POSTED = {**NEEDED, "BurrowSecurityGroup": "sg-1"}
BURROW = {**POSTED, "Verdicts": "burrow", "KafkaBrokers": "kafka-1:9092,kafka-2:9092", "ZooKeeper": "zookeeper:2181"}
WATCH = {**NEEDED, "Verdicts": "watch", "KafkaBrokers": "b-1.prod.kafka.eu-west-1.amazonaws.com:9098"}
DATABASE = {"DatabaseHost": "db.example", "DatabaseSecurityGroup": "sg-2", "DatabaseCaSecret": f"{SECRET}1"}
PASSWORD = {**DATABASE, "DatabasePasswordSecret": f"{SECRET}2", "DatabasePasswordKey": ":password::"}
ARCHIVE = {"ArchiveBucket": "lag", "ArchivePrefix": "karrot/a", "ArchiveKmsKey": KEY}
VARIANTS = {
    "karrot": POSTED,
    "several clusters": {**POSTED, "KafkaCluster": "prod-eu,prod-us", "ApiTokenSecret": SECRET, "SecretsKmsKey": KEY},
    "and Burrow": {**BURROW, "BurrowPasswordSecret": SECRET, **ARCHIVE},
    "watch": {**WATCH, "KafkaPropertiesSecret": SECRET, "ApiTokenSecret": SECRET},
    "watch MSK": {**WATCH, "MskClusterArn": MSK, "DnsNamespaceId": "ns-1", "DnsNamespaceName": "lag.internal"},
    "PostgreSQL and Burrow": {**BURROW, **PASSWORD},
    "watch with IAM of RDS": {**WATCH, **DATABASE, "MskClusterArn": MSK, "RdsResourceId": "cluster-A1"},
}


def resources(parameters: dict[str, str], **more: str) -> dict[str, Any]:
    found: dict[str, Any] = deployed(TEMPLATE, **parameters, **more)["Resources"]
    return found


def container(found: dict[str, Any], task: str) -> dict[str, Any]:
    """Return the last container of a task, with its environment and secrets by name."""
    *_, main_container = found[task]["ContainerDefinitions"]
    named = {
        "Environment": {each["Name"]: each["Value"] for each in main_container["Environment"]},
        "Secrets": {each["Name"]: each["ValueFrom"] for each in main_container["Secrets"]},
    }
    return {**main_container, **named}


def rights(found: dict[str, Any], role: str) -> list[tuple[Any, Any, Any]]:
    """Return the actions, resources and conditions that a role of the template allows."""
    return [
        (each["Action"], each["Resource"], each.get("Condition"))
        for policy in found[role]["Policies"]
        for each in policy["PolicyDocument"]["Statement"]
    ]


def test_each_setting_that_the_example_names_exists() -> None:
    known = {name for option in OPTIONS for name in (option.name, f"{option.name}_FILE")}
    named = set(re.findall(r"KARROT_[A-Z_]+", EXAMPLE.read_text(encoding="utf-8")))
    assert named <= known | {"KARROT_PASSWORD"}  # the end of BURROW_NOTIFIER_KARROT_PASSWORD


@pytest.mark.parametrize("variant", VARIANTS)
def test_karrot_would_start_with_the_settings_of_each_variant(
    variant: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(name, value)
    told = container(resources(VARIANTS[variant]), "KarrotTask")
    (tmp_path / "database-password").write_text("p")
    environment = told["Environment"] | dict.fromkeys(told["Secrets"], "security.protocol=SSL")
    try_out(load({name: value.replace("/dev/shm", str(tmp_path)) for name, value in environment.items()}).settings)


def test_karrot_reports_to_prometheus_and_cloudwatch_and_expects_its_clusters() -> None:
    told = container(
        resources(VARIANTS["several clusters"], Metrics="Lag,LagSeconds", MetricsNamespace="Ours"), "KarrotTask"
    )
    settings, _, _ = load(told["Environment"])
    assert settings.reporters == ("prometheus", "cloudwatch")
    assert settings.cloudwatch.metrics == ("Lag", "LagSeconds")
    assert settings.cloudwatch.namespace == "Ours"
    assert settings.expected_clusters == ("prod-eu", "prod-us")


def test_karrot_runs_once_and_is_replaced_by_stopping_it_first() -> None:
    found = resources(POSTED)["KarrotService"]
    deployment = found["DeploymentConfiguration"]
    assert (found["DesiredCount"], deployment["MinimumHealthyPercent"], deployment["MaximumPercent"]) == (1, 0, 100)
    assert found["NetworkConfiguration"]["AwsvpcConfiguration"]["AssignPublicIp"] == "DISABLED"


def test_with_a_database_two_tasks_run_and_each_is_replaced_by_starting_another_first() -> None:
    found = resources(BURROW, **PASSWORD)
    deployment = found["KarrotService"]["DeploymentConfiguration"]
    assert found["KarrotService"]["DesiredCount"] == 2
    assert (deployment["MinimumHealthyPercent"], deployment["MaximumPercent"]) == (100, 200)
    burrow = found["BurrowService"]
    assert (burrow["DesiredCount"], burrow["DeploymentConfiguration"]["MaximumPercent"]) == (1, 100)


def test_karrot_s_container_has_a_health_check_and_time_to_send_its_last_data() -> None:
    told = container(resources(POSTED), "KarrotTask")
    assert (told["EntryPoint"], told["Command"]) == (["karrot"], ["serve"])
    assert told["HealthCheck"]["Command"] == ["CMD", "karrot", "healthcheck"]
    assert told["StopTimeout"] == 30


def test_karrot_s_container_writes_only_to_its_data_volume() -> None:
    found = resources(POSTED)
    told = container(found, "KarrotTask")
    assert (told["ReadonlyRootFilesystem"], told["User"]) == (True, "65532:65532")
    assert told["MountPoints"] == [{"SourceVolume": "data", "ContainerPath": told["Environment"]["KARROT_DATA_DIR"]}]
    assert found["KarrotTask"]["Volumes"] == [{"Name": "data"}]


def test_with_a_database_a_task_has_no_volume() -> None:
    found = resources(POSTED, **PASSWORD)
    told = container(found, "KarrotTask")
    assert (found["KarrotTask"]["Volumes"], told["MountPoints"]) == ([], [])
    assert "KARROT_DATA_DIR" not in told["Environment"]


def test_karrot_may_only_publish_in_its_namespace() -> None:
    found = resources(POSTED, MetricsNamespace="Ours")
    assert rights(found, "KarrotTaskRole") == [
        ("cloudwatch:PutMetricData", "*", {"StringEquals": {"cloudwatch:namespace": "Ours"}})
    ]
    assert "ManagedPolicyArns" not in found["KarrotTaskRole"]
    assert found["KarrotTask"]["TaskRoleArn"] == "KarrotTaskRole.Arn"
    assert found["ExecutionRole"]["Policies"] == []


def test_watch_may_only_describe_the_topics_and_groups_of_its_cluster_in_msk() -> None:
    _, *found = rights(resources(WATCH, MskClusterArn=MSK), "KarrotTaskRole")
    account, cluster = MSK.rpartition(":")[0], MSK.rpartition("cluster/")[2]
    assert found == [
        (["kafka-cluster:Connect", "kafka-cluster:DescribeCluster"], MSK, None),
        (
            ["kafka-cluster:DescribeTopic", "kafka-cluster:DescribeGroup"],
            [f"{account}:topic/{cluster}/*", f"{account}:group/{cluster}/*"],
            None,
        ),
    ]


def test_the_archive_may_only_be_written_below_its_prefix_and_encrypted_with_its_key() -> None:
    _, *found = rights(resources(POSTED, **ARCHIVE), "KarrotTaskRole")
    assert found == [
        (["s3:PutObject", "s3:DeleteObject"], "arn:aws:s3:::lag/karrot/a/*", None),
        ("s3:ListBucket", "arn:aws:s3:::lag", {"StringLike": {"s3:prefix": "karrot/a/*"}}),
        ("kms:GenerateDataKey", KEY, None),
    ]


def test_with_iam_the_task_may_log_in_only_as_its_own_user() -> None:
    found = resources(POSTED, **DATABASE, DatabaseUser="lag", RdsResourceId="cluster-ABC123")
    _, login = rights(found, "KarrotTaskRole")
    assert login == ("rds-db:connect", "arn:aws:rds-db:eu-west-1:123456789012:dbuser:cluster-ABC123/lag", None)
    assert container(found, "KarrotTask")["Environment"]["KARROT_EVENT_LOG_RDS_IAM"] == "true"
    assert "rds-db:connect" not in str(rights(resources(POSTED, **PASSWORD), "KarrotTaskRole"))


def test_secrets_reach_the_containers_and_only_the_execution_role_may_read_them() -> None:
    found = resources(BURROW, **PASSWORD, BurrowPasswordSecret=SECRET, ApiTokenSecret=f"{SECRET}3", SecretsKmsKey=KEY)
    told, of_burrow = container(found, "KarrotTask"), container(found, "BurrowTask")
    assert told["Secrets"] == {
        "KARROT_BURROW_PASSWORD": SECRET,
        "KARROT_API_TOKEN": f"{SECRET}3",
        "DATABASE_CA": f"{SECRET}1",
        "DATABASE_PASSWORD": f"{SECRET}2:password::",
    }
    assert of_burrow["Secrets"] == {"BURROW_NOTIFIER_KARROT_PASSWORD": SECRET}
    assert told["Environment"]["KARROT_BURROW_USERNAME"] == "burrow"
    assert tomllib.loads(of_burrow["Environment"]["CONFIGURATION"])["notifier"]["karrot"]["username"] == "burrow"
    assert rights(found, "ExecutionRole") == [
        (
            ["secretsmanager:GetSecretValue", "ssm:GetParameters"],
            [SECRET, f"{SECRET}3", f"{SECRET}1", f"{SECRET}2"],
            None,
        ),
        ("kms:Decrypt", KEY, None),
    ]


def test_only_burrow_reaches_karrot_and_with_watch_no_machine_does() -> None:
    [rule] = resources(POSTED)["KarrotSecurityGroup"]["SecurityGroupIngress"]
    assert (rule["FromPort"], rule["ToPort"], rule["SourceSecurityGroupId"]) == (5000, 5000, "sg-1")
    assert resources(WATCH)["KarrotSecurityGroup"]["SecurityGroupIngress"] == []


def test_the_database_lets_karrot_in_before_karrot_starts() -> None:
    found = resources(POSTED, **PASSWORD, DatabasePort="5433")
    rule = found["DatabaseAccess"]
    assert (rule["GroupId"], rule["FromPort"], rule["SourceSecurityGroupId"]) == (
        *("sg-2", "5433", "KarrotSecurityGroup.GroupId"),
    )
    assert "DatabaseAccess" in [each["Value"] for each in found["KarrotService"]["Tags"]]


def test_burrow_finds_karrot_by_its_name_in_a_namespace_of_its_own_or_in_yours() -> None:
    for more, host in (
        ({}, "karrot.karrot-prod-eu.internal"),
        ({"DnsNamespaceId": "ns-1", "DnsNamespaceName": "lag.internal"}, "karrot-prod-eu.lag.internal"),
    ):
        stack = deployed(TEMPLATE, **BURROW, **more)
        found = stack["Resources"]
        domain = found["Namespace"]["Name"] if "Namespace" in found else more["DnsNamespaceName"]
        assert f"{found['KarrotDiscovery']['Name']}.{domain}" == host
        read = tomllib.loads(container(found, "BurrowTask")["Environment"]["CONFIGURATION"])
        assert read["notifier"]["karrot"]["url-open"] == f"http://{host}:5000/burrow"
        assert stack["Outputs"]["Karrot"]["Value"] == f"http://{host}:5000"


def test_karrot_reads_burrow_s_rest_api_in_both_modes_with_burrow() -> None:
    for more, host in (
        ({}, "burrow.karrot-prod-eu.internal"),
        ({"DnsNamespaceId": "ns-1", "DnsNamespaceName": "lag.internal"}, "karrot-prod-eu-burrow.lag.internal"),
    ):
        found = resources(BURROW, **more)
        domain = found["Namespace"]["Name"] if "Namespace" in found else more["DnsNamespaceName"]
        assert f"{found['BurrowDiscovery']['Name']}.{domain}" == host
        assert found["BurrowService"]["ServiceRegistries"] == [{"RegistryArn": "BurrowDiscovery.Arn"}]
        assert container(found, "KarrotTask")["Environment"]["KARROT_BURROW_URL"] == f"http://{host}:8000"
        read = tomllib.loads(container(found, "BurrowTask")["Environment"]["CONFIGURATION"])
        assert read["httpserver"]["default"]["address"] == f":{found['BurrowAccess']['ToPort']}"
        assert found["BurrowAccess"]["GroupId"] == "sg-1"
        assert found["BurrowAccess"]["SourceSecurityGroupId"] == "KarrotSecurityGroup.GroupId"
    own = container(resources(POSTED, BurrowUrl="http://burrow:8000"), "KarrotTask")["Environment"]
    assert own["KARROT_BURROW_URL"] == "http://burrow:8000"
    for without in (POSTED, {**WATCH, "BurrowUrl": "http://burrow:8000"}):
        assert "KARROT_BURROW_URL" not in container(resources(without), "KarrotTask")["Environment"]


@pytest.mark.parametrize("user", [None, "burrow"])
def test_burrow_s_configuration_is_complete_and_its_notifier_is_the_one_of_burrow_config(user: str | None) -> None:
    more = {} if user is None else {"BurrowPasswordSecret": SECRET}
    told = container(resources(BURROW, **more), "BurrowTask")["Environment"]
    read = tomllib.loads(told["CONFIGURATION"])
    notifier = burrow_config(
        "http://karrot.karrot-prod-eu.internal:5000", user, template_path="/tmp/burrow/karrot.tmpl"
    )
    assert read["notifier"] == tomllib.loads(notifier)["notifier"]
    # Burrow creates only the first missing folder of a path, so the path has one part.
    assert read["zookeeper"] == {"servers": ["zookeeper:2181"], "timeout": 6, "root-path": "/burrow-prod-eu"}
    assert read["client-profile"]["karrot"]["kafka-version"] == "2.8.0"
    assert read["cluster"]["prod-eu"]["servers"] == ["kafka-1:9092", "kafka-2:9092"]
    assert read["consumer"]["prod-eu"]["cluster"] == "prod-eu"
    assert told["EVENT_TEMPLATE"] == burrow_template()


def test_burrow_s_container_writes_only_to_its_volume_which_a_first_container_gives_to_its_user() -> None:
    first, burrow = resources(BURROW)["BurrowTask"]["ContainerDefinitions"]
    assert burrow["DependsOn"] == [{"ContainerName": first["Name"], "Condition": "SUCCESS"}]
    assert (first["ReadonlyRootFilesystem"], burrow["ReadonlyRootFilesystem"]) == (True, True)
    assert (first["Essential"], burrow["Essential"]) == (False, True)
    [mount] = burrow["MountPoints"]
    assert first["MountPoints"] == [mount]
    assert first["Command"] == [f"chown {burrow['User']} {mount['ContainerPath']}"]
    assert "Secrets" not in first


def test_burrow_s_command_writes_its_configuration_into_the_volume(tmp_path: Path) -> None:
    told = container(resources(BURROW), "BurrowTask")
    [mount] = told["MountPoints"]
    burrow = tmp_path / "burrow"
    burrow.write_text('#!/bin/sh\nprintf "%s " "$@"; pwd\n')
    burrow.chmod(0o755)
    volume = tmp_path / "volume"
    volume.mkdir()
    [command] = told["Command"]
    command = command.replace(mount["ContainerPath"], str(volume)).replace("/app/burrow", str(burrow))
    script = [*told["EntryPoint"], command]
    ran = subprocess.run(script, env=told["Environment"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"--config-dir {volume} {volume}\n"
    assert (volume / "burrow.toml").read_text() == told["Environment"]["CONFIGURATION"]
    assert (volume / "karrot.tmpl").read_text() == burrow_template()


@pytest.mark.parametrize("parameters", [PASSWORD, DATABASE], ids=["with a password", "with IAM"])
def test_the_start_script_writes_the_secrets_into_files_and_hides_them_from_karrot(
    parameters: dict[str, str], tmp_path: Path
) -> None:
    told = container(resources(POSTED, **parameters), "KarrotTask")
    program = tmp_path / "karrot"
    program.write_text('#!/bin/sh\necho "$@ ${DATABASE_PASSWORD-} ${DATABASE_CA-}"\n')
    program.chmod(0o755)
    values = {"DATABASE_PASSWORD": "it's 100% $HOME", "DATABASE_CA": "-----BEGIN CERTIFICATE-----\nabc\n"}
    secrets = {name: values[name] for name in told["Secrets"]}
    environment = told["Environment"] | secrets | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    [script] = told["Command"]
    command = [*told["EntryPoint"], script.replace("/dev/shm", str(tmp_path))]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("serve  \n", "")
    files = {"DATABASE_PASSWORD": "KARROT_EVENT_LOG_PASSWORD_FILE", "DATABASE_CA": "PGSSLROOTCERT"}
    for name, value in secrets.items():
        path = Path(told["Environment"][files[name]])
        assert str(path.parent) == "/dev/shm"
        assert (tmp_path / path.name).read_text() == f"{value}\n"
        assert stat.S_IMODE((tmp_path / path.name).stat().st_mode) == 0o600
    assert len(list(tmp_path.iterdir())) == len(secrets) + 1


def test_a_real_karrot_starts_with_the_script_and_a_real_database(tmp_path: Path) -> None:
    with running_postgres_with_tls() as (database, authority):
        of_server = {"DatabaseHost": "localhost", "DatabasePort": str(database.port), "DatabaseUser": USER}
        told = container(resources(POSTED, **{**PASSWORD, **of_server}, DatabaseName=DATABASE_NAME), "KarrotTask")
        port = free_port()
        environment = {
            **os.environ,
            **{name: text for name, text in told["Environment"].items() if "CLOUDWATCH" not in name},
            "KARROT_REPORTERS": "prometheus",
            "KARROT_BIND": f"127.0.0.1:{port}",
            "DATABASE_PASSWORD": PASSWORD_OF_USER,
            "DATABASE_CA": authority,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        here = {name: text.replace("/dev/shm", str(tmp_path)) for name, text in environment.items()}
        [script] = told["Command"]
        command = [*told["EntryPoint"], script.replace("/dev/shm", str(tmp_path))]
        with (
            (tmp_path / "said").open("wb") as said,
            subprocess.Popen(command, cwd=tmp_path, env=here, stdout=said, stderr=said) as process,
        ):
            try:
                wait_for(lambda: process.poll() is not None or _is_ready(port), 60)
                assert process.poll() is None, (tmp_path / "said").read_text()
            finally:
                process.terminate()
            assert process.wait(30) == 0
        assert {path.name for path in tmp_path.iterdir()} == {"database-password", "database-ca.pem", "said"}


def _is_ready(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        (NEEDED, "own-burrow needs BurrowSecurityGroup"),
        ({**BURROW, "ZooKeeper": ""}, "burrow needs BurrowSecurityGroup, KafkaBrokers and ZooKeeper"),
        ({**NEEDED, "Verdicts": "watch"}, "watch needs KafkaBrokers"),
        (
            {**WATCH, "MskClusterArn": MSK, "KafkaPropertiesSecret": SECRET},
            "Give MskClusterArn or KafkaPropertiesSecret, and not both",
        ),
        ({**POSTED, "DatabaseHost": "db"}, "DatabaseHost needs DatabaseSecurityGroup and DatabaseCaSecret"),
    ],
)
def test_parameters_that_do_not_fit_together_are_refused(parameters: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        deployed(TEMPLATE, **parameters)


def shell_blocks() -> list[str]:
    page = (ROOT / "docs" / "autoscaling.md").read_text(encoding="utf-8")
    return re.findall(r"^```shell\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def test_each_documented_deployment_gives_parameters_that_fit_together() -> None:
    commands = [
        shlex.split(line)
        for block in shell_blocks()
        for line in block.replace("\\\n", " ").splitlines()
        if "examples/ecs/karrot.yaml" in line
    ]
    kinds = set()
    for command in commands:
        assert command[command.index("--capabilities") + 1] == "CAPABILITY_IAM"
        given = dict(each.split("=", 1) for each in command[command.index("--parameter-overrides") + 1 :])
        found = resources({name: "sg-1" if value.startswith("$") else value for name, value in given.items()})
        kinds.add((given.get("Verdicts", "own-burrow"), "DatabaseAccess" in found))
    assert kinds == {("own-burrow", False), ("burrow", False), ("watch", False), ("own-burrow", True)}
    assert len(EXAMPLE.read_bytes()) < LARGEST_FILE


def test_the_documented_commands_push_the_image_and_deploy_it(tmp_path: Path) -> None:
    [block] = [each for each in shell_blocks() if "aws ecr" in each]
    calls = tmp_path / "calls"
    for name, answers in {
        "aws": "echo registry.example/karrot",
        "docker": "cat > /dev/null",
        "git": "echo 5a1ad5",
    }.items():
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> {shlex.quote(str(calls))}\n{answers}\n')
        program.chmod(0o755)
    script = ["bash", "-euo", "pipefail", "-c", block]
    programs = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    subprocess.run(script, cwd=ROOT, env={"PATH": programs}, stdin=subprocess.DEVNULL, check=True)
    called = calls.read_text().splitlines()
    assert "docker login --username AWS --password-stdin registry.example" in called
    assert called.index("docker push registry.example/karrot:5a1ad5") < len(called) - 1
    assert called[-1].startswith("aws cloudformation deploy --template-file examples/ecs/karrot.yaml ")
    assert "Image=registry.example/karrot:5a1ad5" in shlex.split(called[-1])
