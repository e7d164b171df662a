"""The example of a group whose lag is mostly in one partition works with a real broker."""

import re

import pytest

from e2e.services import CLUSTER
from e2e.skew import GROUP, TOPIC, experiment, karrots_lags, remove
from e2e.stack.stack import Stack
from e2e.standin import standing_in
from e2e.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


def test_the_example_leaves_nothing_behind(one_broker: Stack) -> None:
    said = experiment(one_broker.kafka)
    assert "wrote 1000 messages, every second one to partition 1" in said
    assert said.endswith(f"deleted {TOPIC} and {GROUP}\n")
    admin = one_broker.kafka.admin()
    wait_for(lambda: TOPIC not in admin.list_topics(timeout=10).topics)
    assert GROUP not in {each.group_id for each in admin.list_consumer_groups().result(30).valid or ()}


def test_the_example_shows_the_three_answers_of_a_real_burrow(one_broker: Stack) -> None:
    with standing_in(one_broker.kafka, CLUSTER) as burrow:
        said = experiment(one_broker.kafka, "--burrow", burrow, "--keep")
        try:
            lags = {each.partition: each.lag for each in one_broker.kafka.positions(GROUP)}
            assert karrots_lags(burrow) == lags
        finally:
            remove(one_broker.kafka)
    groups, status, lag = said.split("$ karrot ")[1:]
    assert (groups.split()[0], status.split()[0], lag.split()[0]) == ("groups", "status", "lag")
    assert re.search(rf"^{GROUP}: \w+, lag {sum(each or 0 for each in lags.values())},", status, re.MULTILINE)
    for partition, number in lags.items():
        assert re.search(rf"^{GROUP} +{TOPIC} +{partition} +\d+ +\d+ +{number} ", lag, re.MULTILINE)
