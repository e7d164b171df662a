"""The real Burrow, with the files and environment from its chart, posts to a Karrot with the same from its chart.

Both start as their pods would, twice: with a user and a password, and with a token. Burrow also accepts the
configuration of every shape of its chart. The tests are skipped if there is no Burrow.
"""

import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from e2e.stack.java import java
from e2e.stack.processes import Server, wait_until
from e2e.stack.stack import Stack
from e2e.traffic import Traffic
from support.kubernetes.helm_charts import Manifest, only_object, render_chart, render_values_file, values_files
from support.kubernetes.pod_files import PodCommand, write_pod_files
from support.servers.self_signed_certificate import make_self_signed
from support.service.free_ports import free_ports
from support.service.karrot_service import Service
from support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

CLUSTER = "E2E.charted"  # Burrow reads the name in lower case; the dot needs quotes
GROUP = "charted-group"
FIRST_WORD_S = 150  # Burrow sends nothing in its first 60 seconds, and groups begin at a random moment
NEW_SESSION_S = 120  # ZooKeeper's session ends, the lock is taken again, the group is due

Object = dict[str, Any]


class Installed(NamedTuple):
    """A release of the chart karrot with Burrow, its pods as processes; ``zookeeper`` is the chart's own."""

    karrot: Service
    burrow: Server
    zookeeper: "OwnZooKeeper"


class OwnZooKeeper:
    """The chart's ZooKeeper, with a new directory for each start, like a pod without a volume."""

    def __init__(self, stack: Stack, manifests: list[Manifest], directory: Path, port: int) -> None:
        self._stack = stack
        self._directory = directory
        self._port = port
        self._config = only_object(manifests, "ConfigMap", "karrot-burrow-zookeeper")["data"]["zoo.cfg"]
        self._starts = 0
        self.server: Server

    def start(self) -> None:
        """Start with empty data, and return when it answers, as the init container of Burrow's pod does."""
        self._starts += 1
        data = self._directory / f"zookeeper-{self._starts}"
        data.mkdir(parents=True)
        told = self._config.replace("/data", str(data)).replace("clientPort=2181", f"clientPort={self._port}")
        config = self._directory / "zoo.cfg"
        config.write_text(
            told.replace("admin.enableServer=true", "admin.enableServer=false")
        )  # Jetty's jars are not available
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = java(self._stack.zookeeper._jars, 64, main, config)
        self.server = self._stack.servers.start(f"{self._directory.name}-zookeeper", command)
        wait_until(self._answers, [self.server], what="ZooKeeper answers")

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


class Ports(NamedTuple):
    karrot: int
    burrow: int
    zookeeper: int


def values(kafka: list[str], auth: Object, ports: Ports) -> Object:
    """Return the values that a user writes, with local addresses and short times."""
    way = "bearer" if "token" in auth else "auto"
    return {
        "auth": auth,
        "config": {"burrow_url": f"http://127.0.0.1:{ports.burrow}", "workers": 1, "threads": 4},
        "burrow": {
            "enabled": True,
            "karrot": {"url": f"http://127.0.0.1:{ports.karrot}", "auth": {"type": way}},
            "config": {
                "cluster": {CLUSTER: {"servers": kafka, "topicRefresh": 5, "offsetRefresh": 1}},
                "httpserver": {"default": {"address": f"127.0.0.1:{ports.burrow}"}},
                "evaluator": {"expireCache": 1},
                "notifier": {"karrot": {"interval": 10}},
            },
        },
    }


def installed(stack: Stack, binary: str, auth: Object, directory: Path) -> Installed:
    """Start ZooKeeper and Burrow; a ``with`` block of the test starts and ends Karrot."""
    ports = Ports(*free_ports(3))
    manifests = render_chart("karrot", values(stack.kafka.addresses, auth, ports))
    zookeeper = OwnZooKeeper(stack, manifests, directory, ports.zookeeper)
    zookeeper.start()
    burrow = stack.servers.start(f"{directory.name}-burrow", burrows_command(manifests, binary, directory, ports))
    return Installed(service(pod(manifests, "karrot", directory), ports.karrot), burrow, zookeeper)


def burrows_command(manifests: list[Manifest], binary: str, directory: Path, ports: Ports) -> list[str]:
    started = pod(manifests, "karrot-burrow", directory)
    config = directory / "karrot-burrow" / "etc" / "burrow" / "burrow.toml"
    service = "karrot-burrow-zookeeper.monitoring:2181"
    assert service in config.read_text()
    config.write_text(config.read_text().replace(service, f"127.0.0.1:{ports.zookeeper}"))
    environment = [f"{name}={text}" for name, text in started.environment.items()]
    return ["env", *environment, binary, *started.arguments[1:]]


