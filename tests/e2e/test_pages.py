"""The pages in a real browser: Debian's Chromium, found on the PATH."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from itertools import pairwise

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect

from support.burrow.lag_events import make_event
from support.eventlog.replicated_log import ReplicatedLog
from support.service.free_ports import free_port
from support.waiting import wait_for
from support.web.website import Website, make_website
from support.web.website_states import MARKUP, serve_website, website_in_state

pytestmark = pytest.mark.e2e

_ROWS = "table.groups tbody tr"
_REFRESHED_MS = 45_000
_GROUP = "/group?cluster=prod-eu&consumer=geo-enricher"
_TROUBLE = "/group?cluster=prod-eu&consumer=push-gateway"
_RUNBOOKS = [
    "/runbooks/KarrotBurrowSilent",
    "/runbooks/KarrotReporterDropping",
    "/runbooks/KarrotOnlyUnhealthyVerdicts",
]
_IN_SIGHT = "each => { const at = each.getBoundingClientRect(); return at.top >= 0 && at.bottom <= innerHeight }"

_SMALL_TARGETS = """[...document.querySelectorAll("a:not(.skip), button, select, input[type=search]")]
    .filter((each) => each.checkVisibility()).map((each) => [each.getBoundingClientRect(), each.outerHTML])
    .filter(([box]) => box.height < 24 || box.width < 24).map(([box, text]) => `${box.width}x${box.height} ${text}`)"""
"""The links and controls that are too small for a finger."""


@dataclass
class Visit:
    """An open page, and the errors that the browser reported on it."""

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)

    def watch(self) -> None:
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self._same_host(request.url))

    def _same_host(self, url: str) -> None:
        if not url.startswith(self.base):
            self.complaints.append(f"request to {url}")

    def names(self) -> list[str]:
        return [text.strip() for text in self.page.locator(f"{_ROWS} th a:not(.star)").all_inner_texts()]


Open = Callable[..., Visit]
Serve = Callable[[Website], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Yield a function that serves a website and gives its address, until its pages are closed."""
    with ExitStack() as stack:
        yield lambda website: stack.enter_context(serve_website(website))


@pytest.fixture
def visit(browser: Browser, serve: Serve) -> Iterator[Open]:
    """Yield a function that opens a page; at the end the browser must have reported no error."""
    del serve  # the server ends after the pages are closed
    contexts: list[BrowserContext] = []
    visits: list[Visit] = []

    def visit(base: str, path: str = "/", **options: object) -> Visit:
        contexts.append(browser.new_context(**options))  # type: ignore[arg-type]
        made = Visit(contexts[-1].new_page(), base)
        made.watch()
        made.page.goto(base + path)
        visits.append(made)
        return made

    yield visit
    for context in contexts:
        context.close()
    assert [complaint for each in visits for complaint in each.complaints] == []


@pytest.fixture(scope="module")
def moments() -> Callable[[str], Website]:
    """Return the website states that no test changes; each is set up once."""
    kept: dict[str, Website] = {}

    def moment(name: str) -> Website:
        if name not in kept:
            kept[name] = website_in_state(name)
        return kept[name]

    return moment


@pytest.mark.parametrize(
    ("moment", "paths"),
    [
        ("empty", ["/", "/reporters", "/rejects", "/runbooks", *_RUNBOOKS]),
        (
            "failing",
            ["/", _GROUP, _TROUBLE, "/reporters", "/reporters/cloudwatch", "/rejects"],
        ),
        ("silent", ["/"]),
        ("markup", ["/?sort=-lag"]),
        ("database-away", ["/", _GROUP, "/reporters", "/reporters/cloudwatch", "/rejects"]),
        ("no-leader", ["/", "/reporters"]),
        ("replicas", ["/reporters"]),
    ],
    ids=["empty", "failing", "silent", "markup", "database-away", "no-leader", "replicas"],
)
def test_axe_reports_nothing_in_either_theme(
    moments: Callable[[str], Website], serve: Serve, visit: Open, moment: str, paths: list[str]
) -> None:
    axe = Axe()
    base = serve(moments(moment))
    for path in paths:
        page = visit(base, path).page
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found = axe.run(page).response["violations"]
            told = [(each["id"], [node["target"] for node in each["nodes"]]) for each in found]
            assert told == [], f"{path} in {scheme}: {json.dumps(told)}"


