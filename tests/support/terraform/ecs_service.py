"""Lists ECS services, and reads a rendered one from CloudFormation and Terraform into one form for a comparison."""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from karrot.render.karrot_on_ecs import EcsService
from support.autoscaling.terraform_to_cloudformation import parse_literal, parse_terraform

BURROW = {
    "burrow_image": "registry.example/burrow:1.9.5",
    "kafka": "kafka-1:9092,kafka-2:9092",
    "zookeeper": "zookeeper:2181",
}


MSK = "arn:aws:kafka:eu-west-1:123456789012:cluster/prod/1a2b3c4d-0000-4000-8000-000000000000-1"
KEY = "arn:aws:kms:eu-west-1:123456789012:key/1a2b3c4d-0000-4000-8000-000000000000"
SECRET = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:karrot-1a2B3c"
PARAMETER = "arn:aws:ssm:eu-west-1:123456789012:parameter/karrot/token"
NAMESPACE = {"dns_namespace": "lag.internal", "dns_namespace_id": "ns-1a2b3c"}
WATCH = {"watch": True, "kafka": "b-1.prod.kafka.eu-west-1.amazonaws.com:9098"}
DATABASE = "postgresql://karrot@db.c1a2b3.eu-west-1.rds.amazonaws.com/karrot"
VERIFIED = {"event_log": f"{DATABASE}?sslmode=verify-full", "database_ca_secret": f"{SECRET}:ca::"}
VARIANTS: dict[str, dict[str, Any]] = {
    "karrot": {},
    "several clusters": {"burrow_cluster": ("prod-eu", "prod-us"), "api_token_secret": PARAMETER},
    "and Burrow": {
        **BURROW,
        "burrow_password_secret": f"{SECRET}:password::",
        "archive": "s3://lag",
        "archive_kms_key": KEY,
    },
    "watch": {**WATCH, "kafka_properties_secret": SECRET, "api_token_secret": SECRET, "secrets_kms_key": KEY},
    "another account": {"setting": ("KARROT_IAM_ROLE=arn:aws:iam::210987654321:role/publish",)},
    "watch MSK": {**WATCH, "msk_cluster_arn": MSK, "archive": "s3://lag/karrot/a", **NAMESPACE},
    "PostgreSQL": {
        "event_log": "postgresql://karrot@one:5433,two/karrot",
        "database_password_secret": f"{SECRET}:password::",
    },
    "PostgreSQL and Burrow": {
        **BURROW,
        **VERIFIED,
        "database_password_secret": f"{SECRET}:password::",
        "burrow_password_secret": PARAMETER,
        "archive": "s3://lag",
    },
    "watch with IAM of RDS": {
        **WATCH,
        **VERIFIED,
        "msk_cluster_arn": MSK,
        "rds_iam": True,
        "rds_resource_id": "cluster-A1",
    },
}


def make_service(**changes: Any) -> EcsService:
    """Make a service from the options that matter to the test."""
    told = {"ecs_cluster": "prod", "image": "registry.example/karrot:2", "burrow_cluster": ("prod-eu",), **changes}
    return EcsService(**told)


SERVICES = {name: make_service(**changes) for name, changes in VARIANTS.items()}
"""A service of each kind, by name."""

Described = dict[str, Any]


def of_cloudformation(template: str) -> Described:
    """Return what a CloudFormation template deploys."""
    read = yaml.safe_load(template)
    found = {name: each["Properties"] for name, each in read["Resources"].items()}
    tasks = {"karrot": "Karrot", "burrow": "Burrow"}
    return {
        "containers": {
            word: _camel(found[f"{name}Task"]["ContainerDefinitions"])
            for word, name in tasks.items()
            if f"{name}Task" in found
        },
        "tasks": {
            word: [
                *(found[f"{name}Task"][each] for each in ("Family", "Cpu", "Memory", "NetworkMode")),
                [volume["Name"] for volume in found[f"{name}Task"].get("Volumes", ())],
            ]
            for word, name in tasks.items()
            if f"{name}Task" in found
        },
        "services": {
            word: [
                *(found[f"{name}Service"][each] for each in ("ServiceName", "Cluster", "LaunchType", "DesiredCount")),
                *(
                    found[f"{name}Service"]["DeploymentConfiguration"][f"{each}Percent"]
                    for each in ("MinimumHealthy", "Maximum")
                ),
            ]
            for word, name in tasks.items()
            if f"{name}Service" in found
        },
        "rights": _statements(found["KarrotTaskRole"]["Policies"][0]["PolicyDocument"]["Statement"]),
        "secrets": _statements(
            [
                each
                for policy in found["ExecutionRole"].get("Policies", ())
                for each in policy["PolicyDocument"]["Statement"]
            ]
        ),
        "ports": [
            (rule["FromPort"], rule["ToPort"], rule["IpProtocol"])
            for rule in found["KarrotSecurityGroup"].get("SecurityGroupIngress", ())
        ],
        "ports of the database": [
            (rule["FromPort"], rule["ToPort"], rule["IpProtocol"])
            for name, rule in found.items()
            if name.startswith("DatabaseAccess")
        ],
        "name": (found["KarrotDiscovery"]["Name"], found.get("Namespace", {}).get("Name")),
        "outputs": [each["Description"] for each in read["Outputs"].values()],
    }


