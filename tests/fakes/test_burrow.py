"""The fake Burrow answers, posts and judges as the recorded real Burrow."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest

from karrot.burrow.notification_rules import NotifierSettings
from karrot.burrow.payload import parse_webhook
from karrot.event import Status
from support.burrow.fake.fake_burrow import BurrowSettings, FakeBurrow
from support.burrow.fake.simulated_kafka import Behaviour, Phase
from support.burrow.fake_burrow_rig import FakeBurrowRig, fake_burrow, simulated_group
from support.burrow.recorded_bodies import recorded_body, recorded_posts
from support.burrow.viper_config import EXAMPLE

START_MS = 1_763_741_000_123
REAL = Path(__file__).parents[1] / "data" / "burrow" / "real"
FALLING_BEHIND = Behaviour((Phase(10_000, pace=0.3),), starts=(0, 0))
VERDICT = "cluster group status complete partitions partition_count maxlag totallag"


@pytest.fixture
def asked() -> Iterator[FakeBurrowRig]:
    with fake_burrow(
        simulated_group("billing", FALLING_BEHIND, commit_every=2), simulated_group("a&b <c>", topic="audit")
    ) as told:
        told.after(60)
        yield told


def get(asked: FakeBurrowRig, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection(urlsplit(asked.server.url).netloc, timeout=5)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, dict(response.headers), response.read()
    finally:
        connection.close()


def told(asked: FakeBurrowRig, path: str) -> Any:
    status, headers, body = get(asked, path)
    assert (status, headers["Content-Type"]) == (200, "application/json")
    return json.loads(body)


def form(value: Any) -> Any:
    """Return the keys in their order with the types of their values; for a list, the forms of its items."""
    if isinstance(value, dict):
        return [(key, form(inner)) for key, inner in value.items()]
    if isinstance(value, list):
        return [form(inner) for inner in value]
    return float if isinstance(value, float) else type(value)


@pytest.mark.parametrize("call", ["lag", "status"])
def test_each_field_of_a_verdict_has_the_form_of_the_recorded_one(call: str, asked: FakeBurrowRig) -> None:
    recorded = json.loads((REAL / f"rest-{call}-warn.json").read_bytes())
    faked = told(asked, f"/v3/kafka/prod/consumer/billing/{call}")
    assert faked["status"]["status"] == recorded["status"]["status"] == "WARN"
    assert form(faked) == form(recorded)


def test_a_body_is_as_compact_as_the_recorded_one(asked: FakeBurrowRig) -> None:
    _, _, body = get(asked, "/v3/kafka/prod/consumer/billing/lag")
    for text in (body, (REAL / "rest-lag-warn.json").read_bytes()):
        assert text == json.dumps(json.loads(text), separators=(",", ":")).replace("1.0", "1").encode()


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("/v3/kafka", "error message clusters request"),
        ("/v3/kafka/prod", "error message module request"),
        ("/v3/kafka/prod/topic", "error message topics request"),
        ("/v3/kafka/prod/topic/orders", "error message offsets request"),
        ("/v3/kafka/prod/consumer", "error message consumers request"),
        ("/v3/kafka/prod/consumer/billing", "error message topics request"),
        ("/v3/kafka/prod/consumer/billing/lag", "error message status request"),
        ("/v3/config", "error message request general logging zookeeper httpserver"),
        ("/v3/config/notifier", "error message request coordinator modules"),
        ("/v3/config/notifier/karrot", "error message module request"),
    ],
)
def test_the_keys_come_in_the_order_of_burrows_structs(path: str, keys: str, asked: FakeBurrowRig) -> None:
    answer = told(asked, path)
    assert " ".join(answer) == keys
    assert answer["error"] is False
    assert answer["request"] == {"url": path, "host": "fake-burrow"}


MODULES = {
    "storage/default": "class-name intervals min-distance group-allowlist expire-group",
    "cluster/prod": "class-name servers client-profile topic-refresh offset-refresh",
    "consumer/prod": (
        "class-name cluster servers group-allowlist zookeeper-path zookeeper-timeout client-profile offsets-topic "
        "start-latest"
    ),
    "evaluator/default": "class-name expire-cache",
    "notifier/karrot": (
        "class-name group-allowlist interval threshold timeout keepalive url-open url-close method-open method-close "
        "template-open template-close extra send-close extra-ca noverify"
    ),
}
MORE = """
[tls.ours]
cafile = "/ca.pem"
noverify = true

[sasl.ours]
username = "burrow"
password = "hidden"

