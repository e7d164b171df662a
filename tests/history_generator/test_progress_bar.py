"""The progress bar of ``make history`` counts the hours of the simulated days once."""

from pathlib import Path

from tools import history
from tools.history_generator.history_scenario import CLUSTERS


def test_an_hour_counts_once_all_clusters_have_archived_it(tmp_path: Path) -> None:
    for cluster, hours in zip(CLUSTERS, (24, 20), strict=True):
        for hour in range(hours):
            (tmp_path / cluster / "day=2026-03-01" / f"hour={hour:02}").mkdir(parents=True)
    assert history._bar(days=1).length == 24
    assert history._archived_hours(tmp_path) == 20
