"""Makes CloudWatch data, and boto3's request body with them."""

from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import unquote

import botocore.session
from hypothesis import strategies as st

from karrot.reporters.cloudwatch.data import EMPTY, Datum, Encoded, metric_name
from support.reporters.cloudwatch_service.request_validation import RequestProblem, decode_json, problems

NOW_MS = 1_746_950_405_123

_PRINTABLE = st.characters(min_codepoint=0x20, max_codepoint=0x7E)


def make_datum(**overrides: Any) -> Datum:
    """Make the datum of a lag as in the reporter."""
    fields: dict[str, Any] = {
        "metric": "Lag",
        "dimensions": (("Cluster", "prod-eu"), ("ConsumerGroup", "orders-svc")),
        "value": 11_020.0,
        "unit": "Count",
        "timestamp_ms": NOW_MS,
    }
    return Datum(**(fields | overrides))


def datum_strategy() -> st.SearchStrategy[Datum]:
    """Draw any datum that CloudWatch accepts at `NOW_MS`."""
    dimensions = st.lists(
        st.tuples(_texts(20).filter(lambda name: not name.startswith(":")), _texts(1024)),
        max_size=30,
        unique_by=lambda dimension: dimension[0],
    )
    return st.builds(
        Datum,
        metric=_texts(255),
        dimensions=dimensions.map(tuple),
        value=st.floats(-(2.0**360), 2.0**360) | st.integers(0, 2**64).map(float),
        unit=st.none() | st.sampled_from(["Count", "Seconds", "None"]),
        timestamp_ms=st.integers(NOW_MS - 13 * 86_400_000, NOW_MS + 3_600_000),
        resolution=st.sampled_from([1, 60]),
    )


def request_body(namespace: str, data: Sequence[Datum]) -> bytes:
    """Return the uncompressed body that boto3 sends, from its own serializer."""
    client = _client()
    operation = client.meta.service_model.operation_model("PutMetricData")
    parameters = {"Namespace": namespace, "MetricData": [datum.wire() for datum in data]}
    body: bytes = client._serializer.serialize_to_request(parameters, operation)["body"]
    return body


def would_be_refused(data: Sequence[Datum], now_ms: int) -> list[RequestProblem]:
    """Return what the strict fake finds wrong with a request of these data."""
    return problems(decode_json(request_body("Karrot", data)), now_ms)


def service_model() -> dict[str, Any]:
    """Return botocore's model of CloudWatch."""
    loader = botocore.session.get_session().get_component("data_loader")
    shapes: dict[str, Any] = loader.load_service_model("cloudwatch", "service-2")["shapes"]
    return shapes


def decoded(text: str) -> str:
    """Return the name before it was encoded for CloudWatch; this does not work for a cut name."""
    return "" if text == EMPTY else unquote(text, errors="surrogatepass")


def decoded_metric(text: str) -> str:
    """The name that was made a metric's name, unless it was cut; a name that stays as it is needs no decoding."""
    is_plain = metric_name(text) == Encoded(text, cut=False)
    return text if is_plain else decoded(text)


@cache
def _client() -> Any:
    return botocore.session.get_session().create_client(
        "cloudwatch", region_name="eu-west-1", aws_access_key_id="none", aws_secret_access_key="none"
    )


def _texts(longest: int) -> st.SearchStrategy[str]:
    texts = st.text(_PRINTABLE, min_size=1, max_size=30) | st.builds(
        lambda text, times: (text * times)[:longest], st.text(_PRINTABLE, min_size=1, max_size=30), st.integers(1, 99)
    )
    return texts.map(lambda text: text[:longest]).filter(lambda text: bool(text.strip()))