def test_the_pointer_and_the_keyboard_show_the_values_of_the_curves_and_a_refresh_keeps_them(
    serve: Serve, visit: Open
) -> None:
    website = website_in_state("incident")
    page = visit(serve(website), _TROUBLE).page
    slider, shown = page.get_by_role("slider", name="Moment on the curves"), page.locator(".cross span").first
    texts = [line.partition(" ")[2] for line in (page.locator(".plots").get_attribute("data-points") or "").split("\n")]
    expect(shown).to_be_hidden()
    page.locator(".plots").scroll_into_view_if_needed()
    box = page.locator("svg.field").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 1, box["y"] + 9)
    expect(shown).to_have_text(texts[0])
    page.mouse.move(box["x"] + 1, box["y"] - 200)
    expect(shown).to_be_hidden()
    slider.focus()
    expect(shown).to_have_text(texts[0])
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    expect(shown).to_have_text(texts[-2])
    expect(slider).to_have_attribute("aria-valuetext", texts[-2])
    website.clock.advance(5000)
    key = {"cluster": "prod-eu", "consumer": "push-gateway"}
    event = make_event(**key, total_lag=123_456, observed_at_ms=website.clock.wall, incident_id="other")
    website.context.intake.accept(event)
    expect(page.locator("dl.facts").first).to_contain_text("123,456", timeout=_REFRESHED_MS)
    expect(slider).to_be_focused()
    expect(shown).to_have_text(texts[-2])


def test_the_summary_is_copied_by_keyboard_with_and_without_the_clipboard_of_https(
    moments: Callable[[str], Website], serve: Serve, visit: Open
) -> None:
    base = serve(moments("incident"))
    for is_secure in (True, False):
        visited = visit(base, _TROUBLE, permissions=["clipboard-read", "clipboard-write"])
        page = visited.page
        if not is_secure:
            page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        button = page.get_by_role("button", name="Copy a summary")
        button.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("status").filter(has_text="Copied")).to_be_visible()
        expect(button).to_be_focused()
        expect(page.locator("#summary")).to_be_hidden()
        field = page.get_by_label("Reason")
        field.focus()
        page.keyboard.press("Control+V")
        assert field.input_value().startswith("ERR push-gateway on prod-eu since 2026-11-22 ")
        assert field.input_value().endswith(f"{base}/group?cluster=prod-eu&consumer=push-gateway")


def test_without_a_script_the_range_works_and_nothing_asks_for_a_script(
    moments: Callable[[str], Website], serve: Serve, visit: Open
) -> None:
    page = visit(serve(moments("incident")), _TROUBLE, java_script_enabled=False).page
    page.get_by_role("navigation", name="Range of the curves").get_by_role("link", name="6 h").click()
    assert page.url.endswith("range=6h#curves")
    expect(page.locator("[aria-current]", has_text="6 h")).to_be_visible()
    assert page.locator("button:visible").all_inner_texts() == ["Mute"]
    assert not page.get_by_role("slider").is_visible()


def test_a_refresh_keeps_what_is_unfolded_and_its_focus(serve: Serve, visit: Open) -> None:
    website = website_in_state("incident")
    page = visit(serve(website), _TROUBLE).page
    folded = page.locator("details:not([open])")
    while folded.count():
        folded.first.locator("summary").press("Enter")
    unfolded = page.locator("details[open]").count()
    assert unfolded >= 2
    website.clock.advance(5000)
    key = {"cluster": "prod-eu", "consumer": "push-gateway"}
    website.context.intake.accept(make_event(**key, total_lag=123_456, observed_at_ms=website.clock.wall))
    expect(page.locator("dl.facts").first).to_contain_text("123,456", timeout=_REFRESHED_MS)
    assert page.locator("details[open]").count() == unfolded
    assert page.evaluate("document.activeElement.matches('details > summary')")


