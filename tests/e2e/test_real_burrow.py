"""Two real Burrows, configured by `karrot burrow-config`, post to Karrot. Skipped if there is no Burrow."""

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition

from e2e.figures import Figures
from e2e.services import CLUSTER
from e2e.skew import GROUP, experiment, karrots_lags, remove
from e2e.stack.burrow import Burrow, karrot_notifier
from e2e.stack.kafka import Kafka
from e2e.stack.prometheus import Prometheus
from e2e.stack.stack import Stack
from e2e.waiting import wait_for
from karrot.burrow.client import Burrow as Client
from karrot.doctor.run_all_checks import examine, read_all
from support.service.karrot_service import Service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

FIRST_WORD_S = 150  # Burrow sends nothing in its first 60 seconds, and groups begin at a random moment
INTERVAL_S = 10
OK, ERR = 1, 3
AGREEING = {
    "burrow_kafka_consumer_lag_total": "karrot_consumer_lag",
    "burrow_kafka_consumer_status": "karrot_consumer_status_code",
}
BURROW_ITSELF = f"burrow-{CLUSTER}"
OTHERS_TURN_S = 240  # the time until ZooKeeper's session ends and all groups are due
TOPIC, MESSAGES = "agreed", 20
WELL, BEHIND = "agreed-well", "agreed-behind"
HERD = [f"herd-{number:03}" for number in range(500)]
Offsets = Mapping[str, list[TopicPartition]]
NOT_OURS = 'This is not the output of {"Event": {{ jsonencoder . }}}. '
OTHER_TEMPLATES = {
    "bare": ("{{ jsonencoder . }}", f'{NOT_OURS}It is the event without the key "Event" around it.'),
    "lower": ('{"event": {{ jsonencoder . }}}', f'{NOT_OURS}It is the event without the key "Event" around it.'),
    "result": (
        '{"Event": {{ jsonencoder .Result }}}',
        f"{NOT_OURS}It has only the Result of the event: the template encodes .Result instead of the dot.",
    ),
    "line": (
        "burrow,group={{ .Group }} lag={{ .Result.TotalLag }}",
        f"{NOT_OURS}The body is not JSON: JSON is malformed: invalid character (byte 0).",
    ),
    "list": ("[{{ jsonencoder .Result }}]", "The body is JSON but not an object."),
    "empty": ("{{ if false }}never{{ end }}", "The body is empty."),
}
READ = {WELL: MESSAGES, BEHIND: 5, **dict.fromkeys(HERD, MESSAGES - 1)}


class Scene(NamedTuple):
    """Two Burrows that share a lock, and the Karrot that they post to, after the skew experiment and 502 commits."""

    burrows: tuple[Burrow, Burrow]
    prometheus: Prometheus
    """This Prometheus scrapes Karrot."""
    lags: dict[int, int]
    beside: Service
    """This Karrot gets one group from two notifiers with its template, and from one notifier with each other one."""

    def told(self, metric: str, label: str = "consumer") -> dict[str, float]:
        """Return a metric of every group."""
        found = self.prometheus.query(f'{metric}{{cluster="{CLUSTER}"}}')
        return {each["metric"][label]: float(each["value"][1]) for each in found}

    def has_heard_of_all(self, since: float = 0) -> bool:
        """Return whether the scraped metrics have all groups of this module."""
        ours = f'cluster="{CLUSTER}",consumer=~"{GROUP}|{WELL}|{BEHIND}|herd-.*"'
        heard = self.prometheus.number(f"count(karrot_consumer_last_event_timestamp_seconds{{{ours}}} > {since})")
        return heard == 1 + len(READ)


def notifier(url: str, directory: Path) -> str:
    """Return the command's output, with shorter times and another path of the template."""
    command = [sys.executable, "-m", "karrot", "burrow-config", "--karrot", url]
    template = directory / "karrot.tmpl"
    template.write_bytes(subprocess.run([*command, "--template"], capture_output=True, check=True).stdout)
    section = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    section = section.replace("/etc/burrow/karrot.tmpl", str(template))
    return section.replace("interval = 30", f"interval = {INTERVAL_S}").replace("interval = 20", "interval = 8")


def notifiers_beside(url: str, directory: Path) -> str:
    """Return the sections of the notifiers that post one group to `Scene.beside`."""
    sections = []
    ours = dict.fromkeys(("first", "second"), '{"Event": {{ jsonencoder . }}}')
    for name, text in (ours | {name: text for name, (text, _) in OTHER_TEMPLATES.items()}).items():
        section = karrot_notifier(url, directory / name, text).replace("[notifier.karrot]", f"[notifier.{name}]")
        sections.append(section.replace('list = ".*"', f'list = "^{WELL}$"') + "send-interval = 8\n")
    return "".join(sections)


def write(kafka: Kafka) -> None:
    kafka.create_topic(TOPIC, 1)
    producer = Producer(kafka.client)
    for _ in range(MESSAGES):
        producer.produce(TOPIC, b"message", partition=0)
    assert producer.flush(30) == 0


