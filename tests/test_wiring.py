from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from karrot import wiring
from karrot.eventlog.memory import MemoryEventLog
from karrot.reporters.base import Context
from karrot.settings.loading import Loaded, SettingsError, load
from karrot.settings.options import Settings
from support.eventlog.appended_events import append_event
from support.manual_clock import ManualClock


class Closing:
    """A destination that remembers whether it was closed."""

    closed = 0

    def report(self, events: object) -> None:
        raise AssertionError(events)

    def close(self) -> None:
        Closing.closed += 1


def build_closing(_context: Context) -> Closing:
    return Closing()


def build_needy(context: Context) -> Closing:
    assert context.settings["path"]
    return Closing()


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    builders = {"closing": build_closing, "needy": build_needy}

    class Point(EntryPoint):
        def load(self) -> Callable[[Context], Closing]:
            return builders[self.name]

    monkeypatch.setattr(wiring, "entry_point", lambda group, name: Point(name, "", group))


def settings(**environ: str) -> Settings:
    told = {f"KARROT_{name.upper()}": value for name, value in environ.items()}
    return load(told, available=("prometheus", "stdout", "closing", "needy")).settings


@pytest.mark.usefixtures("offered")
def test_a_trial_builds_every_reporter_and_closes_it() -> None:
    before = Closing.closed
    wiring.try_out(settings(reporters="closing,needy", needy_path="/tmp/x"))
    assert Closing.closed == before + 2


@pytest.mark.usefixtures("offered")
def test_a_reporter_that_cannot_be_built_is_named_with_its_reason() -> None:
    with pytest.raises(SettingsError, match="KARROT_REPORTERS: needy cannot be built: KeyError: 'path'"):
        wiring.try_out(settings(reporters="closing,needy"))


def test_a_reload_with_wrong_settings_keeps_the_old(tmp_path: Path) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    answers = [settings(tls_cert=str(junk), tls_key=str(junk)), settings(threads="3", bind="127.0.0.1:1")]
    plan = wiring.Plan(settings(), lambda: Loaded(answers.pop(0), ()), ManualClock())
    plan.reload()
    assert plan.options()["certfile"] is None
    plan.reload()
    assert plan.options() == {
        "bind": "0.0.0.0:5000",
        "workers": 2,
        "threads": 3,
        "certfile": None,
        "keyfile": None,
    }


def test_a_memory_log_takes_the_bounds_of_the_settings() -> None:
    log = wiring.open_log(settings(event_log="memory", workers="1", max_consumers="7"), ManualClock())
    assert isinstance(log, MemoryEventLog)
    tracked = [append_event(log, consumer=f"g{number}").tracked for number in range(8)]
    assert tracked == [True] * 7 + [False]


def test_the_reporters_that_are_on_are_opened_by_name() -> None:
    clock = ManualClock()
    opened = wiring.open_reporters(settings(reporters="stdout,prometheus"), MemoryEventLog(clock), clock)
    assert list(opened) == ["stdout", "prometheus"]


def test_prometheus_shares_the_settings_of_the_service() -> None:
    chosen = settings(exclude_consumers="^test-", expected_clusters="a,b", partition_metrics="true")
    opened = wiring.open_reporters(chosen, MemoryEventLog(ManualClock()), ManualClock())
    options = opened["prometheus"].options  # type: ignore[union-attr]
    assert (options.partition_metrics, options.expected_clusters) == (True, ("a", "b"))
    assert options.excludes("test-1")
