"""The KEDA example that needs no Prometheus gets the lag from a running service, and an error if it is unknown."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from support.burrow.recorded_bodies import recorded_body
from support.kubernetes.keda_metrics_api import KedaError, value_of
from support.prometheus.scaling_queries import example
from support.service.karrot_service import Service
from support.waiting import wait_for

SCALED = example("keda/scaledobject-metrics-api.yaml")
[TRIGGER] = SCALED["spec"]["triggers"]
GIVEN = TRIGGER["metadata"]
ADDRESS = urlsplit(GIVEN["url"])
WARN = recorded_body("karrot_v1.9.5_warn.json")
UNKNOWN = WARN.replace(b'"totallag":11020', b'"totallag":null')
TOKEN = {"Authorization": "Bearer t"}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path / "data", api_token="t", stale_after="3s") as service:
        yield service


def lag(service: Service, headers: dict[str, str] = TOKEN) -> float:
    answer = service.get(f"{ADDRESS.path}?{ADDRESS.query}", headers)
    return value_of(answer.status, answer.body, GIVEN["valueLocation"])


def error(service: Service, headers: dict[str, str] = TOKEN) -> str:
    try:
        return f"no error, but {lag(service, headers)}"
    except KedaError as refused:
        return str(refused)


def test_the_value_is_the_scalable_lag_until_the_group_is_silent(service: Service) -> None:
    assert parse_qs(ADDRESS.query) == {"cluster": ["prod-eu"], "consumer": ["orders-svc"], "limit": ["1"]}
    assert error(service) == "api returned 404"
    assert service.post(WARN).status == 202
    assert lag(service) == 11_020
    assert service.metric("karrot_consumer_scalable_lag", cluster="prod-eu", consumer="orders-svc") == 11_020
    wait_for(lambda: error(service) == "api returned 404")  # after KARROT_STALE_AFTER


def test_an_unknown_lag_is_an_error_and_not_0(service: Service) -> None:
    assert UNKNOWN != WARN
    assert service.post(UNKNOWN).status == 202
    assert error(service) == 'valueLocation "scalable_lag" must point to a numeric value'


def test_a_lag_of_0_is_a_value(service: Service) -> None:
    healthy = (
        b'{"Event":{"Cluster":"prod-eu","Group":"orders-svc","Result":{"status":"OK","totallag":0,"partitions":[]}}}'
    )
    assert service.post(healthy).status == 202
    assert lag(service) == 0


def test_a_missing_or_wrong_token_is_an_error(service: Service) -> None:
    assert service.post(WARN).status == 202
    assert error(service, {}) == "api returned 401"
    assert error(service, {"Authorization": "Bearer old"}) == "api returned 401"


def test_the_token_comes_from_the_secret_of_the_documentation() -> None:
    authentication = example("keda/triggerauthentication.yaml")
    assert TRIGGER["authenticationRef"]["name"] == authentication["metadata"]["name"]
    assert GIVEN["authMode"] == "bearer"
    [target] = authentication["spec"]["secretTargetRef"]
    assert target["parameter"] == "token"  # KEDA's name of the token for this mode
    page = (Path(__file__).resolve().parents[2] / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    assert f"create secret generic {target['name']}" in page
    assert f"--from-literal={target['key']}=" in page


def test_the_address_keeps_its_query() -> None:
    # With this field KEDA asks each pod, without the query of the address.
    assert "aggregateFromKubeServiceEndpoints" not in GIVEN
