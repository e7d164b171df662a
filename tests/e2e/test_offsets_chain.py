"""The chain of 2017 that ``make chain`` runs."""

from pathlib import Path

import pytest

from e2e.chain import CLUSTER, GROUP, TOPIC, Chain
from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_the_chain_leads_from_a_commit_to_minutes_and_to_an_alert_that_fires_and_clears(
    newest_kafka: Stack, tmp_path: Path
) -> None:
    told: list[str] = []
    seen = Chain(newest_kafka.kafka, tmp_path, Downloads(default_cache()).spark_kafka(), told.append).go()
    committed, end = seen.position.committed, seen.position.log_end
    of_partition = {"topic": TOPIC, "partition": 0, "group": GROUP}
    assert of_partition.items() | {("version", 4), ("offset", committed)} <= seen.on_topic.items()
    place = {"cluster": CLUSTER, **of_partition}
    assert place.items() <= seen.fired.items()
    assert place.items() <= seen.cleared.items()
    assert seen.fired["id"] == seen.cleared["id"]
    [described] = seen.described["partitions"]
    assert (described["current_offset"], described["log_end_offset"], described["lag"]) == (committed, end, 0)
    minutes = [each["at"] for each in seen.minutes["points"]]
    assert len(minutes) >= 2
    assert minutes == sorted(minutes, reverse=True)
    assert [line[0] for line in told if line[0].isdigit()] == list("1234567")