def pod(manifests: list[Manifest], deployment: str, directory: Path) -> PodCommand:
    return write_pod_files(
        only_object(manifests, "Deployment", deployment)["spec"]["template"], manifests, {}, directory / deployment
    )


def service(started: PodCommand, port: int) -> Service:
    """Return ``karrot serve`` with the pod's environment, on a local port."""
    told: Object = {name.removeprefix("KARROT_").lower(): text for name, text in started.environment.items()}
    del told["bind"]
    found = Service(Path(told.pop("data_dir")), **told)
    found.port = port
    return found


@pytest.fixture(scope="module")
def releases(
    burrow_bin: str, one_broker: Stack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Installed]]:
    directory = tmp_path_factory.mktemp("charts")
    one_broker.kafka.create_topic("charted", 1)
    ways: dict[str, Object] = {
        "password": {"username": "burrow", "password": 'p4$$ "w0rd"'},
        "token": {"token": "t0ken"},
    }
    with ExitStack() as ending, Traffic(one_broker.kafka, "charted", GROUP, writes=2, reads=1):
        found = {name: installed(one_broker, burrow_bin, auth, directory / name) for name, auth in ways.items()}
        for each in found.values():
            ending.enter_context(each.karrot)
        yield found
        for each in found.values():
            each.burrow.stop()
            each.zookeeper.server.stop()


def heard(release: Installed) -> Callable[[], float]:
    """Return the time of the last accepted webhook of Burrow as a Unix time, or 0."""
    cluster = CLUSTER.lower()
    return lambda: release.karrot.metric("karrot_last_event_timestamp_seconds", cluster=cluster) or 0.0


@pytest.mark.parametrize("way", ["password", "token"])
def test_the_events_of_the_rendered_burrow_arrive_in_the_rendered_karrot(
    releases: dict[str, Installed], way: str
) -> None:
    release = releases[way]
    wait_until(lambda: heard(release)() > 0, [release.burrow], what="an event arrived", within_s=FIRST_WORD_S)
    wait_for(lambda: (release.karrot.metric("karrot_consumer_lag", consumer=GROUP) or 0) > 0, 60)
    assert release.karrot.metric("karrot_events_rejected_total", code="unauthorized") in {None, 0}
    assert release.karrot.post(b"{}").status == 401


def test_burrow_takes_its_lock_again_when_its_zookeeper_starts_empty(releases: dict[str, Installed]) -> None:
    release = releases["password"]
    wait_for(lambda: heard(release)() > 0, FIRST_WORD_S)
    release.zookeeper.server.kill()
    release.zookeeper.start()
    begun = heard(release)()
    wait_until(
        lambda: heard(release)() > begun + 30, [release.burrow], what="events came again", within_s=NEW_SESSION_S
    )


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Object], list[Manifest]]:
    """Return the Secrets and ConfigMaps that the shapes name but do not create."""
    made = make_self_signed(tmp_path_factory.mktemp("certificate"))
    certificate, key = made.chain.decode(), made.key.decode()
    secrets: dict[str, Object] = {
        "prod-cluster-ca-cert": {"ca.crt": certificate},
        "burrow-tls": {"tls.crt": certificate, "tls.key": key},
        "burrow": {"password": "x"},
        "burrow-environment": {"BURROW_SASL_OTHER_PASSWORD": "x"},
        "karrot-webhook": {"user": "burrow", "password": "x", "token": "x"},
    }
    names = ("authority", "burrow-environment")
    return secrets, [Manifest("", {"kind": "ConfigMap", "metadata": {"name": name}}) for name in names]


@pytest.mark.parametrize("shape", values_files("burrow"), ids=lambda path: path.stem)
def test_burrow_accepts_the_configuration_of_every_shape(
    burrow_bin: str, outside: tuple[dict[str, Object], list[Manifest]], shape: Path, tmp_path: Path
) -> None:
    """Burrow checks the whole configuration before it starts, and ends at the first server that does not answer."""
    secrets, configs = outside
    manifests = render_values_file(shape)
    template = only_object(manifests, "Deployment")["spec"]["template"]
    started = write_pod_files(template, [*manifests, *configs], secrets, tmp_path)
    config = tmp_path / "etc" / "burrow" / "burrow.toml"
    config.write_text(re.sub(r'address = ":\d+"', 'address = "127.0.0.1:0"', config.read_text()))
    command = [burrow_bin, *started.arguments[1:]]
    environment = started.environment | {"BURROW_LOGGING_LEVEL": "info"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert '"msg":"starting"' in done.stdout, done.stdout + done.stderr
