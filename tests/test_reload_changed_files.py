"""A value from files is made again when a file changes, and the old one stays if the new files cannot be used."""

from collections import Counter
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from karrot.reload_changed_files import NewestFromFiles
from karrot.telemetry import Metric
from support.kubernetes.mounted_secret import MountedSecret


def _nothing() -> None:
    """Happen to no file."""


class Rig:
    """A value from one file: its text, which must be a number. ``made`` counts how often the file was read."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.now_s = 0.0
        self.made = 0
        self.meanwhile = _nothing
        self.counts: Counter[str] = Counter()
        self.value = NewestFromFiles(
            self._make, 0, failure="secrets_unusable", count=self._count, now=lambda: self.now_s
        )

    def _make(self) -> int:
        self.made += 1
        self.meanwhile()
        return int(self.file.read_text())

    def _count(self, metric: Metric, **labels: str) -> None:
        self.counts[f"{metric.name}{labels}"] += 1

    def after(self, seconds: float) -> int:
        self.now_s += seconds
        return self.value()


@pytest.fixture
def secret(tmp_path: Path) -> MountedSecret:
    return MountedSecret(tmp_path / "secret", token=b"1")


@pytest.fixture
def rig(secret: MountedSecret) -> Rig:
    return Rig(secret.path("token"))


def test_the_first_value_is_the_one_that_was_read_at_the_start_until_the_first_look(rig: Rig) -> None:
    assert rig.after(0) == 1
    assert rig.made == 1


def test_a_new_folder_behind_the_link_gives_the_new_value(rig: Rig, secret: MountedSecret) -> None:
    assert rig.after(0) == 1
    secret.update(token=b"2")
    with capture_logs() as logs:
        assert rig.after(0.9) == 1
        assert rig.after(0.2) == 2
        assert rig.after(1) == 2
    assert logs == [{"event": "changed files are in use", "log_level": "info", "files": "secrets"}]


def test_a_file_that_is_replaced_or_written_again_gives_the_new_value(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("1")
    rig = Rig(file)
    assert rig.after(0) == 1
    file.write_text("2")
    assert rig.after(1) == 2
    (tmp_path / "new").write_text("3")
    (tmp_path / "new").replace(file)
    assert rig.after(1) == 3


def test_files_that_change_while_they_are_read_are_read_again_without_an_error(rig: Rig, secret: MountedSecret) -> None:
    def replace() -> None:
        """Between the two reads of a certificate and its key, both are replaced."""
        rig.meanwhile = _nothing
        secret.update(token=b"2")
        raise ValueError("key values mismatch")

    assert rig.after(0) == 1
    secret.update(token=b"3")
    rig.meanwhile = replace
    with capture_logs() as logs:
        assert rig.after(1) == 1
        assert rig.after(1) == 2
    assert [each["log_level"] for each in logs] == ["info"]
    assert not rig.counts


def test_a_file_with_the_same_content_is_not_reported(rig: Rig, secret: MountedSecret) -> None:
    assert rig.after(0) == 1
    secret.update(token=b"1")
    with capture_logs() as logs:
        assert rig.after(1) == 1
    assert logs == []


def test_the_old_value_stays_while_the_file_cannot_be_used(rig: Rig, secret: MountedSecret) -> None:
    assert rig.after(0) == 1
    with capture_logs() as logs:
        secret.update()
        for _ in range(5):
            assert rig.after(1) == 1
        secret.update(token=b"many")
        for _ in range(5):
            assert rig.after(1) == 1
        secret.update(token=b"2")
        assert rig.after(1) == 2
    told = [(each["log_level"], each.get("code"), each.get("reason", "")[:30]) for each in logs]
    assert told == [
        ("error", "secrets_unusable", "[Errno 2] No such file or direc"[:30]),
        ("error", "secrets_unusable", "invalid literal for int() with"),
        ("info", None, ""),
    ]
    assert rig.counts == {"karrot_file_reload_failures_total{'files': 'secrets'}": 2}


def test_a_file_that_could_not_be_used_is_tried_again_without_a_change(rig: Rig, secret: MountedSecret) -> None:
    assert rig.after(0) == 1
    secret.update(token=b"2")
    make, rig.value._make = rig.value._make, lambda: int("for a moment")
    assert rig.after(1) == 1
    rig.value._make = make
    assert rig.after(1) == 2
    assert not rig.counts


def test_the_same_failure_after_a_success_is_reported_again(rig: Rig, secret: MountedSecret) -> None:
    for _ in range(2):
        secret.update()
        assert {rig.after(1), rig.after(1)} <= {0, 1}
        secret.update(token=b"1")
        assert rig.after(1) == 1
    assert sum(rig.counts.values()) == 2