[client-profile.secure]
tls = "ours"
sasl = "ours"

[cluster.SECURE]
class-name = "kafka"
servers = "one:9092 two:9092"
client-profile = "secure"

[notifier.other]
class-name = "http"
threshold = "3"
timeout = "5s"
extras = { Zone = "eu", app = 1 }
"""


@pytest.mark.parametrize(("module", "keys"), MODULES.items(), ids=MODULES)
def test_a_module_has_the_keys_of_burrows_struct(module: str, keys: str) -> None:
    with fake_burrow(configuration=EXAMPLE + MORE) as asked:
        assert " ".join(told(asked, f"/v3/config/{module}")["module"]) == keys


def test_values_are_converted_to_the_types_that_burrow_uses() -> None:
    with fake_burrow(configuration=EXAMPLE + MORE) as asked:
        profile = {
            "name": "secure",
            "client-id": "burrow-lagchecker",
            "kafka-version": "2.8.0",
            "tls": {"name": "ours", "noverify": True, "certfile": "", "keyfile": "", "cafile": "/ca.pem"},
            "sasl": {"name": "ours", "handshake-first": False, "username": "burrow"},
        }
        cluster = told(asked, "/v3/kafka/Secure")["module"]
        assert (cluster["servers"], cluster["client-profile"]) == (["one:9092", "two:9092"], profile)
        other = told(asked, "/v3/config/notifier/other")["module"]
        assert (other["threshold"], other["timeout"], other["extra"]) == (3, 0, {"app": "1", "zone": "eu"})
        assert sorted(told(asked, "/v3/config/cluster")["modules"]) == ["prod", "secure"]
        assert told(asked, "/v3/config/consumer/prod")["module"]["zookeeper-timeout"] == 0
        assert b"hidden" not in get(asked, "/v3/kafka/secure")[2]


def test_an_unknown_name_gives_404_with_burrows_message(asked: FakeBurrowRig) -> None:
    for path, message in {
        "/v3/kafka/nowhere": "cluster module not found",
        "/v3/kafka/nowhere/topic": "cluster not found",
        "/v3/kafka/prod/topic/none": "cluster or topic not found",
        "/v3/kafka/nowhere/consumer": "cluster not found",
        "/v3/kafka/prod/consumer/none": "cluster or consumer not found",
        "/v3/config/storage/none": "storage module not found",
    }.items():
        status, _, body = get(asked, path)
        request = {"url": path, "host": "fake-burrow"}
        assert (status, json.loads(body)) == (404, {"error": True, "message": message, "request": request})


def test_an_unknown_group_gives_404_without_an_error(asked: FakeBurrowRig) -> None:
    status, _, body = get(asked, "/v3/kafka/prod/consumer/none/status")
    answer = json.loads(body)
    assert (status, answer["error"], " ".join(answer["status"])) == (404, False, VERDICT)
    assert list(answer["status"].values()) == ["prod", "none", "NOTFOUND", 1, [], 0, None, 0]


@pytest.mark.parametrize("path", ["/", "/v2/kafka", "/v3/kafka/prod/consumer/team/billing/lag", "/v3/config/bogus"])
def test_an_unknown_path_gives_404_as_plain_text(path: str, asked: FakeBurrowRig) -> None:
    status, headers, body = get(asked, path)
    assert (status, headers["Content-Type"]) == (404, "text/plain; charset=utf-8")
    assert body == b'{"error":true,"message":"invalid request type","result":{}}\n'


def test_an_encoded_slash_in_a_name_separates_like_a_plain_one(asked: FakeBurrowRig) -> None:
    assert get(asked, "/v3/kafka/prod/consumer/team%2Fbilling/lag")[0] == 404


def test_a_slash_at_the_end_gives_a_redirect(asked: FakeBurrowRig) -> None:
    status, headers, _ = get(asked, "/v3/kafka/prod/consumer/")
    assert (status, headers["Location"]) == (301, "/v3/kafka/prod/consumer")


def test_names_are_escaped_as_in_go(asked: FakeBurrowRig) -> None:
    _, _, body = get(asked, "/v3/kafka/prod/consumer")
    assert rb'"a\u0026b \u003cc\u003e"' in body


def test_lists_and_topics_come_in_random_order() -> None:
    groups = [simulated_group(f"group-{number}") for number in range(6)]
    with fake_burrow(*groups) as asked:
        orders = {tuple(told(asked, "/v3/kafka/prod/consumer")["consumers"]) for _ in range(20)}
    assert len(orders) > 1
    assert {tuple(sorted(order)) for order in orders} == {tuple(f"group-{number}" for number in range(6))}


def test_a_short_answer_has_a_length_and_a_long_one_is_chunked(asked: FakeBurrowRig) -> None:
    assert "Content-Length" in get(asked, "/v3/kafka")[1]
    _, headers, body = get(asked, "/v3/kafka/prod/consumer/billing")
    assert len(body) > 2048
    assert (headers.get("Transfer-Encoding"), "Content-Length" in headers) == ("chunked", False)


def test_a_restarting_burrow_is_down_then_starting_then_ready_and_lists_no_group_until_it_has_read(
    asked: FakeBurrowRig,
) -> None:
    asked.fake.restart()
    with pytest.raises(ConnectionError):
        get(asked, "/burrow/admin")
    said = []
    for seconds in (1.5, 1, 6):
        asked.after(seconds)
        ready = [get(asked, path)[::2] for path in ("/burrow/admin", "/burrow/admin/ready")]
        said.append((*ready, len(told(asked, "/v3/kafka/prod/consumer")["consumers"])))
    assert said == [
        ((200, b"GOOD"), (503, b"STARTING"), 0),
        ((200, b"GOOD"), (200, b"READY"), 0),
        ((200, b"GOOD"), (200, b"READY"), 2),
    ]


# What it posts


def posting(behaviour: Behaviour, **settings: Any) -> FakeBurrow:
    quick = BurrowSettings(NotifierSettings(threshold=Status.OK, interval=5, send_close=True, **settings))
    return FakeBurrow({"prod": [simulated_group("billing", behaviour)]}, Random(4), start_ms=START_MS, settings=quick)


def seconds(number: float) -> int:
    return START_MS + int(number * 1000)


def test_a_body_has_the_form_of_a_recorded_one_and_is_read_as_the_posted_event() -> None:
    post = posting(Behaviour()).due(seconds(5))[0]
    head, tail = b'{\n  "Event": {"Cluster":"', b"}}\n}\n"
    for body in (post.body, recorded_body("karrot_v1.9.5_warn.json"), recorded_posts()[0][1]):
        assert (body[: len(head)], body[-len(tail) :]) == (head, tail)
    assert parse_webhook(post.body, observed_at_ms=post.event.observed_at_ms) == post.event


@pytest.mark.parametrize(
    ("phase", "status"),
    [
        pytest.param(Phase(100, pace=0.5), Status.WARN, id="a consumer that is too slow"),
        pytest.param(Phase(100, pace=0), Status.STALL, id="a consumer that reads nothing"),
        pytest.param(Phase(100, commits=False), Status.STOP, id="a consumer that does not commit"),
        pytest.param(Phase(100, pace=2, goes_back=60), Status.REWIND, id="a consumer that goes back"),
    ],
)
def test_a_behaviour_gets_its_verdict_and_recovers_with_one_incident(phase: Phase, status: Status) -> None:
    burrow = posting(Behaviour((Phase(60), phase, Phase(200)), starts=(0, 0)), send_interval=3)
    posts = burrow.due(seconds(280))
    assert {lag.status for post in posts for lag in post.event.partitions} == {status}
    assert (posts[0].event.status, posts[-1].event.status) == (Status.OK, Status.OK)
    incident = [post for post in posts if post.event.incident_id]
    assert len({(post.event.incident_id, post.event.incident_start) for post in incident}) == 1
    assert [post.is_close for post in incident] == [False] * (len(incident) - 1) + [True]


def test_a_group_is_judged_once_per_interval_and_after_a_failover_at_once_with_a_new_incident() -> None:
    burrow = posting(Behaviour((Phase(10_000, pace=0),), starts=(0, 0)), send_interval=3)
    before = burrow.due(seconds(202))
    times = [post.event.observed_at_ms for post in before]
    assert {later - earlier for earlier, later in pairwise(times)} <= {5_000, 5_001}
    burrow.failover()
    [herd] = burrow.due(seconds(202))
    assert herd.event.observed_at_ms == seconds(202)
    assert herd.event.incident_id not in {post.event.incident_id for post in before}


def test_the_number_of_calls_does_not_change_the_bodies() -> None:
    asked_often, asked_once = posting(Behaviour()), posting(Behaviour())
    pieces = [asked_often.due(seconds(moment)) for moment in (3, 3, 11.5, 60)]
    assert [post for piece in pieces for post in piece] == asked_once.due(seconds(60))
