"""`karrot simulate` as somebody types it."""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from karrot.cli import main
from support.bodies import make_event
from support.website import Website, make_website

ROOT = Path(__file__).resolve().parent
TUESDAY = ROOT / "data" / "simulate" / "tuesday.csv"
DOCUMENT = ROOT.parent / "docs" / "simulate.md"

THEN = ["--tasks-then", "2", "--rate-per-task", "500"]
TRACKING = ["--recipe", "target-tracking", "--max-lag-seconds", "120", "--max-tasks", "12"]
RECIPES = [
    TRACKING,
    ["--recipe", "target-tracking", "--target-lag-per-task", "60000", "--max-tasks", "12"],
    ["--recipe", "step", "--max-lag-seconds", "120", "--max-tasks", "12"],
    ["--recipe", "step", "--max-lag", "100000", "--max-tasks", "12", "--high-resolution"],
    ["--recipe", "step", "--max-lag", "100000", "--max-tasks", "12", "--min-tasks", "0"],
    ["--recipe", "from-zero", "--max-lag-seconds", "120", "--max-tasks", "12"],
    ["--recipe", "from-zero", "--target-lag-per-task", "60000", "--max-tasks", "12"],
]


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, ["simulate", *arguments], env=env, catch_exceptions=False)


def figures(result: Result) -> dict[str, str]:
    """The last column of the table, by the words before it."""
    lines = result.stdout.split("\n\n")[1].splitlines()[1:]
    return {line[:19].strip(): line.split("  ")[-1].strip() for line in lines}


def test_the_example_of_the_document_is_what_the_command_says(tmp_path: Path) -> None:
    page = DOCUMENT.read_text(encoding="utf-8")
    [example] = re.findall(r"```console\n\$ karrot simulate (.*?)\n(target.*?)\n\.\.\.\n```", page, re.DOTALL)
    drawn = tmp_path / "tuesday.svg"
    here = {"tuesday.csv": str(TUESDAY), "tuesday.svg": str(drawn)}
    result = run(*(here.get(word, word) for word in example[0].replace("\\\n", " ").split()))
    assert result.stdout.startswith(example[1])
    assert result.stderr == ""
    assert drawn.read_text() == (DOCUMENT.parent / "images" / "simulate.svg").read_text()
    single = figures(run(*TRACKING, "--min-tasks", "1", "--series", str(TUESDAY), *THEN))
    assert f"gives {single['task-hours']} task-hours and {single['flaps']} flaps" in page


@pytest.mark.parametrize("target", [[], ["--target", "asg"]], ids=["ecs", "asg"])
@pytest.mark.parametrize("recipe", RECIPES, ids=[" ".join(each[1:4:2] + each[2:3]) for each in RECIPES])
def test_every_recipe_is_run_as_it_is_rendered(recipe: list[str], target: list[str]) -> None:
    result = run(*recipe, *target, "--series", str(TUESDAY), *THEN)
    assert result.exit_code == 0
    assert result.stderr == ""
    told = figures(result)
    assert int(told["peak lag"].replace(",", "")) < 2_880_726
    assert int(told["scaled out, in"].split(",")[0]) > 0


def test_the_chart_is_a_drawing_with_all_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "tuesday.svg"
    name = 'a"<&>group'
    result = run(*TRACKING, "--group", name, "--series", str(TUESDAY), *THEN, "--svg", str(file))
    assert result.exit_code == 0
    drawing = ET.fromstring(file.read_text(encoding="utf-8"))
    space = "{http://www.w3.org/2000/svg}"
    assert drawing.findtext(f"{space}title") == f"target-tracking on the lag of {name}"
    assert {"was", "is", "under", "desired", "running"} <= {each.get("class") for each in drawing.iter(f"{space}path")}
    assert "prefers-color-scheme: dark" in str(drawing.findtext(f"{space}style"))


