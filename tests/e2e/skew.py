"""Runs the program in ``examples/skew``, and reads its lags with `karrot lag`."""

import json
import os
import subprocess
import sys
from pathlib import Path

from e2e.services import CLUSTER
from e2e.stack.kafka import Kafka

_PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "skew" / "skew.py"
GROUP, TOPIC = "skewed-consumer-group", "skewed-topic"
Lags = dict[int, int]


def experiment(kafka: Kafka, *arguments: str) -> str:
    """Run the program and return its output. The program fails if a source reports lags that it did not cause."""
    command = [sys.executable, str(_PROGRAM), "--bootstrap-servers", kafka.bootstrap, "--cluster", CLUSTER, *arguments]
    wide = os.environ | {"COLUMNS": "200"}
    done = subprocess.run(command, env=wide, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def karrots_lags(burrow: str) -> Lags:
    """Return the lags by partition that `karrot lag` gets from a Burrow."""
    command = [sys.executable, "-m", "karrot", "lag", "--burrow", burrow, "--cluster", CLUSTER, "--group", GROUP]
    said = json.loads(subprocess.run([*command, "--json"], capture_output=True, check=True).stdout)
    [group] = said["groups"]
    assert group["lag"] == sum(each["lag"] for each in group["partitions"])
    return {each["partition"]: each["lag"] for each in group["partitions"]}


def remove(kafka: Kafka) -> None:
    """Delete the topic and group that ``--keep`` left."""
    admin = kafka.admin()
    admin.delete_consumer_groups([GROUP])[GROUP].result(30)
    admin.delete_topics([TOPIC])[TOPIC].result(30)
