"""Two tasks of Karrot on ECS share an event log in PostgreSQL."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from karrot.render.karrot_on_ecs import service
from support.eventlog.postgres_server import DATABASE as DATABASE_NAME
from support.eventlog.postgres_server import PASSWORD as PASSWORD_OF_USER
from support.eventlog.postgres_server import USER
from support.eventlog.postgres_tls import running_postgres_with_tls
from support.service.free_ports import free_port
from support.terraform.ecs_service import BURROW, DATABASE, SECRET, VARIANTS, VERIFIED, make_service
from support.waiting import wait_for

PASSWORD = {"event_log": DATABASE, "database_password_secret": SECRET}
TLS = {**VERIFIED, "database_password_secret": SECRET}
IAM = {**VERIFIED, "rds_iam": True}


def template(**changes: Any) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(service(make_service(**changes)))
    return read


def resource(name: str, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = template(**changes)["Resources"][name]["Properties"]
    return found


def karrot(**changes: Any) -> dict[str, Any]:
    [container] = resource("KarrotTask", **changes)["ContainerDefinitions"]
    return {**container, "Environment": {each["Name"]: each["Value"] for each in container["Environment"]}}


def test_two_tasks_run_and_each_is_replaced_by_starting_another_first() -> None:
    found = resource("KarrotService", **PASSWORD)
    deployment = found["DeploymentConfiguration"]
    assert (found["DesiredCount"], deployment["MinimumHealthyPercent"], deployment["MaximumPercent"]) == (2, 100, 200)
    burrow = resource("BurrowService", **BURROW, **PASSWORD)
    assert (burrow["DesiredCount"], burrow["DeploymentConfiguration"]["MaximumPercent"]) == (1, 100)


def test_a_task_has_no_volume_and_keeps_nothing_that_it_could_lose() -> None:
    assert "Volumes" not in resource("KarrotTask", **PASSWORD)
    told = karrot(**PASSWORD)
    assert "MountPoints" not in told
    assert "KARROT_DATA_DIR" not in told["Environment"]
    for output in ("cloudformation", "terraform"):
        text = service(make_service(**PASSWORD), output)
        assert "loses its storage" not in text
        assert "Never two tasks at a time" not in text


def test_the_database_lets_karrot_in_at_the_ports_of_its_hosts_before_karrot_starts() -> None:
    read = template(event_log="postgresql://karrot@one:5433,two:5433,three/k", database_password_secret=SECRET)
    assert read["Parameters"]["DatabaseSecurityGroup"]["Type"] == "AWS::EC2::SecurityGroup::Id"
    rules = {name: each["Properties"] for name, each in read["Resources"].items() if "Ingress" in each["Type"]}
    assert {name: each["FromPort"] for name, each in rules.items()} == {
        "DatabaseAccess5432": 5432,
        "DatabaseAccess5433": 5433,
    }
    for rule in rules.values():
        assert rule["GroupId"] == {"Ref": "DatabaseSecurityGroup"}
        assert rule["SourceSecurityGroupId"] == {"Fn::GetAtt": ["KarrotSecurityGroup", "GroupId"]}
    assert read["Resources"]["KarrotService"]["DependsOn"] == sorted(rules)


def test_the_start_script_writes_the_secrets_into_files_and_hides_them_from_karrot(tmp_path: Path) -> None:
    told = karrot(**TLS)
    assert [each["Name"] for each in told["Secrets"]] == ["DATABASE_PASSWORD", "DATABASE_CA"]
    program = tmp_path / "karrot"
    program.write_text('#!/bin/sh\necho "$@ ${DATABASE_PASSWORD-} ${DATABASE_CA-}"\n')
    program.chmod(0o755)
    secrets = {"DATABASE_PASSWORD": "it's 100% $HOME", "DATABASE_CA": "-----BEGIN CERTIFICATE-----\nabc\n"}
    environment = told["Environment"] | secrets | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "AWS_REGION": "r"}
    [script] = told["Command"]
    command = [*told["EntryPoint"], script.replace("/dev/shm", str(tmp_path))]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("serve  \n", "")
    written = {
        "DATABASE_PASSWORD": told["Environment"]["KARROT_EVENT_LOG_PASSWORD_FILE"],
        "DATABASE_CA": told["Environment"]["PGSSLROOTCERT"],
    }
    for name, path in written.items():
        file = tmp_path / Path(path).name
        assert path == f"/dev/shm/{file.name}"
        assert file.read_text() == f"{secrets[name]}\n"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_real_karrot_starts_with_the_script_and_a_real_database(tmp_path: Path) -> None:
    with running_postgres_with_tls() as (database, authority):
        url = f"postgresql://{USER}@localhost:{database.port}/{DATABASE_NAME}?sslmode=verify-full"
        told = karrot(**TLS | {"event_log": url})
        port = free_port()
        environment = {
            **os.environ,
            **{name: text for name, text in told["Environment"].items() if "CLOUDWATCH" not in name},
            "KARROT_REPORTERS": "prometheus",
            "KARROT_BIND": f"127.0.0.1:{port}",
            "AWS_REGION": "eu-west-1",
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


def test_without_a_secret_of_the_database_karrot_is_started_directly() -> None:
    url = f"{DATABASE}?sslmode=verify-full&sslrootcert=/etc/rds.pem"
    told = karrot(event_log=url, rds_iam=True)
    assert (told["EntryPoint"], told["Command"]) == (["karrot"], ["serve"])
    assert told["Environment"]["KARROT_EVENT_LOG_RDS_IAM"] == "true"
    assert "Secrets" not in told


@pytest.mark.parametrize(
    ("changes", "database"),
    [({}, "*"), ({"rds_resource_id": "cluster-ABC123"}, "cluster-ABC123")],
    ids=["any database", "one database"],
)
def test_with_iam_the_task_may_log_in_only_as_its_own_user(changes: dict[str, str], database: str) -> None:
    [policy] = resource("KarrotTaskRole", **IAM, **changes)["Policies"]
    [login] = [each for each in policy["PolicyDocument"]["Statement"] if each["Action"] == ["rds-db:connect"]]
    own = "arn:${AWS::Partition}:rds-db:${AWS::Region}:${AWS::AccountId}"
    assert login["Resource"] == [{"Fn::Sub": f"{own}:dbuser:{database}/karrot"}]
    text = service(make_service(**IAM, **changes), "terraform")
    of_terraform = re.sub(r"\$\{data\.(\w+)\.karrot-prod-eu\.(\w+)\}", r"<\1 \2>", text)
    account = "<aws_partition partition>:rds-db:<aws_region id>:<aws_caller_identity account_id>"
    assert f'"arn:{account}:dbuser:{database}/karrot"' in of_terraform
    assert "GRANT rds_iam TO karrot;" in text


def test_the_head_says_how_a_rotated_password_reaches_the_tasks() -> None:
    text = service(make_service(**PASSWORD))
    assert "aws ecs update-service --cluster prod --service karrot-prod-eu --force-new-deployment" in text
    assert "--force-new-deployment" not in service(make_service(**IAM))


def test_the_variants_cover_a_password_a_certificate_and_iam() -> None:
    names = {name for changes in VARIANTS.values() if "event_log" in changes for name in changes}
    assert {"database_password_secret", "database_ca_secret", "rds_iam", "rds_resource_id", "watch"} <= names


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"event_log": "sqlite"},
            "--event-log is wrong: it must be postgresql://USER@HOST/DATABASE without a password",
        ),
        (
            {"event_log": "postgresql://u:hunter2@h/d"},
            "--event-log is wrong: it must be postgresql://USER@HOST/DATABASE",
        ),
        ({"event_log": "postgresql://h/d"}, "--event-log is wrong: it must be postgresql://USER@HOST/DATABASE"),
        ({"event_log": "postgresql://u@/d"}, "--event-log is wrong: it must be postgresql://USER@HOST/DATABASE"),
        ({"event_log": "postgresql://u@h"}, "--event-log is wrong: it must be postgresql://USER@HOST/DATABASE"),
        ({"event_log": "mysql://u@h/d"}, "--event-log is wrong: it must be postgresql://USER@HOST/DATABASE"),
        ({"event_log": DATABASE}, "--event-log needs --database-password-secret or --rds-iam, and not both"),
        ({**TLS, "rds_iam": True}, "--event-log needs --database-password-secret or --rds-iam, and not both"),
        ({"event_log": DATABASE, "rds_iam": True}, "--rds-iam needs sslmode=verify-full in --event-log"),
        (
            {"event_log": f"{DATABASE}?sslmode=verify-full", "rds_iam": True},
            "--event-log has sslmode=verify-full, which needs --database-ca-secret",
        ),
        ({**PASSWORD, "database_ca_secret": SECRET}, "--database-ca-secret needs sslmode=verify-full in --event-log"),
        ({**PASSWORD, "rds_resource_id": "db-ABC"}, "--rds-resource-id needs --rds-iam"),
        ({**IAM, "rds_resource_id": "my-database"}, "--rds-resource-id is 'my-database': it must be the resource id"),
        (
            {"database_password_secret": SECRET},
            "--database-password-secret, --database-ca-secret and --rds-iam need --event-log",
        ),
        ({"rds_iam": True}, "--database-password-secret, --database-ca-secret and --rds-iam need --event-log"),
        (
            {**PASSWORD, "database_password_secret": "hunter2"},
            "--database-password-secret is 'hunter2': it must be the ARN of a secret in Secrets Manager",
        ),
        ({"setting": ("KARROT_EVENT_LOG=memory",)}, "--setting is 'KARROT_EVENT_LOG'=...: it must be NAME=VALUE with"),
    ],
)
def test_contradictions_about_the_database_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=r"^--") as caught:
        make_service(**changes)
    assert str(caught.value).startswith(sentence)
    if "hunter2@" in str(changes):
        assert "hunter2" not in str(caught.value)
