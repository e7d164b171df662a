"""Renders a template that runs Karrot itself, and optionally Burrow, on ECS with Fargate."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from karrot.render import jinja_templates, validation
from karrot.render.burrow_toml import burrow_config, burrow_template
from karrot.render.ecs_database import PASSWORD_FILE, EcsDatabase
from karrot.settings import types
from karrot.settings.loading import SettingsError, load
from karrot.settings.options import OPTIONS

_TEMPLATES = {"cloudformation": "ecs/service.yaml.j2", "terraform": "ecs/service.tf.j2"}
_BURROW_DIR = "/tmp/burrow"  # noqa: S108 (a volume of its own)
_BURROW_COMMAND = f"""cd {_BURROW_DIR}
printf '%s' "$CONFIGURATION" > burrow.toml
printf '%s' "$EVENT_TEMPLATE" > karrot.tmpl
exec /app/burrow --config-dir {_BURROW_DIR}
"""
_METRICS = next(option.kind for option in OPTIONS if option.attribute == "cloudwatch_metrics")
_OWN = re.compile(
    "KARROT_(REPORTERS|COMPAT|BIND|TLS_.*|DATA_DIR|EXPECTED_CLUSTERS|CLOUDWATCH_(METRICS|NAMESPACE)|ARCHIVE_DIR|KAFKA_.*"
    "|WATCH_(BOOTSTRAP|CLUSTER|PROPERTIES)|BURROW_USERNAME|EVENT_LOG.*)"
)
"""The settings that the template sets itself, or that need files or ports that the template does not have."""
_SETTABLE = {each.name: each.kind for each in OPTIONS if not each.is_secret and not _OWN.fullmatch(each.name)}
_USER = "burrow"
"""The user name with which Burrow posts if it has a password."""
_IMAGE = r"[a-z0-9][\w.:/@-]{0,511}"
_STORED_ARN = (
    r"arn:aws[a-z-]*:(secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[\w/+=.@-]+-[A-Za-z0-9]{6}(:[\w.-]*:[\w-]*:[\w-]*)?"
    r"|ssm:[a-z0-9-]+:[0-9]{12}:parameter/[\w/.-]+)"
)
_KMS = r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[a-z0-9-]+"
_MSK = r"arn:aws[a-z-]*:kafka:[a-z0-9-]+:[0-9]{12}:cluster/[A-Za-z0-9-]+/[A-Za-z0-9-]+"
_NOT_IAM = "9092|9[01]94|9[01]96"
"""The ports of MSK's brokers for plain text, TLS and SCRAM."""
_MSK_BROKER = r"\.kafka(?:-serverless)?\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?:(?P<port>[0-9]+)(?=\s*(?:,|$))"
_AUTHENTICATED = {"9094": "TLS", "9194": "TLS", "9096": "SCRAM", "9196": "SCRAM", "9098": "IAM", "9198": "IAM"}
"""What a client needs on the other ports of MSK's brokers."""
_BUCKET = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[\w!.()/-]+)?"
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN = rf"(?=.{{1,200}}$){_LABEL}(\.{_LABEL})*"
_IAM_PROPERTIES = "security.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class EcsService:
    """The images to run, the Kafka clusters, and the rights. The verdicts come from a Burrow, or from `watch`.

    Names that end with ``_secret`` are ARNs in Secrets Manager or Parameter Store. Raises `ValueError` with one message
    per line for wrong options.
    """

    ecs_cluster: str
    image: str
    burrow_cluster: tuple[str, ...]
    burrow_image: str | None = None
    watch: bool = False
    kafka: str | None = None
    zookeeper: str | None = None
    msk_cluster_arn: str | None = None
    kafka_properties_secret: str | None = None
    burrow_password_secret: str | None = None
    api_token_secret: str | None = None
    event_log: str | None = None
    database_password_secret: str | None = None
    database_ca_secret: str | None = None
    rds_iam: bool = False
    rds_resource_id: str | None = None
    secrets_kms_key: str | None = None
    archive: str | None = None
    archive_kms_key: str | None = None
    metrics: str = "Lag"
    namespace: str = "Karrot"
    dns_namespace: str | None = None
    dns_namespace_id: str | None = None
    setting: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        validation.refuse(_problems(self))
        validation.refuse(_contradictions(self))

    @property
    def name(self) -> str:
        """The name of Karrot's service. Two services in one ECS cluster need different Kafka clusters."""
        return f"karrot-{self.burrow_cluster[0]}"

    @property
    def host(self) -> str:
        """Karrot's name in DNS. In an existing namespace, another Karrot may be there already."""
        return f"{self.hyphenated if self.dns_namespace_id else 'karrot'}.{self.domain}"

    @property
    def domain(self) -> str:
        """The name of the Cloud Map namespace. A VPC can have only one namespace of a name."""
        return self.dns_namespace or f"{self.hyphenated}.internal"

    @property
    def hyphenated(self) -> str:
        """The name where AWS takes no underscores: in DNS, and as the name of a stack."""
        return self.name.replace("_", "-")

    @property
    def database(self) -> EcsDatabase:
        """The database of the event log. Without ``event_log``, there is none."""
        return EcsDatabase(
            event_log=self.event_log,
            password_secret=self.database_password_secret,
            ca_secret=self.database_ca_secret,
            rds_iam=self.rds_iam,
            rds_resource_id=self.rds_resource_id,
        )

    @property
    def secret_rights(self) -> dict[str, list[str]]:
        """The ARNs that the execution role may use, by the action. One secret can be in two containers."""
        arns = sorted({":".join(arn.split(":")[:7]) for arn in self.secrets.values()})  # without a key in the secret
        rights = {"secretsmanager:GetSecretValue": ":secretsmanager:", "ssm:GetParameters": ":ssm:"}
        found = {action: [arn for arn in arns if service in arn] for action, service in rights.items()}
        if self.secrets_kms_key:
            found["kms:Decrypt"] = [self.secrets_kms_key]
        return {action: arns for action, arns in found.items() if arns}

    @property
    def secrets(self) -> dict[str, str]:
        """The ARNs of the secrets in Karrot's container, by the name of the variable."""
        given = {
            "KARROT_BURROW_PASSWORD": self.burrow_password_secret,
            "KARROT_API_TOKEN": self.api_token_secret,
            "KARROT_WATCH_PROPERTIES_INLINE": self.kafka_properties_secret,
        }
        return {name: arn for name, arn in given.items() if arn is not None} | self.database.secrets

    @property
    def settings(self) -> dict[str, str]:
        """Karrot's settings, without the Region and the secrets."""
        told = {
            "KARROT_REPORTERS": f"prometheus,cloudwatch{',archive' if self.archive else ''}",
            "KARROT_CLOUDWATCH_METRICS": self.metrics,
            "KARROT_CLOUDWATCH_NAMESPACE": self.namespace,
            **(self.database.settings or {"KARROT_DATA_DIR": "/data"}),
        }
        if self.watch:
            told |= {"KARROT_WATCH_BOOTSTRAP": self.kafka or "", "KARROT_WATCH_CLUSTER": self.burrow_cluster[0]}
        else:
            told["KARROT_EXPECTED_CLUSTERS"] = ",".join(self.burrow_cluster)
        if self.msk_cluster_arn:
            told["KARROT_WATCH_PROPERTIES_INLINE"] = _IAM_PROPERTIES
        if self.burrow_password_secret:
            told["KARROT_BURROW_USERNAME"] = _USER
        if self.archive:
            told["KARROT_ARCHIVE_DIR"] = self.archive
        return told | self.given_settings

    @property
    def given_settings(self) -> dict[str, str]:
        """The settings of ``setting``, which are texts in the form NAME=VALUE."""
        return {name: value for name, _, value in (text.partition("=") for text in self.setting)}

    @property
    def statements(self) -> list[dict[str, Any]]:
        """The rights of Karrot's task: exactly the requests that it makes. ``about`` says what each is for.

        A resource that begins with a colon needs ``arn:`` and the partition of the account before it. It can contain
        ``${AWS::Region}`` and ``${AWS::AccountId}``.
        """
        made: list[dict[str, Any]] = [
            {
                "about": "Publish metrics, only in its own namespace",
                "actions": ["cloudwatch:PutMetricData"],
                "resources": ["*"],
                "condition": ("StringEquals", "cloudwatch:namespace", self.namespace),
            }
        ]
        if role := self.given_settings.get("KARROT_IAM_ROLE"):
            made.append({"about": "Assume the role that publishes", "actions": ["sts:AssumeRole"], "resources": [role]})
        if self.msk_cluster_arn:
            cluster = self.msk_cluster_arn
            topics, groups = (f"{cluster.replace(':cluster/', f':{kind}/')}/*" for kind in ("topic", "group"))
            made += [
                _statement("Connect to the cluster, and list its groups", ["Connect", "DescribeCluster"], cluster),
                _statement("Read log end offsets", ["DescribeTopic"], topics),
                _statement("Read committed offsets and members", ["DescribeGroup"], groups),
            ]
        if self.database.statement:
            made.append(self.database.statement)
        if self.archive:
            bucket, _, prefix = self.archive.removeprefix("s3://").partition("/")
            below = f"{prefix.strip('/')}/*".lstrip("/")
            made += [
                {
                    "about": "Write segments of the archive, and delete old ones",
                    "actions": ["s3:PutObject", "s3:DeleteObject"],
                    "resources": [f":s3:::{bucket}/{below}"],
                },
                {
                    "about": "List the segments of the archive",
                    "actions": ["s3:ListBucket"],
                    "resources": [f":s3:::{bucket}"],
                    "condition": ("StringLike", "s3:prefix", below),
                },
            ]
        if self.archive_kms_key:
            key = {"actions": ["kms:GenerateDataKey"], "resources": [self.archive_kms_key]}
            made.append({"about": "Encrypt the segments with the key of the bucket", **key})
        return made