def commit(kafka: Kafka, offsets: Offsets, burrows: Iterable[Burrow]) -> None:
    """Commit until each Burrow knows each group. Burrow drops commits of a topic whose log ends it has not read yet."""
    admin = kafka.admin()

    def are_known() -> bool:
        missing = {group for burrow in burrows for group in offsets.keys() - known_to(burrow)}
        asked = [ConsumerGroupTopicPartitions(group, offsets[group]) for group in missing]
        pending = [future for each in asked for future in admin.alter_consumer_group_offsets([each]).values()]
        for future in pending:
            future.result(60)
        return not missing

    wait_for(are_known)


def known_to(burrow: Burrow) -> set[str]:
    with Client(burrow.url) as client:
        return set(client.consumers(CLUSTER))


@pytest.fixture(scope="module")
def scene(burrow_bin: str, stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("burrow")
    with (
        Service(directory / "data") as service,
        Service(directory / "beside") as beside,
        stack.prometheus.scraping("beside-burrow", service.port),
    ):
        section = notifier(f"http://127.0.0.1:{service.port}", directory)
        section += notifiers_beside(f"http://127.0.0.1:{beside.port}/burrow", directory)
        first, second = burrows = tuple(
            stack.burrow(burrow_bin, name=f"burrow-{number}", cluster=CLUSTER, notifiers=section) for number in (1, 2)
        )
        write(stack.kafka)
        commit(stack.kafka, {group: [TopicPartition(TOPIC, 0, read)] for group, read in READ.items()}, burrows)
        said = experiment(stack.kafka, "--keep", "--burrow", first.url)
        assert "$ karrot lag" in said
        positions = stack.kafka.positions(GROUP)
        committed = [TopicPartition(each.topic, each.partition, each.committed or 0) for each in positions]
        commit(stack.kafka, {GROUP: committed}, burrows)
        lags = {each.partition: each.lag or 0 for each in positions}
        yield Scene((first, second), stack.prometheus, lags, beside)
        for each in (first, second):
            each.server.stop()
        remove(stack.kafka)


def test_webhook_and_rest_have_kafkas_lags(scene: Scene) -> None:
    wait_for(scene.has_heard_of_all, FIRST_WORD_S)
    assert scene.told("karrot_consumer_lag")[GROUP] == sum(scene.lags.values())
    assert karrots_lags(scene.burrows[0].url) == scene.lags


def test_burrows_own_metrics_and_karrots_agree_on_every_group(scene: Scene, figures: Figures) -> None:
    def agree(theirs: str, ours: str) -> bool:
        """Compare without Burrow's own group, which has its own metrics in Karrot."""
        burrows = scene.told(theirs, "consumer_group")
        burrows.pop(BURROW_ITSELF, None)
        return burrows == scene.told(ours)

    wait_for(scene.has_heard_of_all, FIRST_WORD_S)
    with scene.prometheus.scraping("burrow", scene.burrows[0].port):
        started = time.monotonic()
        for pair in AGREEING.items():
            wait_for(partial(agree, *pair))
        seconds = time.monotonic() - started
        figures.add("from each group's first webhook to Burrow's metrics and Karrot's being equal", seconds)
    lags, statuses = (scene.told(ours) for ours in AGREEING.values())
    assert {group: (lags[group], statuses[group]) for group in (GROUP, WELL, BEHIND)} == {
        GROUP: (sum(scene.lags.values()), ERR),
        WELL: (0, OK),
        BEHIND: (MESSAGES - 5, ERR),
    }
    wait_for(lambda: bool(scene.prometheus.query(f'karrot_burrow_self_lag{{cluster="{CLUSTER}"}}')), FIRST_WORD_S)


def test_each_other_template_is_refused_by_its_name(scene: Scene) -> None:
    def refused() -> dict[str, str]:
        return {each["detail"]: each["code"] for each in scene.beside.get("/api/v1/rejects").json["rejects"]}

    wait_for(lambda: refused().keys() >= {said for _, said in OTHER_TEMPLATES.values()}, FIRST_WORD_S)
    assert sorted({*refused().values()}) == ["empty_body", "not_an_object", "unsupported_template"]


def test_two_notifiers_of_one_burrow_are_no_two_burrows_for_the_doctor(scene: Scene) -> None:
    url = f"http://127.0.0.1:{scene.beside.port}"

    def found() -> list[str]:
        seen = read_all(scene.burrows[0].url, url)
        return [each.what for each in examine(seen) if each.check == "two-burrows" and each.level.is_wrong]

    wait_for(lambda: bool(found()), FIRST_WORD_S)
    assert f" admit {WELL} of {CLUSTER}, and " in found()[0], "and not that another program posts it"


def test_the_other_burrow_continues_with_all_groups_at_once_when_the_posting_one_is_killed(
    scene: Scene, figures: Figures
) -> None:
    """A very busy machine refuses some posts; Burrow posts those groups again after its next evaluation."""
    wait_for(scene.has_heard_of_all, FIRST_WORD_S)
    scene.burrows[0].server.kill()  # it was ready before the other one started, so it has the lock
    killed_at = time.time()
    wait_for(lambda: scene.has_heard_of_all(since=killed_at + 1), OTHERS_TURN_S)
    figures.add("from a Burrow's end to the other one's word on each of 503 groups", time.time() - killed_at)
    assert scene.told("karrot_consumer_lag")[GROUP] == sum(scene.lags.values())
    assert scene.told("karrot_consumer_incidents_total")[GROUP] == 2  # the incident has a different id at the other one
