"""`karrot doctor` is clean on a system with a real Burrow, and names each planted fault alone."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import TopicPartition

from e2e.services import CLUSTER
from e2e.stack.stack import Stack
from e2e.test_real_burrow import FIRST_WORD_S, MESSAGES, TOPIC, commit, notifier, write
from e2e.waiting import wait_for
from support.service.karrot_service import Service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

GROUPS = ("doctor-one", "doctor-two")
OLD_TEMPLATE = "default-http-post.tmpl"
BY_CONFIGURATION = {
    "threshold": ("threshold = 1", "threshold = 2"),
    "send-close": ("send-close = true", "send-close = false"),
    "method": ('method-close = "POST"', 'method-close = "DELETE"'),
    "template": ("karrot.tmpl", OLD_TEMPLATE),
    "timeout": ("timeout = 5", "timeout = 1"),
    "allowlist": ('group-allowlist = ".*"', 'group-allowlist = "^nothing$"'),
}
"""What to replace in burrow.toml for the fault that a check names."""


class Scene(NamedTuple):
    """A Burrow that posts to a Karrot, which a Prometheus scrapes. Karrot also reads Burrow's REST API."""

    stack: Stack
    burrow: str
    burrow_bin: str
    section: str
    karrot: Service

    def found(self, burrow: str) -> tuple[int, dict[str, Any]]:
        """Return the exit code, and the levels and sentences of the checks that did not pass."""
        sides = {
            "burrow": burrow,
            "karrot": f"http://127.0.0.1:{self.karrot.port}",
            "prometheus": self.stack.prometheus.url,
        }
        command = [sys.executable, "-m", "karrot", "doctor", "--json"]
        command += [each for name, url in sides.items() for each in (f"--{name}", url)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        said = [each for each in json.loads(ended.stdout)["findings"] if each["level"] != "ok"]
        return ended.returncode, {each["check"]: (each["level"], each["what"]) for each in said}


@pytest.fixture(scope="module")
def scene(burrow_bin: str, one_broker: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("doctor")
    write(one_broker.kafka)
    with Service(directory / "data", expected_clusters=CLUSTER) as karrot:
        section = notifier(f"http://127.0.0.1:{karrot.port}", directory)
        (directory / OLD_TEMPLATE).write_bytes((directory / "karrot.tmpl").read_bytes())
        burrow = one_broker.burrow(burrow_bin, name="posts", cluster=CLUSTER, notifiers=section)
        commit(one_broker.kafka, {each: [TopicPartition(TOPIC, 0, MESSAGES)] for each in GROUPS}, [burrow])
        with one_broker.prometheus.scraping("doctor", karrot.port):
            wait_for(lambda: karrot.metric("karrot_consumers") == len(GROUPS), FIRST_WORD_S)
            yield Scene(one_broker, burrow.url, burrow_bin, section, karrot)
        burrow.server.stop()


def test_the_doctor_is_clean_on_a_healthy_system(scene: Scene) -> None:
    wait_for(lambda: scene.found(scene.burrow)[0] == 0, 60)  # until Prometheus has scraped
    code, said = scene.found(scene.burrow)
    assert (code, {name: level for name, (level, _) in said.items()}) == (0, {}), said


@pytest.mark.parametrize("check", BY_CONFIGURATION)
def test_a_fault_in_burrow_s_configuration_is_named_alone(scene: Scene, check: str) -> None:
    """The Burrow with the fault waits for the lock of the one that posts."""
    right, wrong = BY_CONFIGURATION[check]
    assert right in scene.section
    planted = scene.section.replace(right, wrong)
    burrow = scene.stack.burrow(scene.burrow_bin, name=check, cluster=CLUSTER, notifiers=planted)
    try:
        commit(scene.stack.kafka, {each: [TopicPartition(TOPIC, 0, MESSAGES)] for each in GROUPS}, [burrow])
        wait_for(lambda: scene.found(burrow.url)[1].keys() == {check}, 60)
    finally:
        burrow.server.stop()


def test_a_body_of_another_template_is_named_alone(scene: Scene) -> None:
    assert scene.karrot.post(b'{"event": {}}').status == 400
    wait_for(lambda: scene.found(scene.burrow)[1].keys() == {"templates-refused"}, 60)
    assert scene.found(scene.burrow)[0] == 1