def test_a_recording_that_contradicts_its_rate_is_warned_about(tmp_path: Path) -> None:
    file = tmp_path / "steep.csv"
    file.write_text("0,90000\n60,0\n1200,0\n")
    result = run(*TRACKING, "--min-tasks", "3", "--series", str(file), *THEN)
    too_fast = "1 of 2 times the lag fell faster than 2 tasks could have made it"
    assert result.stderr.splitlines() == [
        f"warning: {too_fast}: --rate-per-task or --tasks-then is too low",
        "warning: up to 19 minutes lie between two samples; arrivals are taken as even there",
        "warning: the recipe begins with 3 tasks, not with the 2 of then",
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([*TRACKING, *THEN], "karrot: give either --series, --url or --tables"),
        ([*TRACKING, *THEN, "--url", "http://127.0.0.1:1"], "karrot: --url needs --group"),
        (
            ["--recipe", "step", "--max-tasks", "3", "--series", str(TUESDAY), *THEN],
            "karrot: --recipe step takes either --max-lag-seconds or --max-lag",
        ),
    ],
)
def test_what_cannot_be_simulated_is_said_in_a_sentence(arguments: list[str], sentence: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stderr.splitlines()) == (2, [sentence])


def test_a_series_that_cannot_be_read_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "odd.csv"
    file.write_text("time,lag\nyesterday,5\n")
    result = run(*TRACKING, "--series", str(file), *THEN)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"karrot: {file}: line 2: 'yesterday' is no time")


class Served(WSGIServer):
    """A Karrot on a port."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Quiet(WSGIRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        """Not on standard error."""


@pytest.fixture
def website() -> Website:
    return make_website(api_token="let-me-in")


@pytest.fixture
def karrot(website: Website) -> Iterator[Served]:
    with make_server("127.0.0.1", 0, website.client.application, Served, Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


TOKEN = {"KARROT_API_TOKEN": "let-me-in"}


def record(website: Website, *, clusters: tuple[str, ...] = ("prod-eu",), events: int = 120) -> None:
    """A lag that grows for an hour."""
    for _ in range(events):
        website.clock.advance(30_000)
        for cluster in clusters:
            at_ms, lag = website.clock.wall_ms(), 1000 * _
            website.site.intake.accept(
                make_event(cluster=cluster, consumer="orders/eu svc", total_lag=lag, observed_at_ms=at_ms)
            )


def test_a_running_karrot_tells_the_lag_of_its_events(website: Website, karrot: Served) -> None:
    record(website)
    result = run(*TRACKING, *THEN, "--url", karrot.url, "--group", "orders/eu svc", env=TOKEN)
    assert result.exit_code == 0, result.stderr
    assert "target-tracking on the lag of orders/eu svc, 1 to 12 tasks" in result.stdout
    assert "120 samples" in result.stdout


def test_a_group_in_two_clusters_has_to_be_chosen(website: Website, karrot: Served) -> None:
    record(website, clusters=("prod-eu", "prod-us"), events=3)
    asked = [*TRACKING, *THEN, "--url", karrot.url, "--group", "orders/eu svc"]
    unclear = run(*asked, env=TOKEN)
    assert unclear.stderr == "karrot: 'orders/eu svc' is in prod-eu, prod-us: choose by --burrow-cluster\n"
    assert run(*asked, "--burrow-cluster", "prod-us", env=TOKEN).exit_code == 0


def test_what_karrot_refuses_is_told(website: Website, karrot: Served) -> None:
    record(website, events=3)
    asked = [*TRACKING, *THEN, "--url", karrot.url, "--group"]
    assert "401" in run(*asked, "orders/eu svc").stderr
    assert run(*asked, "nobody", env=TOKEN).stderr == f"karrot: {karrot.url} knows no live group 'nobody'\n"
    assert "404" in run(*asked, "nobody", "--burrow-cluster", "prod-eu", env=TOKEN).stderr
    assert run(*TRACKING, *THEN, "--url", "http://127.0.0.1:1", "--group", "g").exit_code == 2


def test_the_api_gives_as_many_events_as_asked_for(website: Website) -> None:
    record(website, events=60)
    query = {"cluster": "prod-eu", "consumer": "orders/eu svc"}
    header = {"Authorization": "Bearer let-me-in"}
    for limit, there in (("", 50), ("7", 7), ("1000", 60)):
        answer = website.client.get("/api/v1/group", query_string=query | {"limit": limit}, headers=header)
        assert len(json.loads(answer.data)["events"]) == there
    assert website.client.get("/api/v1/group", query_string=query | {"limit": "0"}, headers=header).status_code == 400
