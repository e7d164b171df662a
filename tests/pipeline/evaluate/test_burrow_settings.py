"""A settings file of Burrow gives the rules of evaluate, or a sentence that says what is unclear."""

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from karrot.burrow.notification_rules import NameFilter
from karrot.pipeline.evaluate.burrow_settings import TAKEN, read_burrow_settings
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet

_BURROW = Path(__file__).parents[2] / "data" / "burrow-config"
_ALL = NameFilter()

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
    assert found.options == {
        "every": timedelta(seconds=30),
        "ends_every": timedelta(seconds=30),
        "rules": RuleSet("burrow.toml", 15, 20, 1, 0.5),
        "expire_group": timedelta(days=1),
        "threshold": 1,
        "send_interval": timedelta(seconds=45),
        "send_close": True,
        "read": (NameFilter(("-svc$",), ("^console-",)),),
        "sent": NameFilter((), ("^test-",)),
    }
    assert [each.shown for each in found.taken][:3] == [
        "cluster.prod-eu.offset-refresh = 30",
        "consumer.eu.group-denylist = ^console-",
        "evaluator.default.allowed-lag = 20",
    ]
    assert found.changing == ("consumer.eu.start-latest", "consumer.old")
    assert found.left_out == (
        "cluster.other",
        "cluster.prod-eu.servers",
        "consumer.other",
        "evaluator.default.expire-cache",
        "general",
        "notifier.karrot.url-open",
        "notifier.mail",
        "zookeeper",
    )


SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "as-shipped": (
        {"cluster": "main"},
        {
            "every": timedelta(seconds=30),
            "ends_every": timedelta(seconds=30),
            "rules": RuleSet("burrow.toml", 12, min_distance=1),
            "expire_group": timedelta(days=2),
            "threshold": 1,
            "send_close": True,
            "read": (NameFilter((), ("^(console-consumer-|kcat-).*$",)),),
        },
        ["cluster.main.groups-reaper-refresh", "consumer.main_zk"],
    ),
    "in-docker": (
        {"cluster": "docker"},
        {"ends_every": timedelta(seconds=10), "read": (NameFilter((), ("^(console-consumer-).*$",)),)},
        [],
    ),
    "only-kafka": ({"cluster": "small"}, {}, ["consumer.small.start-latest"]),
    "old-names": (
        {"cluster": "legacy"},
        {
            "threshold": 1,
            "send_close": False,
            "read": (NameFilter(("^svc-",), ("^console-consumer-.*$",)),),
            "sent": NameFilter(("^svc-(orders|payments)$",)),
        },
        [],
    ),
    "two-consumers": (
        {"cluster": "joined"},
        {
            "rules": RuleSet("burrow.toml", allowed_lag=50),
            "read": (
                NameFilter(("^java-",), ("^java-tmp-",)),
                NameFilter(("^python-",), ("-test$", "^java-tmp-")),
            ),
        },
        [],
    ),
    "texts": (
        {"cluster": "text"},
        {
            "every": timedelta(seconds=20),
            "ends_every": timedelta(seconds=15),
            "rules": RuleSet("burrow.toml", 20),
            "threshold": 3,
            "send_close": True,
        },
        [
            "consumer.text.group-alowlist (perhaps group-allowlist)",
            "storage.default.min-distence (perhaps min-distance)",
        ],
    ),
    "slack": (
        {"cluster": "chat"},
        {
            "every": timedelta(seconds=10),
            "threshold": 2,
            "send_close": False,
            "sent": NameFilter(("^(orders|payments)$",)),
        },
        [],
    ),
    "leftovers": (
        {"cluster": "moved"},
        {"read": (NameFilter((), ("^new-",)),)},
        ["consumer.moved.group-blacklist", "consumer.moved.offsets-topic", "lagcheck"],
    ),
    "secured": (
        {"cluster": "west", "notifier": "events"},
        {
            "every": timedelta(seconds=60),
            "ends_every": timedelta(seconds=20),
            "threshold": 1,
            "send_interval": timedelta(seconds=40),
            "send_close": True,
        },
        ["consumer.west.backfill-earliest"],
    ),
}
"""What is read from each shape of a burrow.toml: the options, and what is left out although verdicts depend on it."""


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_of_burrow_toml_is_read_as_burrow_reads_it(shape: str) -> None:
    asked, options, changing = SHAPES[shape]
    found = read_burrow_settings((_BURROW / "shapes" / f"{shape}.toml").read_text(encoding="utf-8"), **asked)
    assert found.options == {"read": (_ALL,), "sent": _ALL} | options
    assert [*found.changing] == changing