def service(asked: EcsService, output: str = "cloudformation") -> str:
    """The services as a CloudFormation template or as Terraform."""
    url = f"http://{asked.host}:5000"
    user = _USER if asked.burrow_password_secret else None
    burrow_toml = jinja_templates.rendered(
        "ecs/burrow.toml.j2",
        cluster=asked.burrow_cluster[0],
        kafka=[each.strip() for each in (asked.kafka or "").split(",")],
        zookeeper=[each.strip() for each in (asked.zookeeper or "").split(",")],
        notifier=burrow_config(url, user, template_path=f"{_BURROW_DIR}/karrot.tmpl"),
    )
    text = jinja_templates.rendered(
        _TEMPLATES[output],
        asked=asked,
        label=asked.name,
        url=url,
        burrow_command=_BURROW_COMMAND,
        burrow_dir=_BURROW_DIR,
        burrow_toml=burrow_toml,
        burrow_template=burrow_template(),
    )
    return jinja_templates.aligned(text) if output == "terraform" else text


def _statement(about: str, actions: list[str], resource: str) -> dict[str, Any]:
    return {"about": about, "actions": [f"kafka-cluster:{each}" for each in actions], "resources": [resource]}


def _problems(asked: EcsService) -> Iterator[str]:
    yield from validation.ecs_name("--ecs-cluster", asked.ecs_cluster)
    yield from validation.matching("--image", asked.image, _IMAGE, "the image of a container")
    allowed = "as Burrow reports it: up to 56 lower-case letters, digits, - and _, with a letter or a digit at the end"
    for cluster in asked.burrow_cluster or (None,):  # a name in DNS has at most 63 characters
        yield from validation.matching("--cluster", cluster, r"[a-z0-9_-]{0,55}[a-z0-9]", allowed)
    yield from validation.of_kind(types.namespace, "--namespace", asked.namespace)
    yield from validation.of_kind(_METRICS, "--metrics", asked.metrics)
    yield from _problems_of_source(asked)
    yield from _problems_of_authentication(asked)
    given = {
        "--msk-cluster-arn": (asked.msk_cluster_arn, _MSK, "the ARN of an MSK cluster"),
        "--kafka-properties-secret": (asked.kafka_properties_secret, _STORED_ARN, _A_SECRET),
        "--burrow-password-secret": (asked.burrow_password_secret, _STORED_ARN, _A_SECRET),
        "--api-token-secret": (asked.api_token_secret, _STORED_ARN, _A_SECRET),
        "--database-password-secret": (asked.database_password_secret, _STORED_ARN, _A_SECRET),
        "--database-ca-secret": (asked.database_ca_secret, _STORED_ARN, _A_SECRET),
        "--secrets-kms-key": (asked.secrets_kms_key, _KMS, "the ARN of a KMS key"),
        "--archive": (asked.archive, _BUCKET, "s3://BUCKET or s3://BUCKET/PREFIX"),
        "--archive-kms-key": (asked.archive_kms_key, _KMS, "the ARN of a KMS key"),
        "--dns-namespace": (asked.dns_namespace, _DOMAIN, "a domain"),
        "--dns-namespace-id": (
            asked.dns_namespace_id,
            r"ns-[a-z0-9]{1,60}",
            "the id of a namespace, such as ns-0a1b2c",
        ),
    }
    for option, (text, pattern, what) in given.items():
        if text is not None:
            yield from validation.matching(option, text, pattern, what)
    yield from _problems_of_names(asked)
    yield from asked.database.problems()
    yield from _problems_of_settings(asked)


