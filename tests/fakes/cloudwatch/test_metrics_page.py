from html.parser import HTMLParser

from support.reporters.fake_cloudwatch_client import (
    NOW_MS,
    Response,
    client_error,
    datum_dict,
    put_metric_data,
    send_http,
)
from support.reporters.injected_faults import THROTTLING
from support.reporters.scripted_cloudwatch import ScriptedCloudWatch

CLUSTER = {"Name": "Cluster", "Value": "<prod>"}


class Texts(HTMLParser):
    """A parser that collects the cells of the tables."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, _: object) -> None:
        if tag == "wbr":
            return
        self.inside = tag in ("td", "th")
        if self.inside:
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.cells[-1] += data.strip()


def get(fake: ScriptedCloudWatch, path: str) -> Response:
    return send_http(fake, get=path)


def test_the_page_shows_kept_points_and_the_answers_to_calls(fake: ScriptedCloudWatch) -> None:
    put_metric_data(
        fake,
        datum_dict(Value=1.0),
        datum_dict(Value=12345.5, Unit="Count", Dimensions=[CLUSTER]),
        datum_dict(Value=3.0),
    )
    fake.script(THROTTLING)
    client_error(fake, datum_dict())
    answer = get(fake, "/")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    page = Texts()
    page.feed(answer.body.decode())
    size, wire = str(fake.calls[0].bytes), str(fake.calls[0].wire_bytes)
    last_size = str(fake.calls[1].bytes)
    assert page.cells == [
        *("At (UTC)", "Answer", "Code", "Data", "Bytes", "On the wire"),
        *("2027-01-15 08:00:00", "400", "Throttling", "1", last_size, last_size),
        *("2027-01-15 08:00:00", "200", "kept", "3", size, wire),
        *("Metric", "Dimensions", "Newest value", "Unit", "At (UTC)", "Points"),
        *("Lag", "", "3", "", "2027-01-15 08:00:00", "2"),
        *("Lag", "Cluster=<prod>", "12345.5", "Count", "2027-01-15 08:00:00", "1"),
    ]


def test_the_page_says_that_nothing_was_kept(fake: ScriptedCloudWatch) -> None:
    assert b"No metrics are stored yet." in get(fake, "/").body


def test_the_points_are_available_as_json(fake: ScriptedCloudWatch) -> None:
    put_metric_data(fake, datum_dict(Value=1.0, Dimensions=[CLUSTER], Unit="Count"), datum_dict(Values=[2.0, 3.0]))
    client_error(fake, datum_dict(Unit="none"))
    answer = get(fake, "/points?pretty")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json == fake.as_json()
    assert answer.json == {
        "metrics": [
            {
                "namespace": "Karrot",
                "metric": "Lag",
                "dimensions": {},
                "unit": None,
                "points": [[NOW_MS, 2.0], [NOW_MS, 3.0]],
            },
            {
                "namespace": "Karrot",
                "metric": "Lag",
                "dimensions": {"Cluster": "<prod>"},
                "unit": "Count",
                "points": [[NOW_MS, 1.0]],
            },
        ],
        "calls": {"200": 1, "400 InvalidParameterValue": 1},
    }


def test_another_page_is_not_found(fake: ScriptedCloudWatch) -> None:
    assert get(fake, "/metrics").status == 404