def test_every_shape_of_burrow_toml_is_tested() -> None:
    assert {each.stem for each in _BURROW.glob("shapes/*.toml")} == SHAPES.keys()


@pytest.mark.parametrize("kind", ["consumer", "storage", "notifier"])
@pytest.mark.parametrize("name", ["group-allowlist", "group-denylist", "group-blacklist"])
def test_a_list_of_patterns_is_no_pattern_as_in_burrow_and_is_named(kind: str, name: str) -> None:
    text = f"[{kind}.a]\nclass-name = 'kafka'\ncluster = 'c'\n{name} = ['a', 'b']"
    found = read_burrow_settings(text, "c")
    assert all(each.has(group) for each in (*found.options["read"], found.options["sent"]) for group in ("a", "x"))
    shown = f"{kind}.a.{name} = ['a', 'b'] (for Burrow no pattern, because it is no text: all groups pass)"
    assert shown in [each.shown for each in found.taken]


def test_true_is_the_same_text_as_in_burrow() -> None:
    found = read_burrow_settings("[storage.a]\ngroup-allowlist = true", "c")
    assert [each.has(group) for each in found.options["read"] for group in ("is-true", "True")] == [True, False]


def test_an_empty_file_gives_no_value() -> None:
    assert read_burrow_settings("", "prod-eu") == ({"read": (_ALL,), "sent": _ALL}, (), (), ())


def test_a_missing_setting_of_a_notifier_is_shown_as_burrows_default() -> None:
    found = read_burrow_settings((_BURROW / "shapes" / "slack.toml").read_text(encoding="utf-8"), "chat")
    assert "notifier.slack.threshold = 2 (Burrow's default)" in [each.shown for each in found.taken]


def test_no_setting_of_burrow_is_taken_for_a_typing_error_of_another() -> None:
    keys = json.loads((_BURROW / "keys.json").read_text(encoding="utf-8"))
    for kind in TAKEN:
        others = keys[kind].keys() - TAKEN[kind].keys()
        settings = dict.fromkeys(others, "1") | {"class-name": "kafka", "cluster": "prod"}
        lines = "\n".join(f'{name} = "{value}"' for name, value in settings.items())
        found = read_burrow_settings(f"[{kind}.prod]\n{lines}", "prod")
        assert "perhaps" not in " ".join([*found.changing, *found.left_out])


def test_a_burrow_cfg_of_0_x_is_named() -> None:
    text = (_BURROW / "shapes" / "burrow-0.cfg").read_text(encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"^it is a burrow\.cfg of Burrow 0\.x: write it as the burrow\.toml of Burrow 1$"
    ):
        read_burrow_settings(text, "main")


@pytest.mark.parametrize("regex", [r"\pL+", r"[[:alpha:]]", r"\Qa.b\E", r"(?U)a+", r"a(?i)b"])
def test_a_pattern_that_only_go_knows_is_named_as_such(regex: str) -> None:
    text = f"[consumer.a]\nclass-name = 'kafka'\ncluster = 'c'\ngroup-blacklist = '{regex}'"
    with pytest.raises(
        ValueError, match=r"^consumer\.a\.group-blacklist is .*: it must be a pattern that Python can read"
    ):
        read_burrow_settings(text, "c")


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