_A_SECRET = (
    "the ARN of a secret in Secrets Manager with its last 6 characters (and :KEY:: for a key in JSON), "  # noqa: S105
    "or of a parameter in Parameter Store"
)


def _problems_of_names(asked: EcsService) -> Iterator[str]:
    """What is missing, or has no effect, about names and keys."""
    if len(set(asked.burrow_cluster)) < len(asked.burrow_cluster):
        yield "--cluster has the same name twice"
    if asked.dns_namespace_id is not None and asked.dns_namespace is None:
        yield "--dns-namespace-id needs --dns-namespace: the name of this namespace"
    if asked.secrets_kms_key and not asked.secrets:
        yield "--secrets-kms-key needs a secret: without a secret, there is nothing to decrypt"
    if asked.archive_kms_key and not asked.archive:
        yield "--archive-kms-key needs --archive: it is the key of the archive's bucket"


def _problems_of_source(asked: EcsService) -> Iterator[str]:
    """What contradicts itself about Burrow and `watch`."""
    if asked.watch and asked.burrow_image is not None:
        yield "--watch and --burrow-image exclude each other: watch takes the place of Burrow"
    if asked.watch or asked.burrow_image is not None:
        yield from _servers("--bootstrap-servers", asked.kafka)
        if len(asked.burrow_cluster) > 1:
            yield "--watch and --burrow-image take one --cluster: render a template for each Kafka cluster"
    elif asked.kafka is not None:
        yield "--bootstrap-servers needs --burrow-image or --watch: without them, Karrot does not connect to Kafka"
    if asked.burrow_image is not None:
        yield from validation.matching("--burrow-image", asked.burrow_image, _IMAGE, "the image of a container")
        yield from _servers("--zookeeper", asked.zookeeper)
    elif asked.zookeeper is not None:
        yield "--zookeeper needs --burrow-image: only Burrow connects to ZooKeeper"


