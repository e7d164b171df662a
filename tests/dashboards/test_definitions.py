"""The Grafana dashboards are what ``tools/dashboards`` writes."""

from tools.dashboards.__main__ import BOARDS, DIRECTORY, text


def test_the_dashboards_are_what_their_definitions_give() -> None:
    written = {path.stem: path.read_text(encoding="utf-8") for path in DIRECTORY.glob("*.json")}
    assert written == {board["uid"]: text(board) for board in BOARDS}, "make docs writes them anew"
