"""Renders a CloudFormation template that runs Karrot, and optionally Burrow, as ECS services on Fargate."""

from collections.abc import Iterator
from dataclasses import dataclass

from karrot.render import validation
from karrot.render.burrow_toml import burrow_config, burrow_template
from karrot.render.jinja_templates import rendered
from karrot.settings import types
from karrot.settings.options import OPTIONS

_BURROW_DIR = "/tmp/burrow"  # noqa: S108 (in a container of its own, where any user may write)
_DATA_DIR = "/tmp/karrot"  # noqa: S108 (also in a container of its own)
_METRICS = next(option.kind for option in OPTIONS if option.attribute == "cloudwatch_metrics")
_IMAGE = r"[a-z0-9][\w.:/@-]{0,511}"
_SERVERS = r"[\w.-]+:[0-9]{1,5}(,[\w.-]+:[0-9]{1,5})*"


@dataclass(frozen=True, slots=True, kw_only=True)
class EcsService:
    """The images to run, and the Kafka cluster. Raises `ValueError` with one message per line for wrong options."""

    ecs_cluster: str
    image: str
    burrow_cluster: str
    burrow_image: str | None = None
    kafka: str | None = None
    zookeeper: str | None = None
    metrics: str = "Lag"
    namespace: str = "Karrot"
    dns_namespace: str = "monitoring.internal"

    def __post_init__(self) -> None:
        validation.refuse(_problems(self))


def service(asked: EcsService) -> str:
    """The CloudFormation template of the services."""
    url = f"http://karrot.{asked.dns_namespace}:5000"
    burrow_toml = rendered(
        "ecs/burrow.toml.j2",
        cluster=asked.burrow_cluster,
        kafka=(asked.kafka or "").split(","),
        zookeeper=(asked.zookeeper or "").split(","),
        notifier=burrow_config(url, template_path=f"{_BURROW_DIR}/karrot.tmpl"),
    )
    return rendered(
        "ecs/service.yaml.j2",
        asked=asked,
        url=url,
        data_dir=_DATA_DIR,
        burrow_dir=_BURROW_DIR,
        burrow_toml=burrow_toml,
        burrow_template=burrow_template(),
    )


def _problems(asked: EcsService) -> Iterator[str]:
    yield from validation.ecs_name("--ecs-cluster", asked.ecs_cluster)
    yield from validation.matching("--image", asked.image, _IMAGE, "the image of a container")
    allowed = "as Burrow reports it: lower-case letters, digits, hyphens and underscores"
    yield from validation.matching("--burrow-cluster", asked.burrow_cluster, r"[a-z0-9_-]{1,248}", allowed)
    yield from validation.of_kind(types.namespace, "--namespace", asked.namespace)
    yield from validation.matching("--dns-namespace", asked.dns_namespace, r"[a-z0-9-]+(\.[a-z0-9-]+)*", "a domain")
    yield from validation.of_kind(_METRICS, "--metrics", asked.metrics)
    if asked.burrow_image is not None:
        servers = "one or more of HOST:PORT, separated by commas"
        yield from validation.matching("--burrow-image", asked.burrow_image, _IMAGE, "the image of a container")
        yield from validation.matching("--kafka", asked.kafka, _SERVERS, servers)
        yield from validation.matching("--zookeeper", asked.zookeeper, _SERVERS, servers)
    elif asked.kafka is not None or asked.zookeeper is not None:
        yield "--kafka and --zookeeper need --burrow-image, because only Burrow connects to them"
