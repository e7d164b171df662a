"""A flush against the strict fake: who is delivered, who is refused, who is kept, and in how many calls."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest

from karrot.reporters.cloudwatch.datum import Datum
from karrot.reporters.cloudwatch.faults import Fault, FaultKind
from karrot.reporters.cloudwatch.options import Options
from karrot.reporters.cloudwatch.sender import Sender, SendOutcome
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


@pytest.fixture(params=[True, False], ids=["named", "not named"])
def picky(
    request: pytest.FixtureRequest, environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeAws]:
    """A fake that names bad members, and one that does not."""
    with FakeAws(clock_ms=lambda: NOW_MS, names_members=request.param) as fake:
        monkeypatch.setenv("AWS_ENDPOINT_URL", fake.url)
        assert environ["AWS_ENDPOINT_URL"] == fake.url
        yield fake


def whole(outcome: SendOutcome, data: Sequence[Datum]) -> SendOutcome:
    """The outcome, after a look that each datum is in it once."""
    found = [*outcome.delivered, *(refusal.datum for refusal in outcome.refused), *outcome.kept]
    assert sorted(datum.value for datum in found) == sorted(datum.value for datum in data)
    return outcome


def groups(*numbers: int) -> list[str]:
    return [f"group-{number}" for number in numbers]


def counts(outcome: SendOutcome) -> tuple[int, int, int, int]:
    """Delivered, refused, kept, calls."""
    return len(outcome.delivered), len(outcome.refused), len(outcome.kept), outcome.calls


def kind(outcome: SendOutcome) -> FaultKind | None:
    return outcome.fault.kind if outcome.fault else None


# --- when all is well ---


def test_data_arrive_as_they_are_in_calls_of_a_thousand(world: SenderRig, sender: Sender, fake: FakeAws) -> None:
    data = lag_data(2001)
    outcome = whole(sender.send(data), data)
    assert outcome == SendOutcome(tuple(data), (), (), 3, None)
    assert [call.data for call in fake.calls] == [1000, 1000, 1]
    assert world.statuses == ["200", "200", "200"]
    dimensions = {"Cluster": "prod", "ConsumerGroup": "group-7"}
    assert fake.points("Karrot", "Lag", dimensions) == [(NOW_MS, 7.0)]


def test_one_client_serves_all_sends(world: SenderRig, sender: Sender) -> None:
    assert world.opened == 0
    for _ in range(3):
        sender.send(lag_data(1))
    assert world.opened == 1


def test_nothing_to_send_opens_nothing(world: SenderRig, sender: Sender) -> None:
    assert sender.send([]) == SendOutcome((), (), (), 0, None)
    assert world.opened == 0


def test_ten_calls_go_at_once_and_then_ten_a_second(world: SenderRig, sender: Sender) -> None:
    for _ in range(10):
        sender.send(lag_data(1))
    assert world.slept_s == 0
    for _ in range(15):
        sender.send(lag_data(1))
    assert world.slept_s == pytest.approx(1.5)


# --- bad data ---


@pytest.mark.parametrize("bad", [[0], [499], [999], [3, 700], [3, 4], list(range(0, 1000, 100)), list(range(10))])
def test_bad_data_are_refused_and_all_their_neighbours_delivered(
    picky: FakeAws, sender: Sender, bad: list[int]
) -> None:
    data = lag_data(1000)
    picky.poison(*groups(*bad))
    outcome = whole(sender.send(data), data)
    assert [refusal.datum.value for refusal in outcome.refused] == bad
    assert {refusal.reason for refusal in outcome.refused} == {"rejected"}
    assert "PutMetricData was answered 400 InvalidParameterValue" in outcome.refused[0].text
    assert len(outcome.delivered) == 1000 - len(bad)
    assert outcome.fault is None
    assert outcome.calls <= 1 + 20 * len(bad)


def test_those_refused_before_go_apart_and_cost_their_neighbours_nothing(picky: FakeAws, sender: Sender) -> None:
    data = lag_data(1000)
    picky.poison(*groups(17))
    sender.send(data)
    assert counts(whole(sender.send(data), data)) == (999, 1, 0, 2)


def test_those_that_are_good_again_go_with_the_others_again(picky: FakeAws, sender: Sender) -> None:
    picky.poison(*groups(2))
    sender.send(lag_data(10))
    picky.clear()
    assert counts(sender.send(lag_data(10))) == (10, 0, 0, 2)
    assert counts(sender.send(lag_data(10))) == (10, 0, 0, 1)


def test_where_all_are_bad_the_search_is_given_up_and_other_batches_are_sent(
    environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, sender: Sender
) -> None:
    data = lag_data(1500)
    with FakeAws(clock_ms=lambda: NOW_MS, names_members=False) as fake:
        monkeypatch.setenv("AWS_ENDPOINT_URL", fake.url)
        assert environ["AWS_ENDPOINT_URL"] == fake.url
        fake.poison(*groups(*range(1000)))
        outcome = whole(sender.send(data), data)
        assert [datum.value for datum in outcome.delivered] == [float(number) for number in range(1000, 1500)]
        assert {refusal.datum.value < 1000 for refusal in outcome.refused} == {True}
        assert outcome.kept
        assert outcome.calls == 162
        assert kind(outcome) is FaultKind.UNEXPECTED
        assert counts(sender.send(data))[3] <= 163


def test_where_all_are_bad_and_named_one_call_tells(fake: FakeAws, sender: Sender) -> None:
    fake.poison("prod")
    assert counts(sender.send(lag_data(1000))) == (0, 1000, 0, 1)


def test_a_value_of_a_wrong_type_is_refused_like_any_other(sender: Sender) -> None:
    data = [*lag_data(5), make_datum(value="many")]  # a bug of ours, found by boto3
    outcome = sender.send(data)
    assert [refusal.datum for refusal in outcome.refused] == data[5:]
    assert (len(outcome.delivered), outcome.fault) == (5, None)


def test_what_is_too_large_is_halved(fake: FakeAws, sender: Sender) -> None:
    fake.script(aws.TOO_LARGE, aws.TOO_LARGE)
    assert counts(sender.send(lag_data(100))) == (100, 0, 0, 5)
    assert [call.data for call in fake.calls] == [100, 50, 25, 25, 50]


def test_a_single_datum_that_is_too_large_is_refused(fake: FakeAws, sender: Sender) -> None:
    fake.stand(aws.TOO_LARGE)
    outcome = sender.send(lag_data(4))
    assert counts(outcome) == (0, 4, 0, 7)
    assert {refusal.reason for refusal in outcome.refused} == {"too_large"}


# --- faults ---


def test_a_fault_stops_the_send_and_keeps_the_rest(world: SenderRig, sender: Sender, fake: FakeAws) -> None:
    data = lag_data(3000)
    fake.script(None, aws.THROTTLING, aws.THROTTLING)  # boto3 asks twice
    outcome = whole(sender.send(data), data)
    assert outcome.delivered == tuple(data[:1000])
    assert outcome.kept == tuple(data[1000:])
    assert outcome.fault == Fault(FaultKind.THROTTLED, "PutMetricData was answered 400 Throttling: Rate exceeded")
    assert world.statuses == ["200", "400"]
    assert counts(sender.send(outcome.kept)) == (2000, 0, 0, 2)


def test_a_fault_during_a_search_keeps_what_is_not_settled(
    environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, sender: Sender
) -> None:
    data = lag_data(8)
    with FakeAws(clock_ms=lambda: NOW_MS, names_members=False) as fake:
        monkeypatch.setenv("AWS_ENDPOINT_URL", fake.url)
        assert environ["AWS_ENDPOINT_URL"] == fake.url
        fake.poison(*groups(6))
        fake.script(None, None, aws.UNAVAILABLE, aws.UNAVAILABLE)
        outcome = whole(sender.send(data), data)
    assert outcome.delivered == tuple(data[:4])
    assert outcome.kept == tuple(data[4:])
    assert kind(outcome) is FaultKind.UNAVAILABLE


def test_an_answer_that_is_lost_keeps_the_data_which_may_arrive_twice(
    world: SenderRig, sender: Sender, fake: FakeAws
) -> None:
    data = lag_data(1)
    fake.script(aws.RESET_AFTER_KEEPING, aws.RESET_AFTER_KEEPING)
    outcome = sender.send(data)
    assert (outcome.kept, kind(outcome)) == (tuple(data), FaultKind.UNAVAILABLE)
    assert world.statuses == ["error"]
    assert sender.send(data).delivered == tuple(data)
    assert {datum.values for datum in fake.accepted} == {(0.0,)}
    assert len(fake.accepted) == 3


def test_an_outage_keeps_the_client(world: SenderRig, sender: Sender, fake: FakeAws) -> None:
    fake.stand(aws.UNAVAILABLE)
    assert kind(sender.send(lag_data(1))) is FaultKind.UNAVAILABLE
    fake.clear()
    assert sender.send(lag_data(1)).delivered
    assert world.opened == 1


def test_a_denial_is_seen_to_end(world: SenderRig, sender: Sender, fake: FakeAws) -> None:
    fake.stand(aws.ACCESS_DENIED)
    outcome = sender.send(lag_data(1))
    assert (len(outcome.kept), outcome.calls, kind(outcome)) == (1, 1, FaultKind.PERMISSION)
    fake.clear()
    assert sender.send(lag_data(1)).delivered
    assert world.opened == 2


def test_what_nobody_expected_is_a_fault_and_raises_nothing() -> None:
    def fail() -> NoReturn:
        raise RuntimeError("nobody expected this")

    sender = Sender(fail, "Karrot", count=print, pause=print, monotonic=float)
    fault = Fault(FaultKind.UNEXPECTED, "RuntimeError: nobody expected this")
    assert sender.send(lag_data(2)) == SendOutcome((), (), tuple(lag_data(2)), 0, fault)
    sender.close()


def test_after_closing_a_send_opens_a_client_again(world: SenderRig, sender: Sender) -> None:
    sender.send(lag_data(1))
    sender.close()
    sender.close()
    assert sender.send(lag_data(1)).delivered
    assert world.opened == 2


# --- credentials that go and come back ---


def write_credentials(tmp_path: Path, key: str) -> None:
    text = f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n"
    (tmp_path / "credentials").write_text(text)


@pytest.fixture
def without_keys(environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    return environ


@pytest.mark.usefixtures("without_keys")
def test_a_credentials_file_that_is_rewritten_in_time_is_seen_within_the_send(
    world: SenderRig, sender: Sender, fake: FakeAws, tmp_path: Path
) -> None:
    write_credentials(tmp_path, "AKIDOLD")
    assert sender.send(lag_data(1)).delivered
    fake.expire("AKIDOLD")
    write_credentials(tmp_path, "AKIDNEW")
    assert counts(sender.send(lag_data(1))) == (1, 0, 0, 2)
    assert [call.access_key for call in fake.calls] == ["AKIDOLD", "AKIDOLD", "AKIDNEW"]
    assert world.statuses == ["200", "403", "200"]
    assert world.opened == 2


@pytest.mark.usefixtures("without_keys")
def test_a_credentials_file_that_is_rewritten_late_is_seen_by_the_next_send(
    sender: Sender, fake: FakeAws, tmp_path: Path
) -> None:
    write_credentials(tmp_path, "AKIDOLD")
    fake.expire("AKIDOLD")
    outcome = sender.send(lag_data(1))
    assert (counts(outcome), kind(outcome)) == (
        (0, 0, 1, 1),
        FaultKind.CREDENTIALS,
    )  # the client was new: once is enough
    write_credentials(tmp_path, "AKIDNEW")
    assert counts(sender.send(lag_data(1))) == (1, 0, 0, 1)


@pytest.mark.usefixtures("without_keys")
def test_keys_that_appear_are_seen_by_the_next_send(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = sender.send(lag_data(1))
    assert (counts(outcome), kind(outcome)) == ((0, 0, 1, 1), FaultKind.CREDENTIALS)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDNEW")
    assert kind(sender.send(lag_data(1))) is FaultKind.CREDENTIALS  # half of a pair
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert sender.send(lag_data(1)).delivered


@pytest.mark.usefixtures("without_keys")
def test_a_token_file_that_is_missing_is_seen_when_it_comes(
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
def test_a_containers_endpoint_that_is_down_is_seen_when_it_comes(
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
        assert counts(sender.send(lag_data(1))) == (1, 0, 0, 2)
    assert len(fake.assumed) == 2


def test_a_region_that_is_missing_is_seen_when_it_comes(
    environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = SenderRig(environ)
    monkeypatch.delenv("AWS_REGION")
    with world.sender() as sender:
        outcome = sender.send(lag_data(1))
        assert (counts(outcome), kind(outcome)) == ((0, 0, 1, 0), FaultKind.REGION)
        assert world.statuses == []
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
        assert sender.send(lag_data(1)).delivered


def test_a_standing_credentials_fault_costs_a_call_or_two_a_send(
    world: SenderRig, sender: Sender, fake: FakeAws
) -> None:
    sender.send(lag_data(1))
    fake.stand(aws.EXPIRED_TOKEN)
    assert [counts(sender.send(lag_data(1))) for _ in range(2)] == [(0, 0, 1, 2), (0, 0, 1, 1)]
    assert world.opened == 3
