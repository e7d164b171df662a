import resource

import pytest

from karrot.server import gunicorn

Limits = tuple[int, int]
ENDLESS = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "connections", "after"),
    [
        ((1_024, 524_288), 4_096, (4_224, 524_288)),
        ((1_024, ENDLESS), 4_096, (4_224, ENDLESS)),
        ((1_024, 1_024), 896, (1_024, 1_024)),
        ((1_024, 2_000), 1_872, (2_000, 2_000)),
        ((65_536, 65_536), 4_096, (65_536, 65_536)),
        ((ENDLESS, ENDLESS), 4_096, (ENDLESS, ENDLESS)),
        ((64, 64), 1, (64, 64)),
    ],
)
def test_a_worker_has_at_most_as_many_connections_as_its_limit_of_open_files(
    monkeypatch: pytest.MonkeyPatch, limits: Limits, connections: int, after: Limits
) -> None:
    now = [limits]
    monkeypatch.setattr(resource, "getrlimit", lambda _what: now[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _what, given: now.__setitem__(0, given))
    assert gunicorn._connections() == connections
    assert now[0] == after
