"""Takes the screenshots in the README and in docs/pages.md from the demo: ``make screenshots``.

The script waits until groups of the demo have suitable incidents, and then uses Debian's Chromium.
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import click
from playwright.sync_api import Browser, sync_playwright

_PORT = 5870
_BASE = f"http://127.0.0.1:{_PORT}"
_LEAST_S = 75
_PATIENCE_S = 400
_LASTS_S = 15
_WIDE = {"width": 1280, "height": 800}
_PHONE = {"width": 390, "height": 800}


@click.command(help=__doc__)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("docs/images"), show_default=True)
def main(directory: Path) -> None:
    """Take all screenshots again."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise click.ClickException("there is no chromium on the PATH: apt-get install chromium")
    with _demo(), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        worst = _trouble()
        urlopen(f"{_BASE}/metrics", timeout=30).close()  # noqa: S310 (as Prometheus does)
        group = urlencode({"cluster": worst["cluster"], "consumer": worst["consumer"]})
        _shoot(browser, directory / "page-group.png", f"/group?{group}", "light", _WIDE)
        _shoot(browser, directory / "page-light.png", "/", "light", _WIDE)
        _shoot(browser, directory / "page-dark.png", "/", "dark", _WIDE)
        _shoot(browser, directory / "page-phone.png", "/", "dark", _PHONE)
        _shoot(browser, directory / "page-reporters.png", "/reporters", "light", _WIDE)
        browser.close()


@contextmanager
def _demo() -> Iterator[None]:
    command = [sys.executable, "-m", "karrot", "demo", "--port", str(_PORT)]
    demo = subprocess.Popen(command, stdout=subprocess.DEVNULL)
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


def _shoot(browser: Browser, file: Path, path: str, scheme: str, viewport: dict[str, int]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(color_scheme=scheme, viewport=viewport)  # type: ignore[arg-type] # plain texts and numbers
    page = context.new_page()
    page.goto(_BASE + path)
    page.screenshot(path=file)
    context.close()
    click.echo(f"{file}: {file.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
