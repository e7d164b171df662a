import gzip
from collections.abc import Iterator
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from karrot.eventlog.base import LogUnavailableError
from support.burrow.recorded_bodies import recorded_body
from support.web.website import Website, make_website


def with_a_group() -> Website:
    website = make_website()
    assert website.client.post("/burrow", data=recorded_body("karrot_v1.9.5_err_stop.json")).status_code == 202
    return website


def lags(families: Any) -> list[tuple[dict[str, str], float]]:
    return [
        (sample.labels, sample.value)
        for family in families
        for sample in family.samples
        if sample.name == "karrot_consumer_lag"
    ]


LAG = [({"cluster": "prod-eu", "consumer": "orders-svc"}, 48263.0)]


def test_a_posted_event_can_be_scraped_as_text() -> None:
    response = with_a_group().client.get("/metrics")
    assert response.content_type.startswith("text/plain; version=")
    assert set(response.headers["Vary"].split(", ")) == {"Accept", "Accept-Encoding"}
    assert lags(parse_text(response.text)) == LAG


def test_openmetrics_is_sent_if_the_client_accepts_it() -> None:
    accept = "application/openmetrics-text; version=1.0.0"
    response = with_a_group().client.get("/metrics/", headers={"Accept": accept})
    assert response.content_type.startswith(accept)
    assert response.text.endswith("# EOF\n")
    assert lags(parse_openmetrics(response.text)) == LAG  # type: ignore[no-untyped-call]


def test_gzip_is_used_if_the_client_accepts_it() -> None:
    client = with_a_group().client
    squeezed = client.get("/metrics", headers={"Accept-Encoding": "gzip, deflate"})
    assert squeezed.headers["Content-Encoding"] == "gzip"
    assert lags(parse_text(gzip.decompress(squeezed.data).decode())) == LAG
    plain = client.get("/metrics", headers={"Accept-Encoding": "gzip;q=0"})
    assert "Content-Encoding" not in plain.headers


def test_only_the_named_metrics_are_sent() -> None:
    response = with_a_group().client.get("/metrics?name[]=karrot_consumer_lag&name[]=karrot_consumer_max_lag")
    names = {sample.name for family in parse_text(response.text) for sample in family.samples}
    assert names == {"karrot_consumer_lag", "karrot_consumer_max_lag"}


def test_an_exposition_in_one_piece_is_sent_the_same() -> None:
    website = make_website(render_metrics=lambda _accept, _names: ("text/plain", b"up 1\n"))
    assert website.client.get("/metrics").data == b"up 1\n"
    assert gzip.decompress(website.client.get("/metrics", headers={"Accept-Encoding": "gzip"}).data) == b"up 1\n"


def test_an_unreadable_log_gives_503_and_not_half_an_answer() -> None:
    def failing(_accept: str, _names: object) -> tuple[str, Iterator[bytes]]:
        def pieces() -> Iterator[bytes]:
            raise LogUnavailableError("the disk is gone")
            yield b""

        return "text/plain", pieces()

    response = make_website(render_metrics=failing).client.get("/metrics")
    assert response.status_code == 503
    assert response.json is not None
    assert response.json["code"] == "log_unavailable"
