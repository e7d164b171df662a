import json

from promql_parser import parse

from karrot.render.cloudwatch_metric_names import cloudwatch_queries
from karrot.reporters.prometheus.group_metrics import promql_queries
from karrot.settings.options import CloudWatch, Layout


def test_a_group_has_its_names_of_prometheus_and_cloudwatch() -> None:
    names = CloudWatch(layouts=(Layout.DIMENSIONS, Layout.LEGACY))
    found = [*promql_queries("prod-eu", "orders-svc"), *cloudwatch_queries("prod-eu", "orders-svc", names)]
    assert [tuple(each) for each in found] == [
        ("PromQL", 'karrot_consumer_lag{cluster="prod-eu",consumer="orders-svc"}'),
        ("PromQL", 'karrot_consumer_lag_seconds{cluster="prod-eu",consumer="orders-svc"}'),
        ("PromQL", 'karrot_consumer_scalable_lag{cluster="prod-eu",consumer="orders-svc"}'),
        ("PromQL", 'karrot_consumer_status_code{cluster="prod-eu",consumer="orders-svc"}'),
        ("CloudWatch", '["Karrot", "Lag", "Cluster", "prod-eu", "ConsumerGroup", "orders-svc"]'),
        ("CloudWatch", '["Karrot", "orders-svc"]'),
    ]


def test_a_query_for_an_unusual_name_has_only_visible_characters() -> None:
    name = 'a"b\\c\nd\u202e\0 ünï'
    for each in [*promql_queries(name, name), *cloudwatch_queries(name, name, CloudWatch())]:
        assert each.text.isprintable()
        assert parse(each.text) if each.where == "PromQL" else json.loads(each.text)