def test_the_keyboard_reaches_everything_on_the_page_of_a_group_in_the_order_of_the_page(
    moments: Callable[[str], Website], serve: Serve, visit: Open
) -> None:
    page = visit(serve(moments("incident")), _TROUBLE).page
    reached = []
    while True:
        page.keyboard.press("Tab")
        here = page.evaluate(
            "[document.activeElement.getBoundingClientRect().top + scrollY, document.activeElement.tagName,"
            " getComputedStyle(document.activeElement).outlineStyle]"
        )
        if here[1] == "BODY":
            break
        reached.append(here)
    places = [place for place, *_ in reached[5:-4]]  # without the menu and the footer
    assert len(places) >= 12
    assert all(later >= earlier - 24 for earlier, later in pairwise(places))  # two elements of a line may differ
    assert {outline for *_, outline in reached} == {"solid"}


@pytest.mark.parametrize("width", [320, 390, 1024, 1280, 1440])
def test_no_element_is_wider_than_the_window(
    moments: Callable[[str], Website], serve: Serve, visit: Open, width: int
) -> None:
    base = serve(moments("failing"))
    for path in ("/", _GROUP, _TROUBLE, "/reporters", "/reporters/cloudwatch", "/rejects", "/runbooks", *_RUNBOOKS):
        page = visit(base, path, viewport={"width": width, "height": 800}).page
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        for part in ("#list", "#rejects", ".statuses") if width != 1024 else ("#list",):
            if page.locator(part).count():
                assert page.locator(part).evaluate("part => part.scrollWidth <= part.clientWidth"), path


def test_a_lag_of_nineteen_digits_is_not_broken_on_a_phone(serve: Serve, visit: Open) -> None:
    website = make_website()
    for lag in (1 << 20, 1 << 59, 1 << 60):
        website.clock.advance(5000)
        website.context.intake.accept(make_event(total_lag=lag, observed_at_ms=website.clock.wall))
    base = serve(website)
    for path in ("/", "/group?cluster=prod-eu&consumer=orders-svc"):
        page = visit(base, path, viewport={"width": 320, "height": 800}).page
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, path
        lags = page.get_by_text(f"{1 << 60:,}", exact=True)
        pieces = [lags.nth(n).evaluate("each => each.getClientRects().length") for n in range(lags.count())]
        assert set(pieces) == {1}, path


def test_a_column_head_sorts_the_table_and_the_url_keeps_the_order(
    moments: Callable[[str], Website], serve: Serve, visit: Open
) -> None:
    base = serve(moments("incident"))
    visited = visit(base)
    page = visited.page
    by_status = visited.names()
    page.get_by_role("columnheader", name="Group").get_by_role("link").click()
    expect(page.get_by_role("columnheader", name="Group")).to_have_attribute("aria-sort", "ascending")
    assert visited.names() == sorted(by_status)
    page.get_by_role("columnheader", name="Group").get_by_role("link").click()
    expect(page.get_by_role("columnheader", name="Group")).to_have_attribute("aria-sort", "descending")
    page.reload()
    assert visited.names() == sorted(by_status, reverse=True)


def test_filters_stay_after_a_reload_and_after_another_filter(
    moments: Callable[[str], Website], serve: Serve, visit: Open
) -> None:
    base = serve(moments("incident"))
    visited = visit(base)
    page = visited.page
    page.get_by_label("Cluster").select_option("prod-eu")
    page.get_by_label("Name contains").fill("ER")
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("navigation", name="Filter by status").get_by_role("link", name="OK").click()
    page.reload()
    assert page.get_by_label("Cluster").input_value() == "prod-eu"
    assert page.get_by_label("Name contains").input_value() == "ER"
    names = visited.names()
    assert names
    assert set(page.locator(f"{_ROWS} .state").all_inner_texts()) == {"OK"}
    page.get_by_role("link", name="Clear").click()
    assert len(visited.names()) == 24


def test_the_form_sorts_the_table_if_columns_have_no_heads(
    moments: Callable[[str], Website], serve: Serve, visit: Open
) -> None:
    visited = visit(serve(moments("incident")), viewport={"width": 700, "height": 900})
    before = visited.names()
    visited.page.get_by_label("Sort by").select_option("By group")
    visited.page.get_by_role("button", name="Filter").click()
    assert visited.names() == sorted(before) != before
    assert visited.page.get_by_role("table").count() == 1
    assert visited.page.get_by_role("row").count() > len(before) - 1
    visited.page.set_viewport_size({"width": 1200, "height": 900})
    assert not visited.page.get_by_label("Sort by").is_visible()