def of_terraform(text: str) -> Described:
    """Return what a Terraform file deploys."""
    read = parse_terraform(text)
    found: dict[str, dict[str, Any]] = {}
    for each in (*read["resource"], *read.get("data", ())):
        for kind, named in each.items():
            for label, body in named.items():
                found.setdefault(kind, {})[label] = body
    [karrot] = [label for label in found["aws_ecs_service"] if not label.endswith("_burrow")]
    labels = {"karrot": karrot, "burrow": f"{karrot}_burrow"}
    tasks, services = found["aws_ecs_task_definition"], found["aws_ecs_service"]
    documents = found["aws_iam_policy_document"]
    [namespace] = found.get("aws_service_discovery_private_dns_namespace", {"": {"name": None}}).values()
    return {
        "containers": {word: _encoded(tasks[label]) for word, label in labels.items() if label in tasks},
        "tasks": {
            word: [
                *(tasks[label][each] for each in ("family", "cpu", "memory", "network_mode")),
                [volume["name"] for volume in tasks[label].get("volume", ())],
            ]
            for word, label in labels.items()
            if label in tasks
        },
        "services": {
            word: [
                *(services[label][each] for each in ("name", "cluster", "launch_type", "desired_count")),
                *(services[label][f"deployment_{each}_percent"] for each in ("minimum_healthy", "maximum")),
            ]
            for word, label in labels.items()
            if label in services
        },
        "rights": [_statement(each) for each in documents[f"{karrot}_task"]["statement"]],
        "secrets": [_statement(each) for each in documents.get(f"{karrot}_secrets", {"statement": []})["statement"]],
        "ports": [
            (rule["from_port"], rule["to_port"], rule["ip_protocol"])
            for label, rule in found.get("aws_vpc_security_group_ingress_rule", {}).items()
            if label == karrot
        ],
        "ports of the database": [
            (rule["from_port"], rule["to_port"], rule["ip_protocol"])
            for label, rule in found.get("aws_vpc_security_group_ingress_rule", {}).items()
            if label != karrot
        ],
        "name": (found["aws_service_discovery_service"][karrot]["name"], namespace["name"]),
        "outputs": [each["description"] for output in read["output"] for each in output.values()],
    }


def _encoded(task: Mapping[str, Any]) -> Any:
    """Return the containers, which are the argument of ``jsonencode``."""
    match = re.fullmatch(r"jsonencode\((.*)\)", task["container_definitions"]["Ref"], re.DOTALL)
    assert match
    return _plain(parse_literal(match[1]))


def _camel(value: Any) -> Any:
    """Return CloudFormation's names as the API has them, and each reference as `REFERENCE`."""
    if isinstance(value, Mapping):
        if value.keys() & {"Ref", "Fn::GetAtt"}:
            return REFERENCE
        return {(name if "-" in name else name[0].lower() + name[1:]): _camel(each) for name, each in value.items()}
    return [_camel(each) for each in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return REFERENCE if "Ref" in value else {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


REFERENCE = "a reference"


def _statements(statements: list[Mapping[str, Any]]) -> list[Any]:
    return [
        (
            each["Effect"],
            _listed(each["Action"]),
            [_arn(resource) for resource in _listed(each["Resource"])],
            [(test, *pair) for test, pairs in each.get("Condition", {}).items() for pair in pairs.items()],
        )
        for each in statements
    ]


def _statement(body: Mapping[str, Any]) -> Any:
    conditions = [(each["test"], each["variable"], *each["values"]) for each in body.get("condition", ())]
    return body["effect"], body["actions"], [_arn(each) for each in body["resources"]], conditions


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _arn(value: Any) -> str:
    text = value["Fn::Sub"] if isinstance(value, Mapping) else value
    return re.sub(r"\$\{.*?\}", "PARTITION", text)
