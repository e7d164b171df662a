import re

import pytest

from karrot.settings import types
from karrot.settings.loading import SettingsError
from karrot.settings.options import CloudWatch as Options
from karrot.settings.options import GroupMetricName, Layout
from support.reporters.cloudwatch_datum import service_model
from support.reporters.reporter_context import options_of


def test_every_setting_can_be_given() -> None:
    told = {
        "namespace": "Kafka/Lag",
        "interval": "60s",
        "metrics": "lagseconds, Lag,Status,",
        "layout": "legacy,dimensions",
        "max_groups": "50000",
        "include": "^prod-",
        "exclude": "-test$",
        "ttl": "5m",
        "min_complete": "0.5",
        "resolution": "1",
        "iam_role": "arn:aws:iam::123456789012:role/karrot",
        "compat": "2019",
    }
    assert options_of("cloudwatch", told) == Options(
        namespace="Kafka/Lag",
        interval_s=60,
        metrics=(GroupMetricName.LAG_SECONDS, GroupMetricName.LAG, GroupMetricName.STATUS),
        layouts=(Layout.LEGACY, Layout.DIMENSIONS),
        max_groups=50_000,
        include=re.compile("^prod-"),
        exclude=re.compile("-test$"),
        ttl=300,
        min_complete=0.5,
        resolution=1,
        iam_role="arn:aws:iam::123456789012:role/karrot",
        default_region="us-east-1",
    )


def test_a_value_is_valid_for_at_least_two_intervals() -> None:
    assert options_of("cloudwatch", {"interval": "10m"}).ttl_s == 1200
    assert options_of("cloudwatch", {"interval": "10s"}).ttl_s == 180


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("namespace", "AWS/ECS"),
        ("interval", "0"),
        ("metrics", "Lag,Lags"),
        ("layout", "flat"),
        ("max_groups", "0"),
        ("include", "("),
        ("ttl", "15d"),
        ("min_complete", "1.1"),
        ("resolution", "10"),
        ("iam_role", "karrot"),
        ("compat", "2020"),
    ],
)
def test_an_invalid_value_gives_one_sentence_with_the_setting(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=f"^KARROT_.*{name.upper()} is {re.escape(repr(text))}: it must be "):
        options_of("cloudwatch", {name: text})


@pytest.mark.parametrize(
    "namespace",
    ["Karrot", "GumGum/Kafka/Burrow/ConsumerLag", "a.b-c_d/e#f:g", pytest.param("x" * 255, id="255 letters")],
)
def test_a_namespace_that_cloudwatch_accepts_is_accepted(namespace: str) -> None:
    assert options_of("cloudwatch", {"namespace": namespace}).namespace == namespace
    assert re.fullmatch(service_model()["Namespace"]["pattern"], namespace)


@pytest.mark.parametrize("namespace", [":a", "AWS/ECS", "a b", "é", pytest.param("x" * 256, id="256 letters")])
def test_a_namespace_that_cloudwatch_refuses_gives_one_sentence(namespace: str) -> None:
    with pytest.raises(SettingsError, match=r"^KARROT_CLOUDWATCH_NAMESPACE is "):
        options_of("cloudwatch", {"namespace": namespace})


@pytest.mark.parametrize("namespace", ["", "a\n"], ids=["an empty namespace", "a line break"])
def test_a_namespace_is_not_empty_and_has_no_line_break(namespace: str) -> None:
    """An empty option is one that is not set, and an option is stripped: neither comes from the environment."""
    with pytest.raises(ValueError, match=r"^$"):
        types.namespace.read(namespace)


@pytest.mark.parametrize(
    ("include", "exclude", "wanted"),
    [
        ("", "", ["prod-orders", "prod-test", "dev-orders"]),
        ("prod", "", ["prod-orders", "prod-test"]),
        ("", "test", ["prod-orders", "dev-orders"]),
        ("prod", "test", ["prod-orders"]),
    ],
    ids=["neither", "include", "exclude", "both"],
)
def test_include_is_applied_first_and_then_exclude(include: str, exclude: str, wanted: list[str]) -> None:
    options = options_of("cloudwatch", {"include": include, "exclude": exclude})
    assert [name for name in ("prod-orders", "prod-test", "dev-orders") if options.wants(name)] == wanted


def test_a_long_name_does_not_slow_an_expression() -> None:
    options = Options(exclude=re.compile(".*-canary$"))
    assert options.wants("x" * 1_000_000)
    assert not options.wants("x" * 500 + "-canary")