def test_a_group_that_becomes_unhealthy_appears_without_a_reload_and_the_focus_stays(serve: Serve, visit: Open) -> None:
    website = website_in_state("healthy")
    base = serve(website)
    visited = visit(base, viewport={"width": 1000, "height": 400})
    page = visited.page
    expect(page.get_by_role("heading", level=1)).to_contain_text("All 24 groups are OK")
    page.evaluate("window.never_reloaded = true")
    link = page.get_by_role("link", name="billing", exact=True)
    link.scroll_into_view_if_needed()
    link.focus()
    before = page.evaluate("scrollY")
    assert before > 0
    website.clock.advance(5000)
    website.context.intake.accept(
        make_event(cluster="prod-us", consumer="late-one", status_text="WARN", observed_at_ms=website.clock.wall)
    )
    expect(page.locator(".worst")).to_contain_text("late-one", timeout=_REFRESHED_MS)
    expect(page.locator(_ROWS).first).to_contain_text("late-one")
    assert page.title().startswith("0 ERR, 1 WARN")
    assert page.evaluate("window.never_reloaded")
    assert page.evaluate("document.activeElement.textContent") == "billing"
    assert link.evaluate(_IN_SIGHT)


def test_the_first_group_replaces_the_welcome_by_a_list(serve: Serve, visit: Open) -> None:
    website = website_in_state("empty")
    base = serve(website)
    page = visit(base).page
    expect(page.get_by_role("heading", level=1)).to_have_text("Waiting for Burrow")
    website.context.intake.accept(make_event(observed_at_ms=website.clock.wall))
    expect(page.locator(_ROWS)).to_have_count(1, timeout=_REFRESHED_MS)


def test_a_name_made_of_markup_stays_text(moments: Callable[[str], Website], serve: Serve, visit: Open) -> None:
    base = serve(moments("markup"))
    visited = visit(base)
    shown = MARKUP.replace("\u202e", "\\u{202e}")
    assert visited.names()[0] == shown
    visited.page.locator(f"{_ROWS} th a:not(.star)").first.click()
    expect(visited.page.get_by_role("heading", level=1)).to_contain_text(shown)
    assert visited.page.locator("#main b, #main script").count() == 0 or all(
        "alert" not in text for text in visited.page.locator("#main b, #main script").all_inner_texts()
    )


def test_the_keyboard_reaches_the_worst_group_and_print_leaves_the_controls_out(
    moments: Callable[[str], Website], serve: Serve, visit: Open
) -> None:
    base = serve(moments("incident"))
    page = visit(base).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.closest('.worst') !== null"))
    assert any(reached)
    page.emulate_media(media="print")
    assert page.locator("table.groups").is_visible()
    page.set_viewport_size({"width": 703, "height": 1000})  # A4 between its margins
    assert page.locator("table.groups").evaluate("table => getComputedStyle(table).display") == "table"
    assert page.locator("#list").evaluate("list => list.scrollWidth <= list.clientWidth")
    assert not page.locator(".tools").is_visible()
    assert not page.locator(".top nav").is_visible()


def test_the_page_shows_that_karrot_is_gone_and_that_it_is_back(serve: Serve, visit: Open) -> None:
    website = website_in_state("healthy")
    base = serve(website)
    visited = visit(base)
    page, headline = visited.page, visited.page.locator("#gone")
    expect(page.locator("#live")).to_have_text("Live")
    title = page.title()
    page.context.set_offline(offline=True)
    expect(headline).to_contain_text(
        re.compile(r"^Karrot does not answer\. This page is \d+ s old"), timeout=_REFRESHED_MS
    )
    expect(page.locator("#live")).to_contain_text(re.compile(r"^Not updated since \d\d:\d\d:\d\d UTC$"))
    assert page.title() == f"⚠ Not updated · {title}"
    assert float(page.get_by_role("heading", level=1).evaluate("each => getComputedStyle(each).opacity")) < 1
    age = page.locator("[data-age]").first
    expect(age).not_to_have_text(age.inner_text(), timeout=_REFRESHED_MS)
    page.context.set_offline(offline=False)
    expect(page.locator("#live")).to_have_text("Live", timeout=_REFRESHED_MS)
    expect(headline).to_be_hidden()
    assert page.title() == title
    # The browser itself reports the failed requests.
    visited.complaints[:] = [each for each in visited.complaints if "ERR_INTERNET_DISCONNECTED" not in each]


