"""The rendered ECS services of Karrot and Burrow."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from karrot.cli import main
from karrot.render.burrow_toml import burrow_config, burrow_template
from karrot.render.karrot_on_ecs import service
from karrot.settings.loading import load
from karrot.wiring import try_out
from support.autoscaling.terraform_to_cloudformation import parse_terraform
from support.terraform.ecs_service import (
    BURROW,
    KEY,
    MSK,
    NAMESPACE,
    PARAMETER,
    SECRET,
    VARIANTS,
    WATCH,
    make_service,
    of_cloudformation,
    of_terraform,
)
from support.terraform.provider_schema import schema_problems
from support.terraform.terraform_plan import terraform


def resources(**changes: Any) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(service(make_service(**changes)))["Resources"]
    return {name: each["Properties"] for name, each in read.items()}


def container(found: dict[str, Any], task: str) -> dict[str, Any]:
    *_, main_container = found[task]["ContainerDefinitions"]
    return {**main_container, "Environment": {each["Name"]: each["Value"] for each in main_container["Environment"]}}


def test_karrot_runs_once_and_is_replaced_by_stopping_it_first() -> None:
    found = resources()
    service_of_karrot = found["KarrotService"]
    assert service_of_karrot["DesiredCount"] == 1
    deployment = service_of_karrot["DeploymentConfiguration"]
    assert (deployment["MinimumHealthyPercent"], deployment["MaximumPercent"]) == (0, 100)
    assert "# A Fargate task loses its storage when it is replaced." in service(make_service())


def test_the_services_of_two_kafka_clusters_have_different_names() -> None:
    burrow = {"burrow_image": "burrow:1", "kafka": "k:9092", "zookeeper": "z:2181"}
    names = [
        resources(burrow_cluster=(cluster,), **burrow)[service]["ServiceName"]
        for cluster in ("prod-eu", "prod-us")
        for service in ("KarrotService", "BurrowService")
    ]
    assert sorted(names) == ["burrow-prod-eu", "burrow-prod-us", "karrot-prod-eu", "karrot-prod-us"]


def test_two_burrows_with_one_zookeeper_hold_different_locks() -> None:
    paths = []
    for cluster in ("prod-eu", "prod-us"):
        told = container(resources(burrow_cluster=(cluster,), **BURROW), "BurrowTask")["Environment"]
        paths.append(tomllib.loads(told["CONFIGURATION"])["zookeeper"]["root-path"])
    # Burrow creates only the first missing folder of a path, so the path has one part.
    assert paths == ["/burrow-prod-eu", "/burrow-prod-us"]


def test_karrot_s_container_has_a_health_check_and_time_to_send_its_last_data() -> None:
    told = container(resources(), "KarrotTask")
    assert (told["EntryPoint"], told["Command"]) == (["karrot"], ["serve"])
    assert told["HealthCheck"]["Command"] == ["CMD", "karrot", "healthcheck"]
    assert told["StopTimeout"] == 30


@pytest.mark.parametrize("variant", VARIANTS)
def test_terraform_deploys_the_same_as_cloudformation(variant: str) -> None:
    told = make_service(**VARIANTS[variant])
    assert of_terraform(service(told, "terraform")) == of_cloudformation(service(told))


def test_the_rendered_terraform_is_formatted_as_by_terraform(tmp_path: Path) -> None:
    for number, changes in enumerate(VARIANTS.values()):
        (tmp_path / f"{number}.tf").write_text(service(make_service(**changes), "terraform"), encoding="utf-8")
    ended = terraform("fmt", "-check", "-diff", folder=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_provider_knows_each_resource_of_the_rendered_terraform(variant: str) -> None:
    assert schema_problems(service(make_service(**VARIANTS[variant]), "terraform")) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_karrot_would_start_with_the_settings_of_each_variant(
    variant: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(name, value)
    told = container(resources(**VARIANTS[variant]), "KarrotTask")
    secrets = {each["Name"]: "security.protocol=SSL" for each in told.get("Secrets", ())}
    (tmp_path / "database-password").write_text("p")
    environment = told["Environment"] | secrets | {"AWS_REGION": "eu-west-1"}
    here = {name: value.replace("/dev/shm", str(tmp_path)) for name, value in environment.items()}
    try_out(load(here).settings)


def test_watch_may_only_describe_the_topics_and_groups_of_its_cluster_in_msk() -> None:
    [policy] = resources(**WATCH, msk_cluster_arn=MSK)["KarrotTaskRole"]["Policies"]
    rights = {
        (action, *statement["Resource"])
        for statement in policy["PolicyDocument"]["Statement"]
        for action in statement["Action"]
        if action.startswith("kafka")
    }
    below = MSK.rpartition(":")[0], MSK.rpartition("cluster/")[2]
    assert rights == {
        ("kafka-cluster:Connect", MSK),
        ("kafka-cluster:DescribeCluster", MSK),
        ("kafka-cluster:DescribeTopic", f"{below[0]}:topic/{below[1]}/*"),
        ("kafka-cluster:DescribeGroup", f"{below[0]}:group/{below[1]}/*"),
    }


def test_the_archive_may_only_be_written_below_its_prefix() -> None:
    [policy] = resources(archive="s3://lag/karrot/")["KarrotTaskRole"]["Policies"]
    _, write, read = policy["PolicyDocument"]["Statement"]
    assert (write["Action"], write["Resource"]) == (
        ["s3:PutObject", "s3:DeleteObject"],
        [{"Fn::Sub": "arn:${AWS::Partition}:s3:::lag/karrot/*"}],
    )
    assert read["Action"] == ["s3:ListBucket"]
    assert read["Condition"] == {"StringLike": {"s3:prefix": "karrot/*"}}


def test_secrets_reach_the_containers_and_only_the_execution_role_may_read_them() -> None:
    found = resources(**BURROW, burrow_password_secret=f"{SECRET}:password::", api_token_secret=PARAMETER)
    told, of_burrow = container(found, "KarrotTask"), container(found, "BurrowTask")
    assert {each["Name"]: each["ValueFrom"] for each in told["Secrets"]} == {
        "KARROT_BURROW_PASSWORD": f"{SECRET}:password::",
        "KARROT_API_TOKEN": PARAMETER,
    }
    assert of_burrow["Secrets"] == [{"Name": "BURROW_NOTIFIER_KARROT_PASSWORD", "ValueFrom": f"{SECRET}:password::"}]
    assert told["Environment"]["KARROT_BURROW_USERNAME"] == "burrow"
    assert tomllib.loads(of_burrow["Environment"]["CONFIGURATION"])["notifier"]["karrot"]["username"] == "burrow"
    [policy] = found["ExecutionRole"]["Policies"]
    assert [(each["Action"], each["Resource"]) for each in policy["PolicyDocument"]["Statement"]] == [
        ("secretsmanager:GetSecretValue", [SECRET]),
        ("ssm:GetParameters", [PARAMETER]),
    ]


def test_any_setting_without_an_option_of_its_own_can_be_given() -> None:
    given = ("KARROT_CLOUDWATCH_RESOLUTION=1", "KARROT_CLOUDWATCH_EXCLUDE=^a=${b}$")
    told = container(resources(setting=given), "KarrotTask")["Environment"]
    assert told["KARROT_CLOUDWATCH_RESOLUTION"] == "1"
    assert told["KARROT_CLOUDWATCH_EXCLUDE"] == "^a=${b}$"
    in_terraform = of_terraform(service(make_service(setting=given), "terraform"))
    assert in_terraform == of_cloudformation(service(make_service(setting=given)))


def test_a_role_in_another_account_may_be_assumed() -> None:
    role = "arn:aws:iam::210987654321:role/publish"
    [policy] = resources(setting=(f"KARROT_IAM_ROLE={role}",))["KarrotTaskRole"]["Policies"]
    _, assume = policy["PolicyDocument"]["Statement"]
    assert (assume["Action"], assume["Resource"]) == (["sts:AssumeRole"], [role])


def test_keys_of_your_own_may_only_decrypt_the_secrets_and_encrypt_the_archive() -> None:
    found = resources(api_token_secret=SECRET, secrets_kms_key=KEY, archive="s3://lag", archive_kms_key=f"{KEY}1")
    rights = {
        (role, action, *statement["Resource"])
        for role in ("ExecutionRole", "KarrotTaskRole")
        for statement in found[role]["Policies"][0]["PolicyDocument"]["Statement"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
        if action.startswith("kms")
    }
    assert rights == {
        ("ExecutionRole", "kms:Decrypt", KEY),
        ("KarrotTaskRole", "kms:GenerateDataKey", f"{KEY}1"),
    }


@pytest.mark.parametrize("options", [{"watch": True}, BURROW], ids=["watch", "Burrow"])
def test_msk_without_authentication_and_other_kafka_on_the_same_ports_are_accepted(options: dict[str, Any]) -> None:
    for kafka in ("b-1.prod.kafka.eu-west-1.amazonaws.com:9092", "kafka.example.internal:9094"):
        assert make_service(**{**options, "kafka": kafka}).kafka == kafka


@pytest.mark.parametrize("suffix", ["-1", "-s3"], ids=["provisioned", "serverless"])
def test_provisioned_and_serverless_msk_clusters_are_accepted(suffix: str) -> None:
    arn = MSK.removesuffix("-1") + suffix
    assert make_service(**WATCH, msk_cluster_arn=arn).msk_cluster_arn == arn


def test_a_cluster_with_an_underscore_has_a_valid_name_in_dns_and_as_a_stack() -> None:
    told = make_service(burrow_cluster=("prod_eu",), **NAMESPACE)
    template = service(told)
    assert told.host == "karrot-prod-eu.lag.internal"
    assert make_service(burrow_cluster=("prod_eu",)).host == "karrot.karrot-prod-eu.internal"
    assert "--stack-name karrot-prod-eu " in template
    assert yaml.safe_load(template)["Resources"]["KarrotService"]["Properties"]["ServiceName"] == "karrot-prod_eu"


def test_the_outputs_name_the_security_groups_that_reach_kafka() -> None:
    def groups(**changes: Any) -> dict[str, list[str]]:
        outputs = yaml.safe_load(service(make_service(**changes)))["Outputs"]
        return {each["Description"]: each["Value"]["Fn::GetAtt"] for name, each in outputs.items() if name != "Karrot"}

    assert groups(**WATCH, msk_cluster_arn=MSK) == {
        "Karrot's security group, which Kafka must accept": ["KarrotSecurityGroup", "GroupId"],
    }
    assert groups(**BURROW) == {"Karrot's security group": ["KarrotSecurityGroup", "GroupId"]}


def test_burrow_s_security_group_exists_before_the_stack_so_that_kafka_can_accept_it() -> None:
    """Burrow ends if Kafka or ZooKeeper refuses it, so ECS would give up before the stack shows a group of its own."""
    template = yaml.safe_load(service(make_service(**BURROW)))
    assert template["Parameters"]["BurrowSecurityGroup"]["Type"] == "AWS::EC2::SecurityGroup::Id"
    network = template["Resources"]["BurrowService"]["Properties"]["NetworkConfiguration"]["AwsvpcConfiguration"]
    assert network["SecurityGroups"] == [{"Ref": "BurrowSecurityGroup"}]
    in_terraform = service(make_service(**BURROW), "terraform")
    assert re.findall(r"security_groups += \[(.*)\]", in_terraform) == [
        *("aws_security_group.karrot-prod-eu.id", "var.burrow_security_group_id")
    ]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_rendered_terraform_declares_everything_that_it_refers_to(variant: str) -> None:
    text = service(make_service(**VARIANTS[variant]), "terraform")
    read = parse_terraform(text)
    declared = {
        f"{prefix}{kind}.{label}"
        for block, prefix in (("resource", ""), ("data", "data."))
        for each in read[block]
        for kind, named in each.items()
        for label in named
    }
    declared |= {f"var.{name}" for each in read["variable"] for name in each}
    referred = set(re.findall(r"(?<![\w.])((?:data\.)?aws_\w+\.[\w-]+|var\.\w+)", text))
    assert referred <= declared
    assert {name for name in declared if name.startswith(("data.", "var."))} <= referred


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_security_group_of_the_rendered_terraform_reaches_other_machines(variant: str) -> None:
    text = service(make_service(**VARIANTS[variant]), "terraform")
    found: dict[str, set[str]] = {}
    for each in parse_terraform(text)["resource"]:
        for kind, named in each.items():
            found.setdefault(kind, set()).update(named)
    assert found["aws_vpc_security_group_egress_rule"] == found["aws_security_group"]


def test_karrot_s_container_writes_only_to_its_data_volume() -> None:
    found = resources()
    told = container(found, "KarrotTask")
    assert (told["ReadonlyRootFilesystem"], told["User"]) == (True, "65532:65532")
    assert told["MountPoints"] == [{"SourceVolume": "data", "ContainerPath": told["Environment"]["KARROT_DATA_DIR"]}]
    assert found["KarrotTask"]["Volumes"] == [{"Name": "data"}]


def test_burrow_s_container_writes_only_to_its_volume_which_a_first_container_gives_to_its_user() -> None:
    first, burrow = resources(**BURROW)["BurrowTask"]["ContainerDefinitions"]
    assert burrow["DependsOn"] == [{"ContainerName": first["Name"], "Condition": "SUCCESS"}]
    assert (first["ReadonlyRootFilesystem"], burrow["ReadonlyRootFilesystem"]) == (True, True)
    assert (first["Essential"], burrow["Essential"]) == (False, True)
    [mount] = burrow["MountPoints"]
    assert first["MountPoints"] == [mount]
    assert first["Command"] == [f"chown {burrow['User']} {mount['ContainerPath']}"]
    assert "Secrets" not in first


def test_burrow_s_command_writes_its_configuration_into_the_volume(tmp_path: Path) -> None:
    told = container(resources(**BURROW), "BurrowTask")
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


def test_two_stacks_in_one_vpc_share_no_name() -> None:
    def names(cluster: str, **more: Any) -> set[str]:
        found = resources(burrow_cluster=(cluster,), **BURROW, **more)
        services = (found[name]["ServiceName"] for name in ("KarrotService", "BurrowService"))
        families = (found[name]["Family"] for name in ("KarrotTask", "BurrowTask"))
        domain = found["Namespace"]["Name"] if "Namespace" in found else NAMESPACE["dns_namespace"]
        namespace = {f"namespace {domain}"} if "Namespace" in found else set()
        return {*services, *families, *namespace, f"{found['KarrotDiscovery']['Name']}.{domain}"}

    assert not names("prod-eu") & names("prod-us")
    assert not names("prod-eu", **NAMESPACE) & names("prod-us", **NAMESPACE)


def test_karrot_would_start_with_the_rendered_settings() -> None:
    told = container(resources(metrics="Lag,LagSeconds", namespace="Ours"), "KarrotTask")["Environment"]
    region = told.pop("AWS_REGION")
    assert region == {"Ref": "AWS::Region"}
    settings, warnings, _ = load(told)
    [warning] = warnings  # only the security group keeps other machines out
    assert warning.startswith("KARROT_BIND is 0.0.0.0:5000: anyone who reaches this port can post events and read")
    assert settings.reporters == ("prometheus", "cloudwatch")
    assert settings.cloudwatch_metrics == ("Lag", "LagSeconds")
    assert settings.cloudwatch_namespace == "Ours"
    assert settings.expected_clusters == ("prod-eu",)


def test_karrot_may_only_publish_in_its_namespace() -> None:
    found = resources(namespace="Ours")
    [policy] = found["KarrotTaskRole"]["Policies"]
    assert policy["PolicyDocument"]["Statement"] == [
        {
            "Effect": "Allow",
            "Action": ["cloudwatch:PutMetricData"],
            "Resource": ["*"],
            "Condition": {"StringEquals": {"cloudwatch:namespace": "Ours"}},
        }
    ]
    assert "ManagedPolicyArns" not in found["KarrotTaskRole"]
    assert found["KarrotTask"]["TaskRoleArn"] == {"Fn::GetAtt": ["KarrotTaskRole", "Arn"]}


def test_burrow_finds_karrot_by_its_name() -> None:
    found = resources(**BURROW, dns_namespace="lag.internal")
    assert (found["Namespace"]["Name"], found["KarrotDiscovery"]["Name"]) == ("lag.internal", "karrot")
    assert found["KarrotService"]["ServiceRegistries"] == [{"RegistryArn": {"Fn::GetAtt": ["KarrotDiscovery", "Arn"]}}]
    read = tomllib.loads(container(found, "BurrowTask")["Environment"]["CONFIGURATION"])
    assert read["notifier"]["karrot"]["url-open"] == "http://karrot.lag.internal:5000/burrow"


def test_burrow_s_configuration_is_complete() -> None:
    told = container(resources(**BURROW), "BurrowTask")["Environment"]
    read = tomllib.loads(told["CONFIGURATION"])
    notifier = burrow_config("http://karrot.karrot-prod-eu.internal:5000", template_path="/tmp/burrow/karrot.tmpl")
    assert read["notifier"] == tomllib.loads(notifier)["notifier"]
    assert read["zookeeper"]["servers"] == ["zookeeper:2181"]
    assert read["client-profile"]["karrot"]["kafka-version"] == "2.8.0"
    assert read["cluster"]["prod-eu"]["servers"] == ["kafka-1:9092", "kafka-2:9092"]
    assert read["consumer"]["prod-eu"]["cluster"] == "prod-eu"
    assert told["EVENT_TEMPLATE"] == burrow_template()


def test_without_burrow_the_template_has_only_its_ingress_rule() -> None:
    found = resources()
    assert not [name for name in found if name.startswith("Burrow")]
    [rule] = found["KarrotSecurityGroup"]["SecurityGroupIngress"]
    assert (rule["FromPort"], rule["SourceSecurityGroupId"]) == (5000, {"Ref": "BurrowSecurityGroup"})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        pytest.param(
            {"burrow_cluster": ("Prod",)},
            (
                "--cluster is 'Prod': it must be as Burrow reports it: "
                "up to 56 lower-case letters, digits, - and _, with a letter or a digit at the end"
            ),
            id="a Kafka cluster in upper case",
        ),
        ({"image": 'x" y'}, "--image is 'x\" y': it must be the image of a container"),
        ({"metrics": "Lags"}, "--metrics is 'Lags': it must be one or more of Lag, ScalableLag, MaxLag"),
        ({"dns_namespace": "a b"}, "--dns-namespace is 'a b': it must be a domain"),
        ({"burrow_cluster": ()}, "--cluster is missing: it must be as Burrow reports it"),
        (
            {"kafka": "k:1"},
            "--bootstrap-servers needs --burrow-image or --watch: without them, Karrot does not connect to Kafka",
        ),
        ({"zookeeper": "z:1"}, "--zookeeper needs --burrow-image: only Burrow connects to ZooKeeper"),
        ({**BURROW, "watch": True}, "--watch and --burrow-image exclude each other: watch takes the place of Burrow"),
        ({"watch": True}, "--bootstrap-servers is missing: it must be HOST:PORT, several separated by commas"),
        ({**WATCH, "kafka": "k:99999"}, "--bootstrap-servers is 'k:99999': it must be HOST:PORT"),
        (
            {**WATCH, "kafka": "b-1:9098,b-2:9094", "msk_cluster_arn": MSK},
            "--bootstrap-servers has the port 9094, but --msk-cluster-arn needs the port for IAM, which is 9098",
        ),
        (
            {**WATCH, "kafka": "b-1.prod.kafka.us-east-1.amazonaws.com:9098", "msk_cluster_arn": MSK},
            "--bootstrap-servers has brokers in us-east-1, but --msk-cluster-arn is in eu-west-1",
        ),
        (
            {
                **WATCH,
                "kafka": "b-1.prod.kafka.eu-west-1.amazonaws.com:9098, b-2.prod.kafka.eu-west-1.amazonaws.com:9098",
            },
            "--bootstrap-servers has MSK's port for IAM, 9098, which needs --msk-cluster-arn",
        ),
        (
            {**WATCH, "kafka": "b-1.prod.kafka.eu-west-1.amazonaws.com:9096"},
            "--bootstrap-servers has MSK's port for SCRAM, 9096, which needs --kafka-properties-secret",
        ),
        (
            {**BURROW, "kafka": "b-1.prod.kafka.eu-west-1.amazonaws.com:9094"},
            "--bootstrap-servers has MSK's port for TLS, 9094, but this Burrow connects without TLS and SASL",
        ),
        ({"setting": ("KARROT_API_TOKEN=hunter2",)}, "--setting is 'KARROT_API_TOKEN'=...: it must be NAME=VALUE with"),
        ({"setting": ("KARROT_REPORTERS=stdout",)}, "--setting is 'KARROT_REPORTERS'=...: it must be NAME=VALUE with"),
        ({"setting": ("KARROT_LOG",)}, "--setting is 'KARROT_LOG': it must be NAME=VALUE with a setting of Karrot"),
        ({"setting": ("KARROT_LOG=loud",)}, "--setting KARROT_LOG is 'loud': it must be "),
        ({"setting": ("KARROT_LOG=INFO", "KARROT_LOG=DEBUG")}, "--setting has the same name twice"),
        (
            {**WATCH, "msk_cluster_arn": MSK, "setting": ("KARROT_WATCH_INTERVAL=200s",)},
            "KARROT_STALE_AFTER is 300s, less than twice KARROT_WATCH_INTERVAL (200s)",
        ),
        ({"burrow_cluster": ("a", "b", "a")}, "--cluster has the same name twice"),
        ({"burrow_cluster": ("a" * 57,)}, f"--cluster is '{'a' * 57}': it must be as Burrow reports it"),
        ({"burrow_cluster": ("prod-",)}, "--cluster is 'prod-': it must be as Burrow reports it"),
        ({"dns_namespace_id": "ns-1a2b3c"}, "--dns-namespace-id needs --dns-namespace: the name of this namespace"),
        ({"dns_namespace": "-a.internal"}, "--dns-namespace is '-a.internal': it must be a domain"),
        ({"secrets_kms_key": KEY}, "--secrets-kms-key needs a secret: without a secret, there is nothing to decrypt"),
        ({"archive_kms_key": KEY}, "--archive-kms-key needs --archive: it is the key of the archive's bucket"),
        ({"archive": "s3://lag", "archive_kms_key": "k"}, "--archive-kms-key is 'k': it must be the ARN of a KMS key"),
        ({"archive": "s3://lag/*"}, "--archive is 's3://lag/*': it must be s3://BUCKET or s3://BUCKET/PREFIX"),
        (
            {"api_token_secret": SECRET.rpartition("-")[0]},
            f"--api-token-secret is '{SECRET.rpartition('-')[0]}': it must be the ARN of a secret in Secrets Manager",
        ),
        ({"api_token_secret": f"{SECRET}:token"}, f"--api-token-secret is '{SECRET}:token': it must be the ARN of a"),
        (
            {**WATCH, "burrow_cluster": ("a", "b")},
            "--watch and --burrow-image take one --cluster: render a template for each Kafka cluster",
        ),
        ({"msk_cluster_arn": MSK}, "--msk-cluster-arn and --kafka-properties-secret need --watch"),
        (
            {**WATCH, "msk_cluster_arn": MSK, "kafka_properties_secret": SECRET},
            "--msk-cluster-arn and --kafka-properties-secret exclude each other: choose how to authenticate",
        ),
        (
            {**WATCH, "msk_cluster_arn": MSK, "burrow_password_secret": SECRET},
            "--burrow-password-secret does not go with --watch: nothing posts to Karrot then",
        ),
        (
            {"api_token_secret": "hunter2"},
            "--api-token-secret is 'hunter2': it must be the ARN of a secret in Secrets Manager with its last 6",
        ),
        ({"archive": "/var/lib"}, "--archive is '/var/lib': it must be s3://BUCKET or s3://BUCKET/PREFIX"),
        ({"dns_namespace_id": "x"}, "--dns-namespace-id is 'x': it must be the id of a namespace"),
        (
            {**BURROW, "zookeeper": None},
            "--zookeeper is missing: it must be HOST:PORT, several separated by commas",
        ),
        (
            {**BURROW, "kafka": "k:1\n[x]"},
            "--bootstrap-servers is 'k:1\\n[x]': it must be HOST:PORT, several separated by commas",
        ),
    ],
)
def test_invalid_options_of_a_service_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=r"^(--|KARROT_)") as caught:
        make_service(**changes)
    assert str(caught.value).startswith(sentence)


ROOT = Path(__file__).resolve().parents[2]
LARGEST_FILE = 51_200
"""The largest template body in bytes that CloudFormation accepts without a bucket."""


def required(template: str) -> set[str]:
    """Return the parameters without a default value."""
    return {name for name, each in yaml.safe_load(template)["Parameters"].items() if "Default" not in each}


def given(command: list[str]) -> set[str]:
    """Return the parameters that a command sets; they are its last arguments."""
    return {each.partition("=")[0] for each in command[command.index("--parameter-overrides") + 1 :]}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_the_template_has_the_deploy_command_with_every_required_parameter(changes: dict[str, str]) -> None:
    template = service(make_service(**changes))
    [command] = re.findall(r"^#   (aws cloudformation deploy .*\\\n#.*)$", template, re.MULTILINE)
    words = shlex.split(command.replace("\\\n#", ""))
    assert given(words) == required(template)
    assert words[words.index("--capabilities") + 1] == "CAPABILITY_IAM"
    assert len(template.encode()) < LARGEST_FILE


def test_the_documented_commands_push_the_image_and_deploy_its_template(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "autoscaling.md").read_text(encoding="utf-8")
    [block] = [
        each for each in re.findall(r"^```shell\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) if "aws ecr" in each
    ]
    calls = tmp_path / "calls"
    for name, answers in {
        "aws": "echo registry.example/karrot",
        "docker": "cat > /dev/null",
        "git": "echo 5a1ad5",
    }.items():
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> {shlex.quote(str(calls))}\n{answers}\n')
        program.chmod(0o755)
    programs = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    script = ["bash", "-euo", "pipefail", "-c", block]
    subprocess.run(script, cwd=tmp_path, env={"PATH": programs}, stdin=subprocess.DEVNULL, check=True)
    called = calls.read_text().splitlines()
    assert "docker login --username AWS --password-stdin registry.example" in called
    assert called.index("docker push registry.example/karrot:5a1ad5") < len(called) - 1
    template = (tmp_path / "karrot.yaml").read_text()
    assert "Image: registry.example/karrot:5a1ad5" in template.replace('"', "")
    assert called[-1].startswith("aws cloudformation deploy --template-file karrot.yaml ")
    assert given(shlex.split(called[-1])) == required(template)


def documented(option: str) -> list[list[str]]:
    """Return the commands of the only documented block that has the option."""
    page = (ROOT / "docs" / "autoscaling.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```shell\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    [block] = [each for each in blocks if "render ecs-service" in each and option in each]
    for variable, value in {"$repository:$tag": "karrot:1", "$authority": SECRET}.items():
        block = block.replace(variable, value)
    return [shlex.split(line) for line in block.replace("\\\n", " ").splitlines()]


@pytest.mark.parametrize("option", ["--watch", "--burrow-image", "--event-log"])
def test_the_documented_stacks_with_burrow_with_watch_and_with_postgresql_have_every_required_parameter(
    option: str,
) -> None:
    render, deploy = documented(option)
    printed = CliRunner().invoke(main, render[1:-2])
    assert (printed.exit_code, printed.stderr) == (0, "")
    assert given(deploy) == required(printed.stdout)
    assert deploy[deploy.index("--template-file") + 1] == render[-1]


def test_both_schemes_of_s3_name_the_same_archive() -> None:
    render, _ = documented("--watch")
    first, second = (
        CliRunner().invoke(main, [*render[1:-2], "--archive", f"{scheme}://lag/karrot"]) for scheme in ("s3", "s3a")
    )
    assert "KARROT_ARCHIVE_DIR" in first.stdout
    assert (second.exit_code, second.stdout) == (0, first.stdout)


def test_the_documented_terraform_command_sets_every_variable() -> None:
    _, render, _, _, apply = documented("--format terraform")
    printed = CliRunner().invoke(main, render[1:-2])
    assert (printed.exit_code, printed.stderr) == (0, "")
    declared = {name for each in parse_terraform(printed.stdout)["variable"] for name in each}
    assert {apply[at + 1].partition("=")[0] for at, word in enumerate(apply) if word == "-var"} == declared
