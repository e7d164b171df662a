"""The report in a real browser: Debian's Chromium, found on the PATH."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from karrot.history.report_findings import Findings
from karrot.report.html_page import page as report_page
from support.report_findings import make_findings, quiet_week

pytestmark = pytest.mark.e2e

_MADE_AT = datetime(2026, 11, 23, 8, tzinfo=UTC)
_WIDTHS = (390, 1440)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("findings", [make_findings(), quiet_week()], ids=["a bad week", "a quiet week"])
def test_axe_reports_nothing_and_no_element_is_wider_than_the_window(
    browser: Browser, tmp_path: Path, findings: Findings, scheme: str
) -> None:
    written = tmp_path / "report.html"
    written.write_text(report_page(findings, made_at=_MADE_AT).html, encoding="utf-8")
    context = browser.new_context(color_scheme=scheme)  # type: ignore[arg-type]
    page, asked = context.new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(written.as_uri())
    for width in _WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = Axe().run(page).response["violations"]
        told = [(each["id"], [node["target"] for node in each["nodes"]]) for each in found]
        assert told == [], json.dumps(told)
    assert asked == [written.as_uri()]
    context.close()
