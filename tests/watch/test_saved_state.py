"""The stored state of the watch is read back unchanged or not at all."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from karrot.event import OpenIncident, TopicPartition
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.watch.cluster_reader import Stability
from karrot.watch.saved_state import Memory, dump, file_keeper, load, log_keeper
from support.manual_clock import ManualClock

NOW = 1_800_000_000_000
POLLS = st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**12), st.booleans()), max_size=25)


def lived(polls: list[tuple[int, int, bool]]) -> Memory:
    memory = Memory()
    for number, (offset, end, has_members) in enumerate(polls):
        now_ms = NOW + 10_000 * number
        memory.rings.see_logs({TopicPartition("t", 0): end // 2}, {TopicPartition("t", 0): end}, now_ms)
        owned = [TopicPartition("t", 0)] if has_members else []
        memory.rings.see_commits("g", {TopicPartition("t", 0): offset}, owned=owned, now_ms=now_ms)
        memory.stability.setdefault("g", Stability(3, 77))
    return memory


@settings(deadline=None)
@given(POLLS)
def test_rings_are_read_back_unchanged(polls: list[tuple[int, int, bool]]) -> None:
    memory = lived(polls)
    if polls:
        memory.incidents.open["g"] = OpenIncident("an id", NOW)
    found = load(dump(memory, "prod", NOW), "prod", NOW + 1000)
    for group, rings in memory.rings.groups.items():
        for place, ring in rings.items():
            back = found.rings.groups[group][place]
            assert back.window.slots == ring.window.slots
            assert replace(back, window=ring.window) == ring
    assert found.rings.logs == memory.rings.logs
    assert found.rings.order == memory.rings.order
    assert found.incidents.open == memory.incidents.open
    assert found.stability == memory.stability


@pytest.mark.parametrize(
    ("value", "cluster", "at_ms"),
    [
        pytest.param(b"\xff", "prod", NOW, id="not its bytes"),
        pytest.param(dump(lived([(1, 2, True)] * 3), "prod", NOW), "other", NOW, id="of another cluster"),
        pytest.param(dump(lived([(1, 2, True)] * 3), "prod", NOW), "prod", NOW + 8 * 86_400_000, id="too long ago"),
    ],
)
def test_a_state_that_does_not_fit_is_reported_and_not_used(value: bytes, cluster: str, at_ms: int) -> None:
    with structlog.testing.capture_logs() as logs:
        assert load(value, cluster, at_ms).rings.groups == {}
    assert [line["log_level"] for line in logs] == ["warning"]


def test_a_missing_state_is_not_reported() -> None:
    with structlog.testing.capture_logs() as logs:
        assert load(None, "prod", NOW).rings.groups == {}
    assert logs == []


def test_a_file_is_readable_only_by_its_owner_and_replaced_as_a_whole(tmp_path: Path) -> None:
    keeper = file_keeper(tmp_path / "state")
    assert keeper.recall() is None
    keeper.remember(b"one")
    keeper.remember(b"two")
    assert keeper.recall() == b"two"
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_saved_file_is_on_the_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = list[tuple[str, bool]]()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        flushed.append((str(Path(f"/proc/self/fd/{descriptor}").readlink()), (tmp_path / "state").exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    file_keeper(tmp_path / "state").remember(b"one")
    assert flushed == [(str(tmp_path / "state.new"), False), (str(tmp_path), True)]


def test_a_note_belongs_to_one_cluster() -> None:
    log = MemoryEventLog(ManualClock())
    log_keeper(log, "prod").remember(b"one")
    assert log_keeper(log, "prod").recall() == b"one"
    assert log_keeper(log, "dr").recall() is None
