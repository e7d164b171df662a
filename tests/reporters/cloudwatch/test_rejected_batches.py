"""A failed call is sent in parts until the bad data are known."""

from typing import Any

from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from karrot.reporters.cloudwatch.sender import SEARCH_CALLS, Sender, SendOutcome
from support.reporters.cloudwatch_sender_rig import lag_data


class PickyClient:
    """Takes at most ``most`` data in a call. Rejects a call with one of the bad values."""

    def __init__(self, bad: set[float], most: int = 1000) -> None:
        self._bad, self._most = bad, most

    def put_metric_data(self, **request: Any) -> Any:
        data = request["MetricData"]
        if len(data) > self._most:
            raise _refused(413, "RequestEntityTooLarge")
        if any(datum["Value"] in self._bad for datum in data):
            raise _refused(400, "InvalidParameterValue")
        return {"ResponseMetadata": {"HTTPStatusCode": 200}}

    def close(self) -> None:
        """Do nothing."""


def _refused(status: int, code: str) -> ClientError:
    answer: Any = {"Error": {"Code": code, "Message": ""}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "PutMetricData")


def sender_of(client: PickyClient) -> Sender:
    return Sender(lambda: client, "Karrot", count=lambda **_: None, pause=lambda _: None, monotonic=float)


def sent(data: int, client: PickyClient) -> tuple[SendOutcome, list[float], list[float]]:
    """Return the outcome, and the delivered and the refused values."""
    outcome = sender_of(client).send(lag_data(data))
    assert outcome.fault is None
    refused = [refusal.datum.value for refusal in outcome.refused]
    return outcome, sorted(datum.value for datum in outcome.delivered), sorted(refused)


@settings(deadline=None)
@given(st.sets(st.integers(0, 39), max_size=12).map(lambda bad: set(map(float, bad))))
def test_bad_data_are_refused_and_all_others_delivered(bad: set[float]) -> None:
    _, delivered, refused = sent(40, PickyClient(bad))
    assert refused == sorted(bad)
    assert sorted(delivered + refused) == list(range(40))


def test_a_service_that_takes_fewer_data_in_a_call_gets_them_in_parts() -> None:
    outcome, delivered, refused = sent(100, PickyClient({7.0}, most=10))
    assert refused == [7.0]
    assert len(delivered) == 99
    assert outcome.calls < 50


def test_one_bad_datum_among_a_thousand_is_found_in_few_calls_at_any_position() -> None:
    calls = [sent(1000, PickyClient({float(bad)}))[0].calls for bad in (0, 1, 249, 250, 500, 998, 999)]
    assert max(calls) <= 21


def test_a_search_ends_after_a_number_of_calls_and_refuses_the_rest() -> None:
    outcome, delivered, refused = sent(3000, PickyClient(set(map(float, range(0, 2000, 2)))))
    assert outcome.calls == SEARCH_CALLS + 3
    assert set(range(2000, 3000)) <= set(delivered)
    assert len(delivered) + len(refused) == 3000
