"""Takes pictures of all pages and of the report, light and dark, wide and narrow, with Debian's Chromium.

Run ``make screenshots``. The pages are those of the demo, once its groups have suitable incidents, and the first page
and the first group's page of each state that the tests know. The pictures are in build/screenshots. With ``--docs``,
the script also takes the pictures in docs/images. After ``make history``, the demo's pages show the last weeks too.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import click
from playwright.sync_api import Browser, sync_playwright

from karrot.report.html_page import page as report_page
from support.report_findings import make_findings, quiet_week
from support.web.website_states import STATES, serve_website

_PORT = 5870
_BASE = f"http://127.0.0.1:{_PORT}"
_LEAST_S = 75
_PATIENCE_S = 400
_LASTS_S = 15
_SIZES = {"wide": {"width": 1280, "height": 800}, "narrow": {"width": 390, "height": 800}}
_TABLES = Path("build/history/tables")
_PAGES = {
    "list": "/",
    "list-errors": "/?status=ERR",
    "reporters": "/reporters",
    "reporter-cloudwatch": "/reporters/cloudwatch",
    "reporter-prometheus": "/reporters/prometheus",
    "rejects": "/rejects",
    "runbooks": "/runbooks",
    "runbook": "/runbooks/KarrotConsumerError",
    "not-found": "/group?cluster=prod-eu&consumer=none",
}
_DOCS = {
    "page-group.png": ("group", "light", "wide"),
    "page-light.png": ("list", "light", "wide"),
    "page-dark.png": ("list", "dark", "wide"),
    "page-phone.png": ("list", "dark", "narrow"),
    "page-reporters.png": ("reporters", "light", "wide"),
}
"""The page, the scheme and the size of each picture in docs/images."""


@click.command(help=__doc__)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("build/screenshots"), show_default=True)
@click.option("--docs", is_flag=True, help="Also take the pictures in docs/images.")
def main(directory: Path, *, docs: bool) -> None:
    """Take all pictures again."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise click.ClickException("there is no chromium on the PATH: apt-get install chromium")
    with _demo(), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        urlopen(f"{_BASE}/metrics", timeout=30).close()  # noqa: S310 (as Prometheus does)
        pages = {**_PAGES, "group": _group_page(_trouble())}
        for picture, (page, scheme, size) in _DOCS.items() if docs else ():
            _shoot(browser, Path("docs/images") / picture, _BASE + pages[page], scheme, size, whole=False)
        for page, path in pages.items():
            _shoot_all(browser, directory, page, _BASE + path)
        for state, make in STATES.items():
            website = make()
            groups = json.loads(website.client.get("/api/v1/groups").text)["groups"]
            with serve_website(website) as base:
                _shoot_all(browser, directory, f"state-{state}-list", f"{base}/")
                if groups:
                    _shoot_all(browser, directory, f"state-{state}-group", base + _group_page(groups[0]))
        for name, findings in (("report", make_findings()), ("report-quiet", quiet_week())):
            written = directory / f"{name}.html"
            written.write_text(report_page(findings, made_at=datetime(2026, 11, 23, 8, tzinfo=UTC)).html, "utf-8")
            _shoot_all(browser, directory, name, written.resolve().as_uri())
        browser.close()


@contextmanager
def _demo() -> Iterator[None]:
    command = [sys.executable, "-m", "karrot", "demo", "--port", str(_PORT)]
    tables = {"KARROT_TABLES_DIR": str(_TABLES)} if _TABLES.is_dir() else {}
    demo = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | tables)
    try:
        yield
    finally:
        demo.send_signal(signal.SIGTERM)
        demo.wait()


def _trouble() -> dict[str, Any]:
    """Wait until one group has an error for some time and another group has a warning. Return the first group."""
    began = time.monotonic()
    while time.monotonic() - began < _PATIENCE_S:
        time.sleep(1)
        groups = _groups()
        lasting = [each for each in groups if each["status"] == "ERR" and _lasts(each) > _LASTS_S]
        warned = any(each["status"] == "WARN" for each in groups)
        if lasting and warned and time.monotonic() - began > _LEAST_S:
            return max(lasting, key=_lasts)
    raise click.ClickException("the demo had no trouble that is worth a picture")


def _groups() -> list[dict[str, Any]]:
    try:
        with urlopen(f"{_BASE}/api/v1/groups", timeout=5) as answer:  # noqa: S310 (the demo, on this machine)
            found: list[dict[str, Any]] = json.load(answer)["groups"]
    except (URLError, TimeoutError):
        return []
    return found


def _lasts(group: dict[str, Any]) -> float:
    if not group["incident"]:
        return 0.0
    return (datetime.now(UTC) - datetime.fromisoformat(group["incident"]["since"])).total_seconds()


def _group_page(group: dict[str, Any]) -> str:
    return "/group?" + urlencode({"cluster": group["cluster"], "consumer": group["consumer"]})


def _shoot_all(browser: Browser, directory: Path, name: str, url: str) -> None:
    for scheme, size in product(("light", "dark"), _SIZES):
        _shoot(browser, directory / f"{name}-{scheme}-{size}.png", url, scheme, size, whole=True)


def _shoot(browser: Browser, file: Path, url: str, scheme: str, size: str, *, whole: bool) -> None:
    """Take a picture of the whole page, or of what the window shows."""
    file.parent.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(color_scheme=scheme, viewport=_SIZES[size])  # type: ignore[arg-type] # plain texts and numbers
    page = context.new_page()
    page.goto(url)
    page.screenshot(path=file, full_page=whole)
    context.close()
    click.echo(f"{file}: {file.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
