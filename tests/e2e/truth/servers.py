"""The servers of a run: a broker with rights, Karrot that watches it, and Prometheus with Karrot's own rules."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.kafka import Kafka
from e2e.stack.processes import Servers
from e2e.stack.stack import Parts
from e2e.truth.members import Client
from e2e.truth.plan import CLUSTER, ELSEWHERE, INTERVAL_S, NIGHTLY
from support.prometheus.prometheus_server import Prometheus
from support.service.free_ports import free_ports
from support.service.karrot_service import Service

TENANT: Final = "tenant"
"""A user with a password, who needs a right for each topic and group. All other clients are super users."""

_SETTINGS = """\
listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{with_password},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{with_password}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_{tenant}="{tenant}";
transaction.max.timeout.ms=7200000
log.retention.check.interval.ms=10000
"""
_SCRAPE_S = 5


@dataclass(frozen=True)
class Broker:
    """The broker, and the properties of a client that has the tenant's password."""

    kafka: Kafka
    servers: Servers
    tenant: Client


@contextmanager
def running_broker(directory: Path) -> Iterator[Broker]:
    downloads = Downloads(default_cache())
    with Servers(directory) as servers:
        port, controller, with_password = free_ports(3)
        directory.mkdir(parents=True, exist_ok=True)
        more = _SETTINGS.format(port=port, controller=controller, with_password=with_password, tenant=TENANT)
        version = Parts().kafka_version
        kafka = Kafka(servers, downloads.jars(version).kafka, version, [port, controller], more_settings=more)
        kafka.start()
        kafka.wait()
        tenant: Client = {
            "bootstrap.servers": f"127.0.0.1:{with_password}",
            "log_level": 0,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": TENANT,
            "sasl.password": TENANT,
        }
        yield Broker(kafka, servers, tenant)


@contextmanager
def running_karrot(kafka: Kafka, directory: Path) -> Iterator[tuple[Service, Prometheus]]:
    """Start Karrot and a Prometheus that scrapes it."""
    rules = subprocess.run(
        [sys.executable, "-m", "karrot", "render", "alert-rules"], capture_output=True, text=True, check=True
    ).stdout
    with ExitStack() as stack:
        service = stack.enter_context(
            Service(
                directory / "karrot",
                watch_bootstrap=kafka.bootstrap,
                watch_cluster=CLUSTER,
                watch_interval=f"{INTERVAL_S}s",
                watch_offsets_elsewhere=f"^{ELSEWHERE}",
                abandoned_groups=f"^{NIGHTLY}",
            )
        )
        binary = str(Downloads(default_cache()).prometheus())
        prometheus = Prometheus(binary, directory / "prometheus", service.port, interval_s=_SCRAPE_S, rules=[rules])
        yield service, stack.enter_context(prometheus)