def _servers(option: str, text: str | None) -> Iterator[str]:
    if text is None:
        yield f"{option} is missing: it must be {types.brokers.allowed}"
    else:
        yield from validation.of_kind(types.brokers, option, text)


def _problems_of_authentication(asked: EcsService) -> Iterator[str]:
    """What contradicts itself about the client properties, and about the password for Burrow."""
    if not asked.watch and (asked.msk_cluster_arn or asked.kafka_properties_secret):
        yield "--msk-cluster-arn and --kafka-properties-secret need --watch"
    if asked.msk_cluster_arn and asked.kafka_properties_secret:
        yield "--msk-cluster-arn and --kafka-properties-secret exclude each other: choose how to authenticate"
    if asked.msk_cluster_arn and (port := re.search(rf":({_NOT_IAM})(?=,|$)", asked.kafka or "")):
        yield (
            f"--bootstrap-servers has the port {port[1]}, but --msk-cluster-arn needs the port for IAM, which is 9098 "
            "or 9198"
        )
    yield from _problems_of_msk(asked)
    if asked.watch and asked.burrow_password_secret:
        yield "--burrow-password-secret does not go with --watch: nothing posts to Karrot then"


def _problems_of_msk(asked: EcsService) -> Iterator[str]:
    """What the names of MSK's brokers show: that no connection can succeed."""
    broker = re.search(_MSK_BROKER, asked.kafka or "")
    if broker is None:
        return
    if asked.msk_cluster_arn and (region := asked.msk_cluster_arn.split(":")[3]) != broker["region"]:
        yield f"--bootstrap-servers has brokers in {broker['region']}, but --msk-cluster-arn is in {region}"
    needed = _AUTHENTICATED.get(broker["port"])
    if needed is not None and asked.burrow_image is not None:
        yield (
            f"--bootstrap-servers has MSK's port for {needed}, {broker['port']}, but this Burrow connects without TLS "
            "and SASL: use port 9092, or --watch, or a Burrow of your own"
        )
    elif needed is not None and not asked.msk_cluster_arn and not asked.kafka_properties_secret:
        option = "--msk-cluster-arn" if needed == "IAM" else "--kafka-properties-secret"
        yield f"--bootstrap-servers has MSK's port for {needed}, {broker['port']}, which needs {option}"


def _problems_of_settings(asked: EcsService) -> Iterator[str]:
    for text in asked.setting:
        name, equals, value = text.partition("=")
        if not equals or name not in _SETTABLE:  # the value is not shown, because it may be a secret
            yield (
                f"--setting is {types.quoted(name)}{equals and '=...'}: it must be NAME=VALUE with a setting of Karrot "
                "that is no secret and that no other option or the template itself sets"
            )
        else:
            yield from validation.of_kind(_SETTABLE[name], f"--setting {name}", value)
    if len(asked.given_settings) < len(asked.setting):
        yield "--setting has the same name twice"


def _contradictions(asked: EcsService) -> Iterator[str]:
    """Why Karrot would not start with these settings, although each of them is valid."""
    told = {
        name: value for name, value in asked.settings.items() if name != PASSWORD_FILE
    }  # not a file of this machine
    try:
        load(told | dict.fromkeys(asked.secrets, "stored"), available=("prometheus", "cloudwatch", "archive"))
    except SettingsError as error:
        yield from error.problems
