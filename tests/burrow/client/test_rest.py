"""The client calls the fake Burrow over HTTP."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from karrot.burrow.client import (
    Burrow,
    ClusterModule,
    ConsumerModule,
    EvaluatorModule,
    NotFound,
    NotifierModule,
    StorageModule,
    Unaddressable,
    UnknownCall,
)
from karrot.event import Kind, Source, Status
from support.burrow.fake_burrow_rig import FakeBurrowRig, fake_burrow, simulated_group


@pytest.fixture
def asked() -> Iterator[FakeBurrowRig]:
    with fake_burrow(
        simulated_group("billing"), simulated_group("audit", topic="audit"), clusters=("prod", "empty")
    ) as told:
        yield told


def test_lists_are_sorted_whatever_their_order_in_burrow(asked: FakeBurrowRig) -> None:
    for _ in range(5):
        assert asked.burrow.clusters() == ("empty", "prod")
        assert asked.burrow.consumers("prod") == ("audit", "billing")
        assert asked.burrow.topics("prod") == ("audit", "orders")


def test_a_cluster_without_groups_has_empty_lists(asked: FakeBurrowRig) -> None:
    assert asked.burrow.consumers("empty") == ()
    assert asked.burrow.topics("empty") == ()


def test_lag_lists_all_partitions_and_status_only_the_bad_ones(asked: FakeBurrowRig) -> None:
    lag, status = asked.burrow.lag("prod", "billing"), asked.burrow.status("prod", "billing")
    assert (lag.cluster, lag.consumer, lag.status, lag.source, lag.kind) == (
        "prod",
        "billing",
        Status.OK,
        Source.REST,
        Kind.OBSERVATION,
    )
    assert [(one.topic, one.partition) for one in lag.partitions] == [("orders", 0), ("orders", 1), ("orders", 2)]
    assert status.partitions == ()
    assert (status.total_lag, status.partition_count, status.max_lag) == (lag.total_lag, 3, lag.max_lag)


def test_a_verdict_is_observed_at_the_start_of_the_request(asked: FakeBurrowRig) -> None:
    asked.after(17)
    assert asked.burrow.lag("prod", "billing").observed_at_ms == asked.clock.wall_ms()


def test_a_name_that_burrow_does_not_know_is_not_found(asked: FakeBurrowRig) -> None:
    for question in (
        lambda: asked.burrow.lag("prod", "nobody"),
        lambda: asked.burrow.status("nowhere", "billing"),
        lambda: asked.burrow.consumers("nowhere"),
        lambda: asked.burrow.topics("nowhere"),
        lambda: asked.burrow.module(ClusterModule, "cluster", "nowhere"),
        lambda: asked.burrow.module(NotifierModule, "notifier", "nothing"),
    ):
        with pytest.raises(NotFound):
            question()


def test_an_error_names_the_url_and_burrows_message(asked: FakeBurrowRig) -> None:
    with pytest.raises(NotFound) as caught:
        asked.burrow.consumers("no where")
    assert (
        str(caught.value)
        == f"{asked.server.url}/v3/kafka/no%20where/consumer: HTTP 404, Burrow says 'cluster not found'"
    )


def test_a_name_with_a_slash_is_refused_before_a_request_is_sent(asked: FakeBurrowRig) -> None:
    with pytest.raises(Unaddressable, match='name with "/" in it'):
        asked.burrow.lag("prod", "team/billing")
    assert asked.server.asked == []


def test_an_empty_name_works_in_the_lag_call_and_not_at_the_end_of_a_url(asked: FakeBurrowRig) -> None:
    with pytest.raises(NotFound):
        asked.burrow.lag("prod", "")
    with pytest.raises(Unaddressable, match="empty"):
        asked.burrow.module(ClusterModule, "cluster", "")


def test_a_url_that_is_not_burrows_root_means_an_unknown_call_and_not_a_deletion(asked: FakeBurrowRig) -> None:
    with Burrow(f"{asked.server.url}/burrow") as elsewhere, pytest.raises(UnknownCall, match="not its root"):
        elsewhere.lag("prod", "billing")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(name=st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=40))
@pytest.mark.parametrize(
    "around",
    [pytest.param("", id="a generated name"), pytest.param(".", id="a dot"), pytest.param("..", id="two dots")],
)
def test_every_other_name_reaches_burrow_as_it_is(around: str, name: str) -> None:
    asked_for = around or name
    with fake_burrow(simulated_group(asked_for)) as asked:
        assert asked.burrow.consumers("prod") == (asked_for,)
        assert asked.burrow.lag("prod", asked_for).consumer == asked_for


def test_the_configuration_includes_its_defaults(asked: FakeBurrowRig) -> None:
    burrow = asked.burrow
    main = burrow.config_main()
    assert main.zookeeper.servers == ("zookeeper:2181",)
    assert burrow.modules("notifier") == ("karrot",)
    notifier = burrow.module(NotifierModule, "notifier", "karrot")
    assert (notifier.class_name, notifier.threshold, notifier.interval, notifier.send_close) == ("http", 1, 30, True)
    assert (notifier.url_open, notifier.method_close, notifier.timeout, notifier.extra) == (
        "http://karrot:5000/burrow",
        "POST",
        5,
        {},
    )
    assert burrow.modules("cluster") == ("prod",)
    assert burrow.modules("consumer") == ("prod",)
    assert burrow.module(ConsumerModule, "consumer", "prod").cluster == "prod"
    [storage] = burrow.modules("storage")
    assert burrow.module(StorageModule, "storage", storage).expire_group == 604_800
    [evaluator] = burrow.modules("evaluator")
    assert burrow.module(EvaluatorModule, "evaluator", evaluator).expire_cache == 10
    profile = burrow.module(ClusterModule, "cluster", "PROD").client_profile
    assert profile is not None
    assert (profile.name, profile.kafka_version) == ("karrot", "3.6.0")


def test_a_burrow_that_starts_is_not_ready(asked: FakeBurrowRig) -> None:
    assert asked.burrow.ready()
    asked.fake.restart()
    asked.after(1)
    assert not asked.burrow.ready()


def test_a_connection_is_reused() -> None:
    with fake_burrow(simulated_group("billing")) as asked:
        for _ in range(20):
            asked.burrow.lag("prod", "billing")
        assert asked.burrow._pool is not None
        pool = asked.burrow._pool.connection_from_url(asked.server.url)
        assert (getattr(pool, "num_connections", 0), getattr(pool, "num_requests", 0)) == (1, 20)
