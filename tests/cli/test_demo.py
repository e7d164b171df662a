import pytest

from support.karrot_command import run_karrot


def test_the_demo_starts_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def demo(*arguments: object) -> int:
        asked.append(arguments)
        return 0

    monkeypatch.setattr("karrot.demo.demo.demo", demo)
    assert run_karrot("demo").exit_code == 0
    assert run_karrot("demo", "--port", "8000", "--groups", "3", "--seed", "1", "--speed", "2.5").exit_code == 0
    assert asked == [(None, 24, 7, 1.0), (8000, 3, 1, 2.5)]
