"""The Grafana dashboards in the repository equal the output of ``tools/dashboards``."""

from tools.dashboards.__main__ import BOARDS, DIRECTORY, text


def test_the_dashboards_equal_the_output_of_their_definitions() -> None:
    written = {path.stem: path.read_text(encoding="utf-8") for path in DIRECTORY.glob("*.json")}
    assert written == {board["uid"]: text(board) for board in BOARDS}, "run make docs to write them again"
