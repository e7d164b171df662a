"""The sender delivers, refuses or keeps each datum of a flush to the strict fake, in a known number of calls."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest

from karrot.aws.classify_errors import Fault, FaultKind
from karrot.reporters.cloudwatch.data import Datum
from karrot.reporters.cloudwatch.sender import Sender, SendOutcome
from karrot.settings.options import CloudWatch as Options
from support.reporters import injected_faults as aws
from support.reporters.cloudwatch_datum import NOW_MS, make_datum
from support.reporters.cloudwatch_sender_rig import SenderRig, lag_data
from support.reporters.fake_aws import FakeAws

ROLE = "arn:aws:iam::123456789012:role/karrot"


@pytest.fixture
def world(environ: Mapping[str, str]) -> SenderRig:
    return SenderRig(environ)


@pytest.fixture
def sender(world: SenderRig) -> Iterator[Sender]:
    with world.sender() as sender:
        yield sender


def whole(outcome: SendOutcome, data: Sequence[Datum]) -> SendOutcome:
    """Return the outcome after checking that each datum is in it at most once, and without a fault once."""
    found = Counter([*outcome.delivered, *(refusal.datum for refusal in outcome.refused)])
    assert found <= Counter(data)
    assert outcome.fault is not None or found == Counter(data)
    return outcome


def groups(*numbers: int) -> list[str]:
    return [f"group-{number}" for number in numbers]


def counts(outcome: SendOutcome) -> tuple[int, int, int]:
    """Return the numbers of delivered and refused data and of calls."""
    return len(outcome.delivered), len(outcome.refused), outcome.calls


def kind(outcome: SendOutcome) -> FaultKind | None:
    return outcome.fault.kind if outcome.fault else None


# --- without errors ---


def test_data_arrive_unchanged_in_calls_of_a_thousand(world: SenderRig, sender: Sender, fake: FakeAws) -> None:
    data = lag_data(2001)
    outcome = whole(sender.send(data), data)
    assert outcome == SendOutcome(data, calls=3)
    assert [call.data for call in fake.calls] == [1000, 1000, 1]
    assert world.statuses == ["200", "200", "200"]
    dimensions = {"Cluster": "prod", "ConsumerGroup": "group-7"}
    assert fake.points("Karrot", "Lag", dimensions) == [(NOW_MS, 7.0)]


def test_one_client_serves_all_sends(world: SenderRig, sender: Sender) -> None:
    assert world.opened == 0
    for _ in range(3):
        sender.send(lag_data(1))
    assert world.opened == 1


def test_an_empty_send_opens_no_client(world: SenderRig, sender: Sender) -> None:
    assert sender.send([]) == SendOutcome()
    assert world.opened == 0


def test_ten_calls_are_sent_at_once_and_then_ten_per_second(
    world: SenderRig, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("karrot.reporters.cloudwatch.data.MAX_DATA", 1)
    sender.send(lag_data(10))
    assert world.slept_s == 0
    sender.send(lag_data(25))
    assert world.slept_s == pytest.approx(1.5)


def test_a_process_that_lost_the_lead_during_a_send_makes_no_further_call(world: SenderRig, sender: Sender) -> None:
    world.calls_as_leader = 1
    data = lag_data(2001)
    outcome = whole(sender.send(data), data)
    assert counts(outcome) == (1000, 0, 1)
    assert outcome.fault == Fault(FaultKind.UNAVAILABLE, "this process does not lead any more")


# --- bad data ---


@pytest.mark.parametrize(
    "bad",
    [[0], [499], [999], [3, 700], [3, 4], list(range(0, 1000, 100)), list(range(10))],
    ids=["the first", "one in the middle", "the last", "two", "two neighbours", "one in each hundred", "the first ten"],
)
def test_bad_data_are_refused_and_all_others_delivered(fake: FakeAws, sender: Sender, bad: list[int]) -> None:
    data = lag_data(1000)
    fake.poison(*groups(*bad))
    outcome = whole(sender.send(data), data)
    assert [refusal.datum.value for refusal in outcome.refused] == bad
    assert {refusal.reason for refusal in outcome.refused} == {"rejected"}
    assert "PutMetricData was answered 400 InvalidParameterValue" in outcome.refused[0].text
    assert len(outcome.delivered) == 1000 - len(bad)
    assert outcome.fault is None
    assert outcome.calls <= 1 + 20 * len(bad)


def test_a_batch_of_only_bad_data_is_given_up_and_other_batches_are_sent(fake: FakeAws, sender: Sender) -> None:
    data = lag_data(1500)
    fake.poison(*groups(*range(1000)))
    outcome = whole(sender.send(data), data)
    assert [datum.value for datum in outcome.delivered] == [float(number) for number in range(1000, 1500)]
    assert {refusal.datum.value < 1000 for refusal in outcome.refused} == {True}
    assert counts(outcome) == (500, 1000, 162)
    assert outcome.refused[-1].text.startswith("not tried again after 160 calls for rejected data: PutMetricData")


def test_a_value_of_a_wrong_type_is_refused_like_other_bad_data(sender: Sender) -> None:
    data = [*lag_data(5), make_datum(value="many")]  # such a value would be a bug in Karrot; boto3 finds it
    outcome = sender.send(data)
    assert [refusal.datum for refusal in outcome.refused] == data[5:]
    assert (len(outcome.delivered), outcome.fault) == (5, None)


def test_a_too_large_request_is_divided(fake: FakeAws, sender: Sender) -> None:
    fake.script(aws.TOO_LARGE, aws.TOO_LARGE)
    assert counts(sender.send(lag_data(100))) == (100, 0, 9)
    assert [call.data for call in fake.calls] == [100, 25, 7, 7, 7, 4, 25, 25, 25]


def test_a_single_datum_that_is_too_large_is_refused(fake: FakeAws, sender: Sender) -> None:
    fake.stand(aws.TOO_LARGE)
    outcome = sender.send(lag_data(4))
    assert counts(outcome) == (0, 4, 5)
    assert {refusal.reason for refusal in outcome.refused} == {"too_large"}


def test_an_outage_refuses_nothing_however_long_it_lasts(sender: Sender, fake: FakeAws) -> None:
    data = lag_data(20)
    fake.stand(aws.UNAVAILABLE)
    assert [counts(whole(sender.send(data), data)) for _ in range(10)] == [(0, 0, 1)] * 10
    fake.clear()
    assert counts(sender.send(data)) == (20, 0, 1)


# --- faults ---


def test_a_fault_stops_the_send_and_keeps_the_rest(world: SenderRig, sender: Sender, fake: FakeAws) -> None:
    data = lag_data(3000)
    fake.script(None, aws.THROTTLING, aws.THROTTLING)  # boto3 tries twice
    outcome = whole(sender.send(data), data)
    assert outcome.delivered == data[:1000]
    text = "PutMetricData was answered 400 Throttling: Rate exceeded"
    assert outcome.fault == Fault(FaultKind.THROTTLED, text, status=400)
    assert world.statuses == ["200", "400"]
    assert counts(sender.send(data[1000:])) == (2000, 0, 2)


def test_a_fault_during_a_search_keeps_the_undecided_data(fake: FakeAws, sender: Sender) -> None:
    data = lag_data(8)
    fake.poison(*groups(6))
    fake.script(None, None, None, aws.UNAVAILABLE, aws.UNAVAILABLE)
    outcome = whole(sender.send(data), data)
    assert (outcome.delivered, outcome.refused) == (data[:4], [])
    assert kind(outcome) is FaultKind.UNAVAILABLE


def test_a_lost_answer_keeps_the_data_which_may_arrive_twice(world: SenderRig, sender: Sender, fake: FakeAws) -> None:
    data = lag_data(1)
    fake.script(aws.RESET_AFTER_KEEPING, aws.RESET_AFTER_KEEPING)
    outcome = sender.send(data)
    assert (outcome.delivered, outcome.refused, kind(outcome)) == ([], [], FaultKind.UNAVAILABLE)
    assert world.statuses == ["error"]
    assert sender.send(data).delivered == data
    assert {datum.values for datum in fake.accepted} == {(0.0,)}
    assert len(fake.accepted) == 3


def test_an_outage_keeps_the_client(world: SenderRig, sender: Sender, fake: FakeAws) -> None:
    fake.stand(aws.UNAVAILABLE)
    assert kind(sender.send(lag_data(1))) is FaultKind.UNAVAILABLE
    fake.clear()
    assert sender.send(lag_data(1)).delivered
    assert world.opened == 1


def test_the_end_of_a_denial_is_noticed(world: SenderRig, sender: Sender, fake: FakeAws) -> None:
    fake.stand(aws.ACCESS_DENIED)
    outcome = sender.send(lag_data(1))
    assert (counts(outcome), kind(outcome)) == ((0, 0, 1), FaultKind.PERMISSION)
    fake.clear()
    assert sender.send(lag_data(1)).delivered
    assert world.opened == 2


def test_an_unexpected_error_is_a_fault_and_is_not_raised() -> None:
    def fail() -> NoReturn:
        raise RuntimeError("an unexpected error")

    sender = Sender(fail, "Karrot", count=print, pause=print, monotonic=float)
    fault = Fault(FaultKind.UNEXPECTED, "RuntimeError: an unexpected error")
    assert sender.send(lag_data(2)) == SendOutcome(fault=fault)
    sender.close()


def test_a_send_after_closing_opens_a_new_client(world: SenderRig, sender: Sender) -> None:
    sender.send(lag_data(1))
    sender.close()
    sender.close()
    assert sender.send(lag_data(1)).delivered
    assert world.opened == 2


# --- credentials that disappear and return ---


def write_credentials(tmp_path: Path, key: str) -> None:
    text = f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n"
    (tmp_path / "credentials").write_text(text)


@pytest.fixture
def without_keys(environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    return environ


@pytest.mark.usefixtures("without_keys")
def test_a_credentials_file_that_is_rewritten_in_time_is_read_within_the_send(
    world: SenderRig, sender: Sender, fake: FakeAws, tmp_path: Path
) -> None:
    write_credentials(tmp_path, "AKIDOLD")
    assert sender.send(lag_data(1)).delivered
    fake.expire("AKIDOLD")
    write_credentials(tmp_path, "AKIDNEW")
    assert counts(sender.send(lag_data(1))) == (1, 0, 2)
    assert [call.access_key for call in fake.calls] == ["AKIDOLD", "AKIDOLD", "AKIDNEW"]
    assert world.statuses == ["200", "403", "200"]
    assert world.opened == 2


@pytest.mark.usefixtures("without_keys")
def test_a_credentials_file_that_is_rewritten_late_is_read_by_the_next_send(
    sender: Sender, fake: FakeAws, tmp_path: Path
) -> None:
    write_credentials(tmp_path, "AKIDOLD")
    fake.expire("AKIDOLD")
    outcome = sender.send(lag_data(1))
    assert (counts(outcome), kind(outcome)) == (
        (0, 0, 1),
        FaultKind.CREDENTIALS,
    )  # the client was new, so one attempt is enough
    write_credentials(tmp_path, "AKIDNEW")
    assert counts(sender.send(lag_data(1))) == (1, 0, 1)


@pytest.mark.usefixtures("without_keys")
def test_new_keys_are_read_by_the_next_send(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = sender.send(lag_data(1))
    assert (counts(outcome), kind(outcome)) == ((0, 0, 1), FaultKind.CREDENTIALS)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDNEW")
    assert kind(sender.send(lag_data(1))) is FaultKind.CREDENTIALS  # only one of the two keys
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert sender.send(lag_data(1)).delivered


@pytest.mark.usefixtures("without_keys")
def test_a_missing_token_file_is_read_once_it_exists(
    sender: Sender, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    outcome = sender.send(lag_data(1))
    assert kind(outcome) is FaultKind.CREDENTIALS
    assert outcome.fault is not None
    assert str(tmp_path / "token") in outcome.fault.text
    (tmp_path / "token").write_text("a-token")
    assert sender.send(lag_data(1)).delivered


@pytest.mark.usefixtures("without_keys")
def test_a_containers_endpoint_that_was_down_is_used_once_it_answers(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = FakeAws(clock_ms=lambda: NOW_MS)
    with closing(agent):
        port = int(agent.url.rpartition(":")[2])
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.credentials_url)
    assert kind(sender.send(lag_data(1))) is FaultKind.CREDENTIALS
    with FakeAws(clock_ms=lambda: NOW_MS, port=port):
        assert sender.send(lag_data(1)).delivered


def test_a_role_whose_session_was_revoked_is_assumed_again(environ: Mapping[str, str], fake: FakeAws) -> None:
    world = SenderRig(environ, Options(iam_role=ROLE))
    with world.sender() as sender:
        sender.send(lag_data(1))
        fake.expire(fake.issued[-1])
        assert counts(sender.send(lag_data(1))) == (1, 0, 2)
    assert len(fake.assumed) == 2


def test_a_missing_region_is_read_once_it_is_set(environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    world = SenderRig(environ)
    monkeypatch.delenv("AWS_REGION")
    with world.sender() as sender:
        outcome = sender.send(lag_data(1))
        assert (counts(outcome), kind(outcome)) == ((0, 0, 0), FaultKind.REGION)
        assert world.statuses == []
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
        assert sender.send(lag_data(1)).delivered


def test_a_lasting_credentials_fault_takes_one_or_two_calls_per_send(
    world: SenderRig, sender: Sender, fake: FakeAws
) -> None:
    sender.send(lag_data(1))
    fake.stand(aws.EXPIRED_TOKEN)
    assert [counts(sender.send(lag_data(1))) for _ in range(2)] == [(0, 0, 2), (0, 0, 1)]
    assert world.opened == 3
