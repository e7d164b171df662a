"""A failed call is sent in parts until the bad data are known, whatever the error message says."""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from karrot.reporters.cloudwatch.sender import SEARCH_CALLS, Sender, SendOutcome
from support.reporters.cloudwatch_sender_rig import lag_data

Naming = Callable[[list[int]], list[int]]
NAMINGS: dict[str, Naming] = {
    "none": lambda _: [],
    "all": list,
    "the first": lambda bad: bad[:1],
    "all, counted from one less": lambda bad: [position - 1 for position in bad],
    "all, counted from one more": lambda bad: [position + 1 for position in bad],
}


class PickyClient:
    """Takes at most ``most`` data in a call. Answers a call with one of the bad values with ``status``."""

    def __init__(self, bad: set[float], naming: Naming, most: int = 1000, status: int = 400) -> None:
        self._bad, self._naming, self._most, self._status = bad, naming, most, status

    def put_metric_data(self, **request: Any) -> Any:
        data = request["MetricData"]
        bad = [position for position, datum in enumerate(data, 1) if datum["Value"] in self._bad]
        if len(data) > self._most:
            raise _refused(413, "RequestEntityTooLarge", "")
        if bad:
            text = "\n".join(f"MetricData.member.{position}.Value is bad" for position in self._naming(bad))
            raise _refused(self._status, "InvalidParameterValue" if self._status == 400 else "", text)
        return {"ResponseMetadata": {"HTTPStatusCode": 200}}

    def close(self) -> None:
        """Do nothing."""


def _refused(status: int, code: str, text: str) -> ClientError:
    answer: Any = {"Error": {"Code": code, "Message": text}, "ResponseMetadata": {"HTTPStatusCode": status}}
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
@given(st.sets(st.integers(0, 39), max_size=12).map(lambda bad: set(map(float, bad))), st.sampled_from(sorted(NAMINGS)))
def test_bad_data_are_refused_and_all_others_delivered_for_any_error_message(bad: set[float], naming: str) -> None:
    _, delivered, refused = sent(40, PickyClient(bad, NAMINGS[naming]))
    assert refused == sorted(bad)
    assert sorted(delivered + refused) == list(range(40))


def test_a_service_that_takes_fewer_data_in_a_call_gets_them_in_parts() -> None:
    outcome, delivered, refused = sent(100, PickyClient({7.0}, NAMINGS["all"], most=10))
    assert refused == [7.0]
    assert len(delivered) == 99
    assert outcome.calls < 50


@pytest.mark.parametrize("naming", sorted(NAMINGS))
def test_one_bad_datum_among_a_thousand_is_found_in_few_calls_at_any_position(naming: str) -> None:
    calls = [sent(1000, PickyClient({float(bad)}, NAMINGS[naming]))[0].calls for bad in (0, 1, 249, 250, 500, 998, 999)]
    assert max(calls) <= (23 if "counted" in naming else 21)


def test_named_data_take_two_more_calls() -> None:
    outcome, _, refused = sent(1000, PickyClient(set(map(float, range(0, 1000, 100))), NAMINGS["all"]))
    assert (outcome.calls, len(refused)) == (3, 10)


def test_a_search_ends_after_a_number_of_calls_and_refuses_the_rest() -> None:
    outcome, delivered, refused = sent(3000, PickyClient(set(map(float, range(0, 2000, 2))), NAMINGS["none"]))
    assert outcome.calls == SEARCH_CALLS + 3
    assert set(range(2000, 3000)) <= set(delivered)
    assert len(delivered) + len(refused) == 3000


@pytest.mark.parametrize("bad", [{0.0}, {1999.0}, {700.0}, {1000.0, 1001.0}], ids=str)
def test_a_datum_that_cloudwatch_always_answers_with_503_holds_up_no_other(bad: set[float]) -> None:
    sender, data = sender_of(PickyClient(bad, NAMINGS["none"], status=503)), lag_data(2000)
    for _ in range(3):
        outcome = sender.send(data)
        assert outcome.fault is not None
        assert (outcome.fault.kind, outcome.refused) == ("unavailable", [])
        assert outcome.calls <= 30
        data = [datum for datum in data if datum not in outcome.delivered]
    assert {datum.value for datum in data} == bad
