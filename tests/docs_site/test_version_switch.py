"""A site that is one of several versions has a switch between them; a site alone has none."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tools.docs_site.__main__ import _configuration
from tools.docs_site.site_map import site_map

ROOT = Path(__file__).resolve().parents[2]
PROJECT = {"description": "Lag", "version": "2.1.0"}


@pytest.mark.parametrize(
    ("switch", "extra"),
    [
        (False, {"karrot_version": "2.1.0"}),
        (True, {"karrot_version": "2.1.0", "version": {"provider": "mike"}}),
    ],
)
def test_only_a_site_in_a_folder_asks_for_the_list_of_versions(*, switch: bool, extra: dict[str, Any]) -> None:
    address = "https://docs.example.org/karrot/2.1/"
    text = _configuration(site_map(ROOT), PROJECT, "https://git.example.org/karrot", address, switch=switch)
    written = tomllib.loads(text)["project"]
    assert (written["extra"], written["site_url"]) == (extra, address)