def test_an_open_page_of_a_group_that_leaves_the_list_explains_it(serve: Serve, visit: Open) -> None:
    website = website_in_state("healthy")
    visited = visit(serve(website), _GROUP)
    website.forget()
    expect(visited.page.locator("main")).to_contain_text("The last event about it came", timeout=_REFRESHED_MS)
    assert not visited.page.locator("#gone").is_visible()
    visited.complaints[:] = [each for each in visited.complaints if "404" not in each]


def test_the_list_is_filtered_during_typing_after_a_slash(
    moments: Callable[[str], Website], serve: Serve, visit: Open
) -> None:
    visited = visit(serve(moments("incident")))
    page = visited.page
    page.evaluate("window.never_reloaded = true")
    page.keyboard.press("/")
    page.keyboard.type("billing")
    expect(page.locator(_ROWS)).to_have_count(1)
    assert visited.names() == ["billing"]
    assert page.url.endswith("/?q=billing")
    assert page.evaluate("window.never_reloaded && document.activeElement.value") == "billing"
    page.get_by_label("Name contains").fill("")
    expect(page.locator(_ROWS)).to_have_count(24)


def test_targets_for_fingers_are_at_least_24_pixels_high_and_wide(
    moments: Callable[[str], Website], serve: Serve, visit: Open
) -> None:
    base = serve(moments("failing"))
    for path in ("/", _GROUP, _TROUBLE, "/reporters", "/rejects", "/runbooks"):
        page = visit(base, path, viewport={"width": 390, "height": 800}).page
        assert page.evaluate(_SMALL_TARGETS) == [], path


def test_an_open_page_shows_that_its_content_comes_from_memory(serve: Serve, visit: Open) -> None:
    website = website_in_state("replicas")
    assert isinstance(website.log, ReplicatedLog)
    visited = visit(serve(website))
    expect(visited.page.locator("#live")).to_have_text("Live")
    website.log.away_ms = 5_000
    website.clock.advance(3_000)  # the page is kept for two seconds
    expect(visited.page.locator("#live")).to_have_text("From memory", timeout=_REFRESHED_MS)
    expect(visited.page.locator("#outage")).to_contain_text("The database of the event log is away")
    website.log.away_ms = None
    website.clock.advance(3_000)
    expect(visited.page.locator("#live")).to_have_text("Live", timeout=_REFRESHED_MS)
    expect(visited.page.locator("#outage")).to_be_empty()


def test_an_open_page_is_not_live_while_its_source_is_silent(serve: Serve, visit: Open) -> None:
    website = website_in_state("healthy")
    visited = visit(serve(website))
    expect(visited.page.locator("#live")).to_have_text("Live")
    website.clock.advance(website.context.stale_after_ms * 3 // 4)
    expect(visited.page.locator("#live")).to_have_text("Burrow is late", timeout=_REFRESHED_MS)


def test_the_page_of_the_demo_updates_while_it_is_open(visit: Open) -> None:
    with _demo() as base:
        visited = visit(base)
        page = visited.page
        expect(page.locator(_ROWS)).to_have_count(24, timeout=60_000)
        first = page.locator("#list").inner_text()
        expect(page.locator("#list")).not_to_have_text(first, timeout=_REFRESHED_MS)
        page.locator(f"{_ROWS} th a:not(.star)").first.click()
        expect(page.locator("svg.field polyline").first).to_be_attached(timeout=_REFRESHED_MS)
        page.goto(f"{base}/reporters/cloudwatch")
        expect(page.get_by_text("groups with metrics")).to_be_visible(timeout=30_000)
        page.close()  # before its server ends


@contextmanager
def _demo() -> Iterator[str]:
    port = free_port()
    demo = subprocess.Popen(
        [sys.executable, "-m", "karrot", "demo", "--port", str(port), "--speed", "3"], stdout=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: _answers(port), timeout_s=60)
        yield f"http://127.0.0.1:{port}"
    finally:
        demo.terminate()
        demo.wait(30)


def _answers(port: int) -> bool:
    with closing(HTTPConnection("127.0.0.1", port, timeout=2)) as connection, suppress(OSError, HTTPException):
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    return False
