"""A settings file of Burrow gives the rules of evaluate, or a sentence that says what is unclear."""

import re
from pathlib import Path

import pytest

from karrot.burrow.notifier import NameFilter, NotifierSettings
from karrot.pipeline.evaluate.burrow_settings import TAKEN, read_burrow_settings
from karrot.pipeline.evaluate.evaluate_rules import EvaluateRules
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet

_FILE = """
[general]
pidfile = "/var/run/burrow.pid"
[zookeeper]
servers = ["zk:2181"]
[cluster.prod-eu]
class-name = "kafka"
servers = ["kafka:9092"]
offset-refresh = 30
[cluster.other]
class-name = "kafka"
[consumer.eu]
class-name = "kafka"
cluster = "Prod-EU"
group-denylist = "^console-"
start-latest = true
[consumer.old]
class-name = "kafka_zk"
cluster = "prod-eu"
[consumer.other]
class-name = "kafka"
cluster = "other"
[storage.default]
class-name = "inmemory"
Intervals = 15
min-distance = 1
expire-group = 86400
group-allowlist = "-svc$"
[evaluator.default]
class-name = "caching"
allowed-lag = 20
minimum-complete = 0.5
expire-cache = 10
[notifier.karrot]
class-name = "http"
url-open = "http://karrot:5000/burrow"
interval = 30
threshold = 1
send-interval = 45
send-close = true
group-allowlist = ""
group-denylist = "^test-"
[notifier.mail]
class-name = "email"
"""


def test_the_rules_of_a_cluster_are_taken_and_all_else_is_named() -> None:
    found = read_burrow_settings(_FILE, "prod-eu", "karrot")
    assert found.asked == EvaluateRules(
        RuleSet("burrow.toml", 15, 20, 1, 0.5),
        NotifierSettings(1, send_interval=45, send_close=True),
        86_400,
        read=NameFilter(("-svc$",), ("^console-",)),
        sent=NameFilter((), ("^test-",)),
    )
    assert (found.interval, found.offset_refresh) == (30, 30)
    assert found.left_out == (
        "cluster.other",
        "cluster.prod-eu.servers",
        "consumer.eu.start-latest",
        "consumer.old",
        "consumer.other",
        "evaluator.default.expire-cache",
        "general",
        "notifier.karrot.url-open",
        "notifier.mail",
        "zookeeper",
    )


def test_an_empty_file_gives_burrows_defaults() -> None:
    found = read_burrow_settings("", "prod-eu")
    assert found.asked == EvaluateRules(RuleSet("burrow.toml"), NotifierSettings(send_interval=0))
    assert (found.interval, found.offset_refresh, found.left_out) == (60, 10, ())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("intervals", "it is not TOML: "),
        (_FILE, "it has several [notifier.NAME]: karrot, mail. Choose one of them"),
        ("[storage]\nintervals = 3", "write [storage.NAME] and not [storage]"),
        ("storage = 3", "write [storage.NAME] and not [storage]"),
        ("[consumer.a]\ncluster = 'us'", "no [consumer.NAME] is for the cluster 'prod-eu', but for us"),
        ("[storage.a]\nintervals = 0", "storage.a.intervals is "),
        ("[notifier.a]\nsend-close = 'perhaps'", "notifier.a.send-close is "),
        (
            "[consumer.a]\nclass-name = 'kafka'\ncluster = 'prod-eu'\ngroup-denylist = '('",
            "consumer.a.group-denylist is ",
        ),
    ],
)
def test_what_is_unclear_gives_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        read_burrow_settings(text, "prod-eu")


def test_a_notifier_that_does_not_exist_gives_a_sentence() -> None:
    with pytest.raises(ValueError, match=re.escape("there is no [notifier.pager], but karrot, mail")):
        read_burrow_settings(_FILE, "prod-eu", "pager")


def test_a_group_is_chosen_by_a_part_of_its_name() -> None:
    groups = NameFilter(("-svc$",), ("^console-",))
    assert [groups.has(name) for name in ("orders-svc", "console-svc", "orders")] == [True, False, False]


def test_the_documentation_lists_the_settings_that_are_taken() -> None:
    text = (Path(__file__).parents[3] / "docs" / "evaluate.md").read_text(encoding="utf-8")
    section = text.partition("## Settings of Burrow")[2].partition("\n## ")[0]
    listed = {
        (kind, name)
        for kind, names in re.findall(r"^\| `\[(\w+)\.NAME\]` \| (.*) \|$", section, re.MULTILINE)
        for name in re.findall("`([^`]+)`", names)
    }
    assert listed == {(kind, name) for kind, names in TAKEN.items() for name in names}
