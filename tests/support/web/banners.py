"""Reads the banners that the pages show for a state of the service."""

import re
from html import unescape
from typing import NamedTuple

from karrot.web.pages.banners import ServiceHealth
from support.web.website import make_website


class Banner(NamedTuple):
    """A banner. The texts have code between backticks. ``page`` is the address of the page with details."""

    kind: str
    wrong: str
    remedy: str
    runbook: str
    page: str


_BANNER = re.compile(
    r'<div class="banner (\w+)">.*?<p class="wrong">(.*?)</p><p>(.*?) <span class="ways"><a [^>]+>Runbook: (\w+)</a>'
    r'(?: <a href="([^"]+)">)?',
    re.DOTALL,
)


def read_banners(page: str) -> list[Banner]:
    """Return the banners of a page."""
    found = _BANNER.findall(re.sub("</?code>", "`", page))
    return [Banner(*map(unescape, each)) for each in found]


def banners(health: ServiceHealth) -> list[Banner]:
    """Return the banners that a page shows for ``health``."""
    app = make_website().client.application
    with app.test_request_context():
        return read_banners(app.jinja_env.get_template("banners.html").module.banners(health))  # type: ignore[attr-defined]
